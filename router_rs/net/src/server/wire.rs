//! The server's end of the wire: the greeting, and the driver of a connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use router_arena::Arena;
use router_io::MayBeUnix;
use router_protocol::grpc::{Framed, Message};
use router_protocol::mesh::proof::{nonce, replica_proof, verify};
use router_protocol::names;
use router_upstream::frame_stream::{FrameStream, MemoryRest};
use router_wire::greeting::{HELLO_BYTES, OTHER_VERSION, Welcome, read_hello, welcome};
use router_wire::{Called, Session, Side, head_bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::admit::{Body, admit_call, admit_http};
use super::connection_state::ConnectionState;
use super::life::Life;
use super::load;
use super::request_body::Incoming;
use super::sink::Respond;
use super::state::ServerConfig;
use super::wire_call::{Shared, WireReply, WireRequestBody};

/// How long a client may take to close after the last frame. Arbitrary: it has announced that it
/// closes.
const LINGER_TIME: Duration = Duration::from_secs(5);

/// The peer has not proven that it is a member of the mesh.
#[derive(Debug)]
pub(super) struct Stranger;

impl From<io::Error> for Stranger {
    fn from(_: io::Error) -> Self {
        Stranger
    }
}

/// Proves that the server is a member of the mesh, and requires the same proof of the client. Returns
/// the memory that the client shares.
///
/// `begun`: the first byte received.
pub(super) async fn greet<S: AsyncRead + AsyncWrite + MayBeUnix + Unpin>(
    config: &ServerConfig,
    begun: u8,
    stream: &mut S,
) -> Result<Option<Arena>, Stranger> {
    let mut hello = [0; HELLO_BYTES];
    hello[0] = begun;
    stream.read_exact(&mut hello[1..]).await?;
    let Some(asked) = read_hello(&hello) else {
        stream.write_all(&OTHER_VERSION).await?;
        stream.flush().await?;
        return Err(Stranger);
    };
    let nonce = nonce().ok_or(Stranger)?;
    let shown = replica_proof(&config.token, asked, &config.replica_id).ok_or(Stranger)?;
    let replica_id = config.replica_id.clone();
    let said = Welcome { replica_id, nonce: nonce.clone(), proof: shown };
    stream.write_all(&welcome(&said).ok_or(Stranger)?).await?;
    stream.flush().await?;
    let mut claim = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut claim).await?;
    let claim = std::str::from_utf8(&claim).map_err(|_| Stranger)?;
    if !verify(&config.token, &nonce, &config.replica_id, claim) {
        return Err(Stranger);
    }
    let Some(unix) = stream.as_unix() else {
        let _has_none = stream.read_u8().await?;
        return Ok(None);
    };
    let (_, descriptor) = unix.receive_descriptor().await?;
    // If it is not mapped, bodies go over the socket.
    let descriptor = descriptor.filter(|_| config.maps_arenas);
    Ok(descriptor.and_then(|descriptor| Arena::open(&descriptor).ok()))
}

/// Serves a member of the mesh until its connection ends.
pub(super) async fn serve<S>(
    (stream, arena): (S, Option<Arena>),
    state: Rc<ConnectionState>,
    life: Life,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let session: Shared = Rc::new(RefCell::new(Session::with_arena(Side::Server, arena)));
    let (frames, memory) = (FrameStream::new(stream), MemoryRest::default());
    let mut driver = WireDriver { frames, session, state, life, memory };
    let ended = poll_fn(|context| driver.poll(context)).await;
    driver.session.borrow_mut().lose();
    // If the connection failed, the client notices by itself.
    if ended.is_ok() {
        let _gone_or_slow = timeout(LINGER_TIME, poll_fn(|cx| driver.poll_close(cx))).await;
    }
}

struct WireDriver<S> {
    frames: FrameStream<S>,
    session: Shared,
    state: Rc<ConnectionState>,
    life: Life,
    memory: MemoryRest,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WireDriver<S> {
    /// Ready when the connection is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.borrow_mut().begin_turn();
        if self.life.poll_end(context) {
            self.session.borrow_mut().say_last();
        }
        loop {
            let is_full = self.session.borrow().is_full();
            if !is_full && self.poll_read(context)?.is_ready() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let mut session = self.session.borrow_mut();
            let is_written = self.frames.poll_write(session.outgoing(), context)?.is_ready();
            if session.is_over() {
                return Poll::Ready(Ok(()));
            }
            if !is_full || !is_written {
                self.memory.poll(&mut session, context);
                session.wait(context);
                return Poll::Pending;
            }
        }
    }

    /// Announces the end of our side, then reads on until the client closes. Closing with frames
    /// unread (about answers that the client already has) would reset the connection and cut off
    /// other answers.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.frames.poll_shutdown(context))?;
        self.frames.poll_discard(context)
    }

    /// Ready at the end of the input.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (session, state) = (&self.session, &self.state);
        let take = |frame| {
            let called = session.borrow_mut().on_frame(frame)?;
            if let Some(called) = called {
                admit(session, state, called);
            }
            Ok(())
        };
        self.frames.poll_read(take, context)
    }
}

impl<S> Drop for WireDriver<S> {
    /// Also after a panic: calls without a driver must not wait.
    fn drop(&mut self) {
        if let Ok(mut session) = self.session.try_borrow_mut() {
            session.lose();
        }
    }
}

/// Routers have checked the method and the content type.
fn admit(session: &Shared, state: &Rc<ConnectionState>, called: Called) {
    let Called { id, head, body } = called;
    let respond = Respond::Wire(WireReply::new(session, id));
    let follows = || Incoming::Wire(WireRequestBody::new(session, id));
    if head_bytes(&head) > state.server.config.metadata_bytes_max as usize {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return respond.send_whole(response, Framed::raw(Message::default()), HeaderMap::new());
    }
    if head.uri.path() == names::LOAD_PATH {
        return load::answer(state, &head, follows(), respond);
    }
    state.server.counters.wire_calls.fetch_add(1, Ordering::Relaxed);
    let body = body.map_or_else(|| Body::Comes(follows()), Body::Whole);
    if head.headers.contains_key(names::HTTP) {
        admit_http(state, head, body, respond);
    } else {
        admit_call(state, head, body, respond);
    }
}
