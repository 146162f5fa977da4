//! A fresh connection: who the client is, when it is read, and which protocol it speaks.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use router_io::phase::Phase;
use router_io::tls::ServerTls;
use router_io::{CountedTcp, Peer, ReceivedBytes, Remote, Stream, has_ended, on_buffers_freed};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::access::ClientIdentity;
use crate::client_stream::{ClientStream, Gauge};
use crate::connection::{ConnectionState, Guest, Met};
use crate::counters::ConnectionCount;
use crate::guard::connection_throttle::ThrottledConnection;
use crate::guard::handshake_limiter::{self, pass};
use crate::guard::penalty_box::WAIT;
use crate::heads::proxy_header;
use crate::idle::{IdleTracker, Room, Speech};
use crate::{Front, handshake, http1, http2};

/// Every HTTP/2 client begins with it (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The ALPN name of HTTP/2 (RFC 9113, 3.2).
const ALPN_HTTP2: &[u8] = b"h2";

/// How often a waiting connection is checked, so that one that has ended is dropped. Arbitrary.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A connection that was accepted.
#[derive(Debug)]
pub struct Arrival {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub tls: Option<Arc<ServerTls>>,
    pub count: ConnectionCount,
}

/// The protocol that the first bytes reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    Http1,
    Http2,
}

/// A connection whose peer has begun to speak.
struct Greeted {
    stream: ClientStream,
    greeting: Greeting,
    caller: ClientIdentity,
    client: Remote,
}

/// A connection that can be served.
#[derive(Debug)]
pub struct Opened {
    pub state: Rc<ConnectionState>,
    pub stream: ClientStream,
    pub greeting: Greeting,
    pub client: Remote,
}

/// Serves a fresh connection until it ends.
pub(crate) async fn serve(front: Arc<Front>, arrival: Arrival, mut phase: watch::Receiver<Phase>) {
    let Some(opened) = open(front, arrival, &mut phase).await else { return };
    let Opened { state, stream, greeting, .. } = opened;
    // Boxed: many connections may never get this far.
    match greeting {
        Greeting::Http1 => Box::pin(http1::serve(state, stream, phase)).await,
        Greeting::Http2 => Box::pin(http2::serve(state, stream, phase)).await,
    }
    on_buffers_freed();
}

/// Waits until the protocol is clear; `None` for a peer that sends nothing, and at the end of the
/// front.
pub async fn open(
    front: Arc<Front>,
    arrival: Arrival,
    phase: &mut watch::Receiver<Phase>,
) -> Option<Opened> {
    let room = Room::of(&front);
    let received = ReceivedBytes::default();
    let idle = IdleTracker::new(Rc::clone(&room), Speech::Unknown, arrival.tls.is_some());
    let met = tokio::select! {
        met = idle.during(|| received.get(), meet(&front, arrival, &received)) => met?,
        // No request was made, so none is answered.
        _ = phase.wait_for(|phase| *phase > Phase::Serving) => return None,
    };
    // An error before the first request affects no call, so it is dropped.
    let (met, greeted) = met?;
    let Greeted { stream, greeting, caller, client } = greeted;
    let state = Rc::new(ConnectionState::new(front, room, met, caller, &client));
    Some(Opened { state, stream, greeting, client })
}

/// Identifies the client, and waits until other connections of its address have had their turn.
async fn meet(
    front: &Arc<Front>,
    mut arrival: Arrival,
    received: &ReceivedBytes,
) -> Option<(Met, Greeted)> {
    let guest = introduce(front, &mut arrival).await?;
    let met = Met::new(front, guest, arrival.tls.is_some());
    if let Some(time) = time_to_wait(&met.visit, met.is_suspect) {
        front.counters.delayed_connections.count();
        wait(&arrival.stream, time).await?;
    }
    // Boxed, so that waiting connections are small.
    let greeted = Box::pin(greet(front, arrival, received, guest.peer, &met.gauge)).await?;
    Some((met, greeted))
}

/// Reads the PROXY header of a trusted proxy that sends one, before anything else is read.
async fn introduce(front: &Front, arrival: &mut Arrival) -> Option<Guest> {
    let (proxies, proxy) = (&front.config.proxies, arrival.peer);
    if !proxies.has_headers || !proxies.trusts(proxy.ip()) {
        return Some(Guest::new(proxies, proxy));
    }
    // Boxed, since few connections have one and it holds the longest header.
    let header = Box::pin(proxy_header::read(&mut arrival.stream));
    let Ok(client) = front.in_time(async { Some(header.await) }).await? else {
        front.counters.proxy_headers_malformed.count();
        return None;
    };
    Some(Guest::new(proxies, client.unwrap_or(proxy)))
}

/// How long a new connection waits before it is read, because of what other connections of its
/// address did.
fn time_to_wait(visit: &ThrottledConnection, is_suspect: bool) -> Option<Duration> {
    let in_line = visit.wait(Instant::now());
    in_line.max(is_suspect.then_some(WAIT))
}

/// `None`: the client left before its turn.
async fn wait(stream: &TcpStream, time: Duration) -> Option<()> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(());
        }
        sleep(left.min(LOOK_INTERVAL)).await;
        if has_ended(stream) {
            return None;
        }
    }
}

/// Reads from the client, and waits for its turn before each expensive step.
async fn greet(
    front: &Front,
    arrival: Arrival,
    received: &ReceivedBytes,
    peer: SocketAddr,
    gauge: &Arc<Gauge>,
) -> Option<Greeted> {
    let Arrival { stream, tls, count, .. } = arrival;
    let mut stream = match tls {
        None => Stream::Tcp(stream),
        Some(tls) => {
            front.in_time(async { stream.readable().await.ok() }).await?;
            pass(handshake_limiter::TLS).await;
            let stream = CountedTcp::new(stream, received.clone());
            Box::pin(handshake::accept(front, &tls, stream)).await?
        }
    };
    let peer = Peer::Tcp(peer);
    let caller = ClientIdentity::of(&stream, peer.clone());
    let client = Remote::of(peer, &stream);
    let (greeting, first) = match stream.negotiated() {
        Some(ALPN_HTTP2) => (Greeting::Http2, Bytes::new()),
        _ => front.in_time(sniff(&mut stream)).await?,
    };
    pass(handshake_limiter::GREETING).await;
    let stream = ClientStream::new(stream, first, gauge, count, greeting == Greeting::Http2);
    Some(Greeted { stream, greeting, caller, client })
}

/// Reads until the protocol is clear, and no further; `None` when the peer sends nothing.
async fn sniff(stream: &mut Stream) -> Option<(Greeting, Bytes)> {
    let mut first = [0; PREFACE.len()];
    let mut length = 0;
    while length < first.len() {
        let read = stream.read(&mut first[length..]).await.ok()?;
        if read == 0 {
            return None;
        }
        length += read;
        if !PREFACE.starts_with(&first[..length]) {
            return Some((Greeting::Http1, Bytes::copy_from_slice(&first[..length])));
        }
    }
    Some((Greeting::Http2, Bytes::from_static(PREFACE)))
}
