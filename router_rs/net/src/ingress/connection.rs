//! The task of one client connection: greets, accepts calls, drains.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use http::HeaderMap;
use slab::Slab;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::access::Caller;
use super::admit::admit;
use super::state::{ConnectionCount, IngressState};
use crate::dispatch::TableReader;
use crate::dispatch::exchange::Stop;
use crate::grpc::{Code, Status};
use crate::io::tls::ServerTls;
use crate::io::{Peer, Stream};
use crate::server::Phase;
use crate::windows::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};

/// A peer gets this long for its TLS and HTTP/2 greetings. Arbitrary.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls that one connection may have open.
const STREAMS_MAX: u32 = 1024;

/// As hyper's server and, roughly, what gRPC servers allow as metadata.
const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;

/// Calls that a client may reset before we have looked at them. All that may be open, because a
/// client that cancels everything at once is no attacker; one that goes on (rapid reset) is.
const UNSEEN_RESETS_MAX: usize = STREAMS_MAX as usize;

/// What h2 may charge for the small DATA frames that wait to be read: about 256 bytes each, so
/// this is 128 K frames. A flood of one-byte frames ends the connection there.
const SMALL_FRAMES_BUDGET_BYTES: usize = 32 << 20;

/// Every HTTP/2 client begins with it (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain\r\ncontent-length: 65\r\nconnection: close\r\n\r\n\
    this port speaks gRPC: use HTTP/2 with prior knowledge (or ALPN)\n";

/// What the calls of a connection share. It lives on one thread.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub ingress: Arc<IngressState>,
    pub table: TableReader,
    pub caller: Caller,
    is_stopped: Cell<bool>,
    /// The tasks of calls that wait for something.
    waiting: RefCell<Slab<Waker>>,
}

/// Serves a fresh connection until it ends.
pub(super) async fn serve(
    ingress: Arc<IngressState>,
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    phase: watch::Receiver<Phase>,
) {
    let _count = ConnectionCount::new(&ingress);
    // Whatever goes wrong before the first request, there is nobody to tell it to.
    let greeting = timeout(GREETING_TIMEOUT, greet(stream, tls));
    let Ok(Some((connection, caller))) = greeting.await else { return };
    let state = Rc::new(ConnectionState {
        table: TableReader::new(Arc::clone(&ingress.table)),
        ingress,
        caller,
        is_stopped: Cell::new(false),
        waiting: RefCell::default(),
    });
    Driver::new(connection, state, phase).await;
}

async fn greet(
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
) -> Option<(Connection<Stream, Bytes>, Caller)> {
    let peer = Peer::Tcp(stream.peer_addr().ok()?);
    let stream = match tls {
        Some(tls) => {
            let acceptor = TlsAcceptor::from(tls.current());
            Stream::Tls(Box::new(acceptor.accept(stream).await.ok()?.into()))
        }
        None => Stream::Tcp(refuse_http1(stream).await?),
    };
    let caller = Caller::of(&stream, peer);
    Some((settings().handshake(stream).await.ok()?, caller))
}

/// Answers an HTTP/1 client; `None` then, and when the peer says nothing.
async fn refuse_http1(mut stream: TcpStream) -> Option<TcpStream> {
    let mut first = [0; PREFACE.len()];
    let length = stream.peek(&mut first).await.ok()?;
    if length > 0 && PREFACE.starts_with(&first[..length]) {
        return Some(stream);
    }
    if first[..length].first().is_some_and(u8::is_ascii_uppercase) {
        stream.write_all(HTTP1_ANSWER).await.ok()?;
        stream.shutdown().await.ok()?;
    }
    None
}

fn settings() -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        // As in `server`: what was on its way to calls that ended here is not held against the
        // connection's other calls.
        .max_concurrent_reset_streams(STREAMS_MAX as usize)
        .data_frame_budget(SMALL_FRAMES_BUDGET_BYTES);
    builder
}

type PhaseChange = Pin<Box<dyn Future<Output = (Phase, watch::Receiver<Phase>)>>>;

/// Polls the connection and the ingress's phase.
struct Driver {
    connection: Connection<Stream, Bytes>,
    state: Rc<ConnectionState>,
    change: PhaseChange,
    current: Phase,
}

impl Driver {
    fn new(
        connection: Connection<Stream, Bytes>,
        state: Rc<ConnectionState>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let change = Box::pin(next_phase(phase, Phase::Serving));
        Self { connection, state, change, current: Phase::Serving }
    }

    fn enter(&mut self, phase: Phase) {
        if self.current == Phase::Serving {
            self.connection.graceful_shutdown();
        }
        if phase == Phase::Stopped {
            self.state.stop();
        }
        self.current = phase;
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        while let Poll::Ready((phase, receiver)) = this.change.as_mut().poll(cx) {
            this.enter(phase);
            this.change = Box::pin(next_phase(receiver, phase));
        }
        loop {
            match this.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => admit(&this.state, request, respond),
                // Dropping the connection tells its calls.
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Waits for a phase later than `current`; for ever after the last one.
async fn next_phase(
    mut receiver: watch::Receiver<Phase>,
    current: Phase,
) -> (Phase, watch::Receiver<Phase>) {
    let next = receiver.wait_for(|phase| *phase > current).await.map(|phase| *phase);
    match next {
        Ok(phase) => (phase, receiver),
        // The ingress object is gone.
        Err(_) if current < Phase::Stopped => (Phase::Stopped, receiver),
        Err(_) => std::future::pending().await,
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Whether the rules let this connection's client make the request.
    ///
    /// # Errors
    /// As `Access::check`.
    pub(super) fn check_access(&self, path: &str, headers: &HeaderMap) -> Result<(), Status> {
        match &self.ingress.access {
            Some(access) => access.check(&self.caller, path, headers),
            None => Ok(()),
        }
    }

    fn stop(&self) {
        self.is_stopped.set(true);
        for (_, waker) in &*self.waiting.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// One call's ear for the end of the ingress.
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
            return Poll::Ready(Status::new(Code::Unavailable, "the ingress is shutting down"));
        }
        if self.place.get().is_none() {
            // A call keeps its task, so its waker stays good.
            let place = self.connection.waiting.borrow_mut().insert(cx.waker().clone());
            self.place.set(Some(place));
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
