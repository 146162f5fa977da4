//! One HTTP/2 client connection and the task that drives it. It lives on one I/O thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Version, request};
use router_protocol::grpc::CONTENT_TYPE_GRPC;
use router_protocol::mesh::relay::is_small;
use router_protocol::names::RELAY_PATH;
use router_protocol::windows::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer::Answering;
use super::liveness::{Liveness, LivenessConfig, Verdict};
use super::relay::{self, Relay};
use super::stopwatch::Stopwatch;

/// Streams that may start before the peer has said its own limit.
const STREAMS_INITIAL: usize = 1024;

/// Trailers carry at most what a server may set with the default metadata limits, and its status.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Cancelled calls whose late frames are recognised for a second; as many as a server of ours
/// lets be open at once.
const RESET_STREAMS_MAX: usize = 4096;

/// Tells that a peer gives no sign of life; called within the connection's `LocalRuntime`.
pub type OnSilence = Box<dyn Fn()>;

/// A connection that takes calls until it closes.
#[derive(Debug)]
pub struct Connection {
    /// `None` once no new call may start.
    sender: RefCell<Option<SendRequest<Bytes>>>,
    state: Rc<State>,
    /// The peer proved nothing, but we did: it honours mesh metadata and we its load trailers.
    trusted: Cell<bool>,
    /// The longest head that the peer takes by a relay; 0: it has none.
    relayed_head_bytes_max: Cell<usize>,
    /// Begun with the first call for it.
    relay: RefCell<Option<Rc<Relay>>>,
    /// As grpc writes it, for example `ipv4:127.0.0.1:1234`.
    peer: Arc<str>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: Cell<u32>,
    /// Reads that brought something.
    received: Cell<u64>,
    /// Why the connection ended; `None` while it lives.
    ended: watch::Sender<Option<String>>,
}

/// A started request. The connection counts it until this is dropped.
#[derive(Debug)]
pub struct Started {
    pub response: Answering,
    /// Where the body goes; `None`: all of it went with the head.
    pub body: Option<SendStream<Bytes>>,
    pub permit: Permit,
}

/// Counts one call of a connection.
#[derive(Debug)]
pub struct Permit {
    connection: Rc<Connection>,
}

impl Permit {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let in_flight = &self.connection.state.in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

impl Connection {
    /// Speaks HTTP/2 over `io` and spawns the task that drives it on this thread.
    ///
    /// `on_silence` is told when a PING goes unanswered for a while, some time before the connection
    /// is given up.
    ///
    /// # Errors
    /// What the peer did to the preface or to the settings.
    pub async fn open<S>(
        io: S,
        peer: String,
        config: LivenessConfig,
        on_silence: Option<OnSilence>,
    ) -> Result<Rc<Self>, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let state = Rc::new(State::default());
        let stopwatch = Stopwatch::new();
        let io = Observed { io, state: Rc::clone(&state), stopwatch };
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_INITIAL)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            // What the peer had sent when a call was cancelled arrives after the reset. h2 counts
            // such frames of streams that it has forgotten as errors, and ends the connection
            // with all its other calls at the 1 024th; the server was chosen, so none counts.
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake(io)
            .await?;
        let opened = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            state,
            trusted: Cell::new(false),
            relayed_head_bytes_max: Cell::new(0),
            relay: RefCell::default(),
            peer: peer.into(),
        });
        tokio::task::spawn_local(drive(
            connection,
            Rc::downgrade(&opened),
            Rc::clone(&opened.state),
            (config, on_silence),
        ));
        Ok(opened)
    }

    /// Starts a request; the body follows unless `end`.
    ///
    /// # Errors
    /// The connection takes no more requests; this one was not sent.
    pub fn start(self: &Rc<Self>, request: Request<()>, end: bool) -> Result<Started, String> {
        let mut slot = self.sender.borrow_mut();
        let Some(sender) = slot.as_mut() else {
            let retired = || "the connection takes no more calls".to_owned();
            return Err(self.end_reason().unwrap_or_else(retired));
        };
        // The clone starts without memory of earlier streams that wait for the peer's limit.
        match sender.clone().send_request(request, end) {
            Ok((response, body)) => {
                let response = Answering::Stream(response);
                Ok(Started { response, body: Some(body), permit: self.permit() })
            }
            Err(error) => {
                drop(slot);
                self.retire();
                Err(error.to_string())
            }
        }
    }

    fn permit(self: &Rc<Self>) -> Permit {
        self.state.in_flight.set(self.state.in_flight.get() + 1);
        Permit { connection: Rc::clone(self) }
    }

    /// The peer has offered a relay.
    pub fn has_relay(&self) -> bool {
        self.relayed_head_bytes_max.get() > 0
    }

    /// Whether a call with such a head would find a relay here. Heads are as long as HTTP/2 counts
    /// them, as the peer's limit is.
    fn may_relay(&self, head: &request::Parts) -> bool {
        let bytes_max = self.relayed_head_bytes_max.get();
        self.is_open()
            // The relay has as many places as the peer allows streams; what is more has a stream, so
            // a connection carries up to twice as many calls.
            && (self.in_flight() as usize) < self.streams_max()
            && relay::head_bytes(head) <= bytes_max
    }

    /// Starts a call whose `body` is complete by the connection's relay; `None` if it has to go by
    /// [`Connection::start`].
    pub fn start_relayed(
        self: &Rc<Self>,
        head: &request::Parts,
        body: &[Bytes],
    ) -> Option<Started> {
        if !self.may_relay(head) || !is_small(body) {
            return None;
        }
        let mut relay = self.relay.borrow_mut();
        if relay.is_none() {
            *relay = Some(self.open_relay()?);
        }
        let response = Answering::Relay(relay.as_ref()?.call(head, body)?);
        Some(Started { response, body: None, permit: self.permit() })
    }

    fn open_relay(&self) -> Option<Rc<Relay>> {
        let request = post(RELAY_PATH).body(()).expect("invariant: constants make a request");
        // Where no stream begins, the call itself finds out why.
        let (response, sending) = self.start_aside(request).ok()?;
        Some(Relay::start(response, sending))
    }

    /// Starts a request that is no call, and whose body may go on: it does not count, so it neither
    /// keeps the connection from being idle nor makes it ask for signs of life.
    ///
    /// # Errors
    /// As [`Connection::start`].
    pub fn start_aside(
        &self,
        request: Request<()>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
        let slot = self.sender.borrow();
        let sender = slot.as_ref().ok_or("the connection takes no more calls")?;
        sender.clone().send_request(request, false).map_err(|error| error.to_string())
    }

    /// Takes no more calls; those in flight go on, then the connection closes.
    pub fn retire(&self) {
        self.sender.borrow_mut().take();
        if let Some(relay) = &*self.relay.borrow() {
            relay.close();
        }
    }

    /// Whether a new call may start here.
    pub fn is_open(&self) -> bool {
        self.sender.borrow().is_some()
    }

    pub fn in_flight(&self) -> u32 {
        self.state.in_flight.get()
    }

    /// How many streams the peer allows at once.
    pub fn streams_max(&self) -> usize {
        self.sender.borrow().as_ref().map_or(0, SendRequest::current_max_send_streams)
    }

    pub fn is_trusted(&self) -> bool {
        self.trusted.get()
    }

    pub fn trust(&self) {
        self.trusted.set(true);
    }

    /// The peer takes calls with heads up to this by a relay.
    pub fn offer_relay(&self, head_bytes_max: usize) {
        self.relayed_head_bytes_max.set(head_bytes_max);
    }

    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Ends when the connection has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + 'static {
        let mut ended = self.state.ended.subscribe();
        // An error means that the connection's task is gone, which is an end too.
        async move { drop(ended.wait_for(Option::is_some).await) }
    }

    /// Why the connection ended; `None` while it lives.
    pub fn end_reason(&self) -> Option<String> {
        self.state.ended.borrow().clone()
    }
}

/// Drives the connection until it ends, and marks it ended.
async fn drive<S>(
    mut h2: h2::client::Connection<Observed<S>, Bytes>,
    connection: Weak<Connection>,
    state: Rc<State>,
    (config, on_silence): (LivenessConfig, Option<OnSilence>),
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut watch = Watch::new(config, h2.ping_pong(), on_silence);
    let why = poll_fn(|cx| {
        if let Poll::Ready(end) = Pin::new(&mut h2).poll_end(cx) {
            return Poll::Ready(end);
        }
        watch.poll(&connection, &state, cx).map(ToOwned::to_owned)
    })
    .await;
    if let Some(connection) = connection.upgrade() {
        connection.retire();
    }
    state.ended.send_replace(Some(why));
}

/// Gives the connection's end as a sentence.
trait PollEnd {
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String>;
}

impl<S: AsyncRead + AsyncWrite + Unpin> PollEnd for h2::client::Connection<S, Bytes> {
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        Poll::Ready(match ready!(Future::poll(self, cx)) {
            Ok(()) => "the peer closed the connection".to_owned(),
            Err(error) => error.to_string(),
        })
    }
}

/// The thin driver of [`Liveness`].
struct Watch {
    liveness: Liveness,
    timer: Pin<Box<Sleep>>,
    ping_pong: Option<PingPong>,
    on_silence: Option<OnSilence>,
}

impl Watch {
    fn new(
        config: LivenessConfig,
        ping_pong: Option<PingPong>,
        on_silence: Option<OnSilence>,
    ) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now + config.idle));
        Self { liveness: Liveness::new(config, now), timer, ping_pong, on_silence }
    }

    /// Ready when the connection must be given up, with the reason.
    fn poll(
        &mut self,
        connection: &Weak<Connection>,
        state: &State,
        cx: &mut Context<'_>,
    ) -> Poll<&'static str> {
        let received = state.received.get();
        let in_flight = state.in_flight.get();
        if in_flight > 0 && self.liveness.is_idle() {
            self.timer.as_mut().reset(self.liveness.on_busy(received, Instant::now()));
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            match self.liveness.on_timer(received, in_flight, Instant::now()) {
                Verdict::Wait(until) => self.timer.as_mut().reset(until),
                Verdict::Ping(until) => {
                    self.ping(cx);
                    self.timer.as_mut().reset(until);
                }
                Verdict::Silent(until) => {
                    if let Some(on_silence) = &self.on_silence {
                        on_silence();
                    }
                    self.timer.as_mut().reset(until);
                }
                Verdict::Dead => {
                    return Poll::Ready("the peer gave no sign of life: it did not answer a PING");
                }
                Verdict::Idle => {
                    // Without senders and streams the connection says GOAWAY and ends by itself.
                    if let Some(connection) = connection.upgrade() {
                        connection.retire();
                    }
                    self.timer.as_mut().reset(Instant::now() + IDLE_CLOSE);
                }
            }
        }
    }

    fn ping(&mut self, cx: &mut Context<'_>) {
        if let Some(ping_pong) = &mut self.ping_pong {
            // Takes the answer of the PING before this one, without which no other may be sent.
            // What counts as a sign of life are the bytes, so its value says nothing new.
            let _answer_or_not_yet = ping_pong.poll_pong(cx);
            // An error means that the last PING is still under way or that the connection ends:
            // the silence after it is judged all the same.
            let _asked_or_ending = ping_pong.send_ping(Ping::opaque());
        }
    }
}

/// A peer that neither reads nor closes after our GOAWAY is looked at again after so long.
const IDLE_CLOSE: std::time::Duration = std::time::Duration::from_secs(300);

/// Counts the reads that bring something.
#[derive(Debug)]
struct Observed<S> {
    io: S,
    state: Rc<State>,
    stopwatch: Stopwatch,
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.stopwatch.on_read(&buffer.filled()[before..]);
            self.state.received.set(self.state.received.get() + 1);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.stopwatch.on_written(&[io::IoSlice::new(bytes)], written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.stopwatch.on_written(slices, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
/// What is between two processes of the mesh goes to a path alone: there is no host to name.
pub(super) fn post(path: &'static str) -> request::Builder {
    let request = Request::builder().method(Method::POST).uri(path).version(Version::HTTP_11);
    request.header(CONTENT_TYPE, CONTENT_TYPE_GRPC)
}
