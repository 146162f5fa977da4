//! One client connection: who speaks there, and what its requests share.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use slab::Slab;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::access::{Asker, Caller};
use super::call::CALL_POINTS;
use super::counters::ConnectionCount;
use super::forwarded::{Client, named_client};
use super::frames::IDLE_POINTS;
use super::offenders::{Offence, WAIT};
use super::own_call::OwnCall;
use super::plain_head::Said;
use super::proxies::Proxies;
use super::rest::{Rest, Room, Speech};
use super::strangers::Visit;
use super::turnstile::{self, pass};
use super::upstream::Directory;
use super::wire::{Gauge, Wire};
use super::{Front, handshake, http1, http2, proxy_header};
use crate::dispatch::exchange::Stop;
use crate::grpc::{Code, Status};
use crate::io::tls::ServerTls;
use crate::io::{CountedTcp, Peer, ReceivedBytes, Remote, Stream, has_ended, on_buffers_freed};
use crate::link::next_token;
use crate::phase::Phase;

/// Every HTTP/2 client begins with it (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What TLS peers agree on for HTTP/2 (RFC 9113, 3.2).
const ALPN_HTTP2: &[u8] = b"h2";

/// How often one that waits is looked at: one that has ended is not kept. Arbitrary.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub tls: Option<Arc<ServerTls>>,
    pub count: ConnectionCount,
}

/// What the requests of a connection share. It lives on one thread.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(super) front: Arc<Front>,
    pub(super) directory: Directory,
    guest: Guest,
    pub(super) caller: Caller,
    /// Names the connection among those who call.
    pub(super) number: u64,
    pub(super) is_tls: bool,
    /// Others of its address were ended for what they sent.
    pub(super) is_suspect: bool,
    pub(super) gauge: Arc<Gauge>,
    room: Rc<Room>,
    visit: Visit,
    /// What replicas were told of it.
    pub(super) said: Said,
    /// Where its calls run, one at a time; dangling for a connection that may have several.
    pub(super) own_call: RefCell<Weak<OwnCall>>,
    /// Whoever reads what its call says is looked after next, and need not be woken.
    pub(super) is_attentive: Cell<bool>,
    /// No further request is wanted.
    pub(super) is_draining: Cell<bool>,
    is_stopped: Cell<bool>,
    /// The client was told that it asks for too much.
    is_told: Cell<bool>,
    /// The tasks of calls that wait for something.
    waiting: RefCell<Slab<Waker>>,
    /// Closes when nobody needs this state any more.
    held: RefCell<Option<oneshot::Sender<()>>>,
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    Http1,
    Http2,
}

/// Whose connection it is: its other end's, or that for which a trusted proxy says that it comes.
#[derive(Clone, Copy, Debug)]
struct Guest {
    peer: SocketAddr,
    /// It is a trusted proxy itself.
    is_proxy: bool,
}

/// Somebody who has come, before anything was heard of it.
struct Met {
    guest: Guest,
    visit: Visit,
    is_suspect: bool,
    gauge: Arc<Gauge>,
}

/// A connection whose peer has begun to speak.
struct Greeted {
    wire: Wire,
    greeting: Greeting,
    caller: Caller,
    client: Remote,
}

/// A connection that can be served.
pub(crate) struct Opened {
    pub state: Rc<ConnectionState>,
    pub wire: Wire,
    pub greeting: Greeting,
    pub client: Remote,
}

/// Serves a fresh connection until it ends.
pub(crate) async fn serve(front: Arc<Front>, arrival: Arrival, mut phase: watch::Receiver<Phase>) {
    let Some(opened) = open(front, arrival, &mut phase).await else { return };
    let Opened { state, wire, greeting, .. } = opened;
    // In boxes of their own: there may be many connections that have not come so far.
    match greeting {
        Greeting::Http1 => Box::pin(http1::serve(state, wire, phase)).await,
        Greeting::Http2 => Box::pin(http2::serve(state, wire, phase)).await,
    }
    on_buffers_freed();
}

/// Waits until it is clear who speaks; `None` for a peer that does not, and at the end of the front.
pub(crate) async fn open(
    front: Arc<Front>,
    arrival: Arrival,
    phase: &mut watch::Receiver<Phase>,
) -> Option<Opened> {
    let room = Room::of(&front);
    let received = ReceivedBytes::default();
    let resting = Rest::new(Rc::clone(&room), Speech::Unknown, arrival.tls.is_some());
    let met = tokio::select! {
        met = resting.during(|| received.get(), meet(&front, arrival, &received)) => met?,
        // Nothing was asked, so there is nothing to answer.
        _ = phase.wait_for(|phase| *phase > Phase::Serving) => return None,
    };
    // Whatever goes wrong before the first request, there is nobody to tell it to.
    let (Met { guest, visit, is_suspect, gauge }, greeted) = met?;
    let Greeted { wire, greeting, caller, client } = greeted;
    let state = Rc::new(ConnectionState {
        directory: Directory::of(&front.source, &client),
        room,
        front,
        guest,
        caller,
        number: next_token(),
        is_tls: client.tls.is_some(),
        is_suspect,
        gauge,
        visit,
        said: Said::default(),
        own_call: RefCell::default(),
        is_attentive: Cell::new(false),
        is_draining: Cell::new(false),
        is_stopped: Cell::new(false),
        is_told: Cell::new(false),
        waiting: RefCell::default(),
        held: RefCell::default(),
    });
    Some(Opened { state, wire, greeting, client })
}

/// Learns who comes, and hears the client when others of its address have had their turn.
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
    // In a box, so that those that wait are small.
    let greeted = Box::pin(greet(front, arrival, received, guest.peer, &met.gauge)).await?;
    Some((met, greeted))
}

/// Asks a trusted proxy for whom it comes, if it is one that says so; before anything else is read.
async fn introduce(front: &Front, arrival: &mut Arrival) -> Option<Guest> {
    let (proxies, proxy) = (&front.config.proxies, arrival.peer);
    if !proxies.has_headers || !proxies.trusts(proxy.ip()) {
        return Some(Guest::new(proxies, proxy));
    }
    // In a box, since few have one and it holds the longest header.
    let header = Box::pin(proxy_header::read(&mut arrival.stream));
    let Ok(client) = within(front, async { Some(header.await) }).await? else {
        front.counters.proxy_headers_malformed.count();
        return None;
    };
    Some(Guest::new(proxies, client.unwrap_or(proxy)))
}

/// How long a new connection waits before anything of it is read, for what others of its address
/// have done.
fn time_to_wait(visit: &Visit, is_suspect: bool) -> Option<Duration> {
    let in_line = visit.wait(Instant::now());
    in_line.max(is_suspect.then_some(WAIT))
}

/// `None`: the client did not wait so long.
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

/// Hears the client, and waits for its turn before each step that costs much.
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
            within(front, async { stream.readable().await.ok() }).await?;
            pass(turnstile::TLS).await;
            let stream = CountedTcp::new(stream, received.clone());
            Box::pin(handshake::accept(front, &tls, stream)).await?
        }
    };
    let peer = Peer::Tcp(peer);
    let caller = Caller::of(&stream, peer.clone());
    let client = Remote::of(peer, &stream);
    let (greeting, first) = match stream.negotiated() {
        Some(ALPN_HTTP2) => (Greeting::Http2, Bytes::new()),
        _ => within(front, sniff(&mut stream)).await?,
    };
    pass(turnstile::GREETING).await;
    let wire = Wire::new(stream, first, gauge, count, greeting == Greeting::Http2);
    Some(Greeted { wire, greeting, caller, client })
}

/// `None` also when the client takes too long.
pub(super) async fn within<T>(front: &Front, step: impl Future<Output = Option<T>>) -> Option<T> {
    let Ok(outcome) = timeout(front.limits().header_timeout, step).await else {
        front.counters.header_timeouts.count();
        return None;
    };
    outcome
}

/// Reads until it is clear who speaks, and no further; `None` when the peer says nothing.
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

// === impl Guest ===

impl Guest {
    fn new(proxies: &Proxies, peer: SocketAddr) -> Self {
        Self { peer, is_proxy: proxies.trusts(peer.ip()) }
    }

    /// What others at the same address are counted with; `None`: behind it are strangers to each other.
    fn counted(self) -> Option<IpAddr> {
        (!self.is_proxy).then(|| self.peer.ip())
    }
}

// === impl Met ===

impl Met {
    fn new(front: &Arc<Front>, guest: Guest, is_tls: bool) -> Self {
        let counted = guest.counted();
        let is_suspect = counted.is_some_and(|each| front.offenders.has(each, Instant::now()));
        let visit = Visit::new(front, counted, is_tls);
        Self { guest, visit, is_suspect, gauge: Gauge::new(is_suspect) }
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Who makes a request: the client, or that which a trusted proxy names in its head.
    pub(super) fn client(&self, headers: &HeaderMap) -> Client {
        let own = Client { peer: self.guest.peer, is_tls: self.is_tls };
        if !self.guest.is_proxy {
            return own;
        }
        named_client(headers, own, &self.front.config.proxies)
    }

    /// Lets go of `sender` with the last call.
    pub(super) fn hold(&self, sender: oneshot::Sender<()>) {
        self.held.replace(Some(sender));
    }

    /// Who has sent these headers.
    pub(super) fn asker(&self, headers: &HeaderMap) -> Asker<'_> {
        Asker::new(self.front.config.access.as_deref(), &self.caller, headers)
    }

    /// The client asks for something.
    pub(crate) fn on_request(&self) {
        self.visit.on_request();
    }

    /// The connection has to be ended for what came over it.
    pub(super) fn on_offence(&self, offence: Offence) {
        if let Some(address) = self.guest.counted() {
            self.front.offenders.add(address, offence, Instant::now());
        }
    }

    /// Its part in the memory of connections that rest.
    pub(super) fn rest(&self, speech: Speech) -> Rest {
        Rest::new(Rc::clone(&self.room), speech, self.is_tls)
    }

    /// As `rest`, for HTTP/2.
    pub(crate) fn rest_http2(&self) -> Rest {
        self.rest(Speech::Http2)
    }

    /// To be called when the connection's task is polled.
    pub(crate) fn begin_turn(&self) {
        self.gauge.begin_turn();
    }

    /// A call is at work that was not taken back at once.
    pub(crate) fn earn_by_call(&self) {
        self.gauge.earn(CALL_POINTS);
    }

    /// A call is refused for who makes it: as much use as a PING.
    pub(crate) fn on_refusal(&self) {
        self.gauge.waste(IDLE_POINTS);
    }

    /// A piece of an answer goes out.
    pub(crate) fn earn_by_answer(&self, bytes: usize) {
        self.gauge.earn_by_answer(bytes);
    }

    /// Whether the client floods us, and is to be told so; true once.
    pub(crate) fn is_flood(&self) -> bool {
        if self.is_told.get() || !self.gauge.is_too_much() {
            return false;
        }
        self.is_told.set(true);
        self.front.counters.floods.count();
        self.on_offence(Offence::Flood);
        true
    }

    /// No further request is wanted.
    pub(crate) fn drain(&self) {
        self.is_draining.set(true);
    }

    /// Ends all calls.
    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
        for (_, waker) in &*self.waiting.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// One call's ear for the end of the front.
#[derive(Debug)]
pub(super) struct StopListener {
    connection: Rc<ConnectionState>,
    /// Our place among the waiting tasks; taken when the call waits for the first time.
    place: Cell<Option<usize>>,
}

impl StopListener {
    pub(super) fn new(connection: &Rc<ConnectionState>) -> Self {
        Self { connection: Rc::clone(connection), place: Cell::new(None) }
    }
}

impl Stop for StopListener {
    fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.connection.is_stopped.get() {
            let text = format!("{} is shutting down", self.connection.directory.owner());
            return Poll::Ready(Status::new(Code::Unavailable, text));
        }
        let mut waiting = self.connection.waiting.borrow_mut();
        match self.place.get().and_then(|place| waiting.get_mut(place)) {
            // Another one since the call has moved from its connection's task to its own.
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.place.set(Some(waiting.insert(cx.waker().clone()))),
        }
        Poll::Pending
    }
}

impl Drop for StopListener {
    fn drop(&mut self) {
        if let Some(place) = self.place.get() {
            self.connection.waiting.borrow_mut().remove(place);
        }
    }
}
