//! The task of one connection: accepts calls, keeps the connection alive, drains it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use router_arena::Arena;
use router_front::{ADMITTED_PER_TURN_MAX, IdleTracker, Word, is_over, on_http2_error, restrain};
use router_io::phase::Phase;
use router_io::{MayBeUnix, Replayed, poll_others_first};
use router_protocol::grpc::Framed;
use router_protocol::windows::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};
use router_wire::greeting::MAGIC;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection_state::{ConnectionState, Guest, Host};
use super::life::Life;
use super::served_call::ConnectionInfo;
use super::state::{ServerConfig, ServerState};
use super::{request, wire};

/// A peer gets this long for its TLS and HTTP/2 greetings. Arbitrary; hyper waits 30 s for the
/// whole request head.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Space that a door of this process adds to a head: names and values of the mesh, a route prefix.
const INNER_HEADERS_BYTES: u32 = 16 << 10;

/// Serves a fresh connection until it ends.
pub(super) async fn serve<S>(host: Host, stream: S, mut info: ConnectionInfo, guest: Option<Guest>)
where
    S: AsyncRead + AsyncWrite + MayBeUnix + Unpin,
{
    let server = &host.server;
    let _count = (!info.is_inner).then(|| server.count_connection());
    info.is_outside = server.config.token.is_empty() && !info.is_inner;
    let deadline = Instant::now() + GREETING_TIMEOUT;
    if guest.is_some() || info.is_inner || !server.config.is_of_mesh() {
        return serve_http2(host, stream, info, guest, deadline).await;
    }
    match timeout_at(deadline, greet(&server.config, stream)).await {
        Ok(Some(Greeted::Wire(shared))) => {
            info.trust();
            let (state, phase) = (host.state(info, None), host.phase.clone());
            wire::serve(shared, Rc::clone(&state), Life::new(state, phase)).await;
        }
        Ok(Some(Greeted::Http2(stream))) => {
            serve_http2(host, stream, info, None, deadline).await;
        }
        Ok(None) | Err(_) => {}
    }
}

/// The protocol of a peer at a port for members.
enum Greeted<S> {
    /// It has proven itself.
    Wire((S, Option<Arena>)),
    Http2(Replayed<S>),
}

/// `None`: the peer is gone, or must be disconnected.
async fn greet<S>(config: &ServerConfig, mut stream: S) -> Option<Greeted<S>>
where
    S: AsyncRead + AsyncWrite + MayBeUnix + Unpin,
{
    let first = stream.read_u8().await.ok()?;
    if first != MAGIC[0] {
        return Some(Greeted::Http2(Replayed::new(Bytes::copy_from_slice(&[first]), stream)));
    }
    let arena = wire::greet(config, first, &mut stream).await.ok()?;
    Some(Greeted::Wire((stream, arena)))
}

async fn serve_http2<S>(
    host: Host,
    stream: S,
    info: ConnectionInfo,
    guest: Option<Guest>,
    deadline: Instant,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut settings = settings(&host.server, &info);
    if let Some(guest) = &guest {
        restrain(&mut settings, &guest.front, host.server.config.concurrent_streams_max);
        if guest.has_doors {
            // WebSocket over HTTP/2 (RFC 8441).
            settings.enable_connect_protocol();
        }
    }
    let greeting = timeout_at(deadline, settings.handshake(stream));
    let greeted = match &guest {
        Some(guest) => guest.front.idle_tracker_http2().during(|| 0, greeting).await,
        None => Some(greeting.await),
    };
    let Some(Ok(Ok(connection))) = greeted else { return };
    let (state, phase) = (host.state(info, guest), host.phase.clone());
    Driver::new(connection, state, phase).await;
}

fn settings(server: &ServerState, info: &ConnectionInfo) -> Builder {
    let config = &server.config;
    // The door that forwarded an inner call has already checked its size, and has added to the
    // head.
    let own_bytes = if info.is_inner { INNER_HEADERS_BYTES } else { 0 };
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(config.concurrent_streams_max)
        .max_pending_accept_reset_streams(unseen_resets_max(config))
        // A refused or late call is reset while its body may still arrive. h2 tolerates frames of
        // the streams that it remembers; its own bound is 50.
        .max_concurrent_reset_streams(config.concurrent_streams_max as usize)
        .max_header_list_size(config.metadata_bytes_max.saturating_add(own_bytes));
    builder
}

/// How many calls may be reset before they are looked at; one more ends the connection.
fn unseen_resets_max(config: &ServerConfig) -> usize {
    if config.token.is_empty() {
        // h2's own bound is 20, but a client that cancels everything at once is not an attacker.
        config.concurrent_streams_max as usize
    } else {
        // In a mesh one connection of a router carries the calls of many clients, so the resets
        // of one must not end it. What one turn can read bounds their number.
        usize::MAX
    }
}

/// Polls the connection, its life and the keepalive.
struct Driver<S> {
    connection: Connection<S, Framed>,
    state: Rc<ConnectionState>,
    life: Life,
    keepalive: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// `None`: it may stay idle indefinitely.
    idle_tracker: Option<IdleTracker>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    fn new(
        mut connection: Connection<S, Framed>,
        state: Rc<ConnectionState>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let config = &state.server.config;
        let keepalive = config.keepalive.zip(connection.ping_pong()).map(|(times, pings)| {
            let future: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(keep_alive(pings, times.time, times.timeout));
            future
        });
        let idle_tracker = state.guest.as_ref().map(|guest| guest.front.idle_tracker_http2());
        let life = Life::new(Rc::clone(&state), phase);
        Self { connection, state, life, keepalive, idle_tracker }
    }

    /// Takes a call, or any other request of a guest.
    fn admit(&mut self, request: Request<RecvStream>, respond: SendResponse<Framed>) {
        if let Some(guest) = &self.state.guest {
            guest.front.on_request();
        }
        self.idle_tracker.iter_mut().for_each(IdleTracker::leave);
        request::take(&self.state, request, respond);
    }

    /// Whether a guest floods us. If so, it has been notified.
    fn is_flood(&mut self) -> bool {
        let is_flood = self.state.guest.as_ref().is_some_and(|guest| guest.front.is_flood());
        if is_flood {
            self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        is_flood
    }

    /// Whether it has been without calls for too long. If so, the client has been notified.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> bool {
        let is_idle = self.life.poll_idle(self.connection.has_streams(), context);
        if is_idle {
            self.connection.graceful_shutdown();
        }
        is_idle
    }

    /// Like `IdleTracker::look`.
    fn look_at_idle(&mut self, context: &Context<'_>) -> Option<Word> {
        let idle_tracker = self.idle_tracker.as_mut()?;
        idle_tracker.look(!self.connection.has_streams(), context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.life.poll_end(context) {
            this.connection.graceful_shutdown();
        }
        if this
            .keepalive
            .as_mut()
            .is_some_and(|keepalive| keepalive.as_mut().poll(context).is_ready())
        {
            return Poll::Ready(()); // the peer is silent: dropping the socket ends its calls
        }
        let mut admitted_max = usize::MAX;
        if let Some(guest) = &this.state.guest {
            guest.front.begin_turn();
            admitted_max = ADMITTED_PER_TURN_MAX;
        }
        let mut admitted = 0;
        while admitted < admitted_max {
            match this.connection.poll_accept(context) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    admitted += 1;
                    this.admit(request, respond);
                }
                Poll::Ready(Some(Err(error))) => {
                    this.state.guest.iter().for_each(|guest| on_http2_error(&guest.front, &error));
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if this.is_flood() => {}
                Poll::Pending if this.poll_idle(context) => {}
                Poll::Pending => match this.look_at_idle(context) {
                    None => return Poll::Pending,
                    Some(word) if is_over(&mut this.connection, word, context) => {
                        return Poll::Ready(());
                    }
                    Some(_) => {}
                },
            }
        }
        poll_others_first(context);
        Poll::Pending
    }
}

/// Ends when a ping stays unanswered for `patience`.
async fn keep_alive(mut pings: h2::PingPong, period: Duration, patience: Duration) {
    loop {
        sleep(period).await;
        if pings.send_ping(h2::Ping::opaque()).is_err() {
            return;
        }
        match timeout(patience, poll_fn(|context| pings.poll_pong(context))).await {
            Ok(Ok(_)) => {}
            _ => return,
        }
    }
}
