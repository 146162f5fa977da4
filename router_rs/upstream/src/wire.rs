//! The client's end of the wire: the greeting, the driver of the connection, and its calls.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Response, request};
use router_arena::Arena;
use router_io::{MayBeUnix, Stream};
use router_protocol::mesh::proof::{nonce, proof, verify_replica};
use router_wire::greeting::{
    ARENA, NO_ARENA, WELCOME_PREFIX_BYTES, Welcome, claim, hello, read_welcome, welcome_rest_bytes,
};
use router_wire::{CallId, Cut, Session, Side};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::call_error::CallError;
use super::drive::Drive;
use super::frame_stream::{FrameStream, MemoryRest};
use super::target::{DialError, ReplicaTarget};

/// The calls of one connection, shared by its driver and the calls. It lives on one thread.
#[derive(Debug)]
pub(super) struct Wire {
    session: RefCell<Session>,
    /// Why the connection is gone; empty while it lives.
    why_lost: RefCell<String>,
}

/// Drives one connection.
pub(super) struct WireDriver<S> {
    wire: Rc<Wire>,
    frames: FrameStream<S>,
    /// The peer accepts nothing any more; its data is read to the end.
    broken: Option<io::Error>,
    memory: MemoryRest,
}

/// A call's place in its connection. Dropping it resets the call, unless that is over.
#[derive(Debug)]
struct Place {
    wire: Rc<Wire>,
    id: CallId,
}

/// Waits for the head of an answer.
#[derive(Debug)]
pub struct WireAnswer {
    /// `None` once the head has been taken.
    place: Option<Place>,
    /// See [`WireAnswer::is_started`], once the head has been taken.
    was_started: bool,
}

/// The rest of an answer after its head.
#[derive(Debug)]
pub struct WireAnswerBody {
    place: Place,
}

/// The body of a request. Dropping it does nothing: the answer owns the call.
#[derive(Debug)]
pub struct WireUpload {
    wire: Rc<Wire>,
    id: CallId,
}

/// Why a connection cannot use the wire.
pub(super) enum Unwired {
    /// The peer uses another protocol: it may be of another release.
    Unspoken,
    /// It closed without an answer.
    Closed,
    Failed(DialError),
}

// === the greeting ===

/// Requires a proof of the replica, and proves the token to it. Only for targets with a token.
/// Returns the memory that the replica is offered to share.
pub(super) async fn greet(
    stream: &mut Stream,
    replica: &ReplicaTarget,
) -> Result<Option<Arena>, Unwired> {
    let asked = nonce().ok_or(DialError::NoNonce)?;
    let hello = hello(&asked).ok_or(DialError::NoNonce)?;
    let Welcome { replica_id: found, nonce, proof: shown } = exchange(stream, &hello).await?;
    let ReplicaTarget { token, replica_id, .. } = replica;
    if found != *replica_id {
        return Err(DialError::WrongReplica { expected: replica_id.clone(), found }.into());
    }
    if !verify_replica(token, &asked, replica_id, &shown) {
        return Err(DialError::Unproven { replica_id: replica_id.clone() }.into());
    }
    let claim = claim(&proof(token, &nonce, replica_id)).ok_or(DialError::NoNonce)?;
    stream.write_all(&claim).await?;
    let create = || replica.limits.arena_bytes.and_then(|bytes| Arena::create(bytes).ok());
    Ok(offer_arena(stream, create).await?)
}

/// Without an arena (other machines, where none is wanted, and where the system has none) bodies go
/// over the socket.
async fn offer_arena(
    stream: &mut Stream,
    create: impl FnOnce() -> Option<(Arena, OwnedFd)>,
) -> io::Result<Option<Arena>> {
    let unix = stream.as_unix().and_then(|unix| Some((unix, create()?)));
    let Some((unix, (arena, descriptor))) = unix else {
        stream.write_all(&[NO_ARENA]).await?;
        return Ok(None);
    };
    unix.send_descriptor(ARENA, &descriptor).await?;
    Ok(Some(arena))
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    hello: &[u8],
) -> Result<Welcome, Unwired> {
    stream.write_all(hello).await?;
    stream.flush().await?;
    let mut prefix = [0; WELCOME_PREFIX_BYTES];
    stream.read_exact(&mut prefix).await?;
    let rest_bytes = welcome_rest_bytes(&prefix).ok_or(Unwired::Unspoken)?;
    let mut rest = vec![0; rest_bytes];
    stream.read_exact(&mut rest).await?;
    read_welcome(&rest).ok_or(Unwired::Unspoken)
}

impl From<DialError> for Unwired {
    fn from(error: DialError) -> Self {
        Unwired::Failed(error)
    }
}

impl From<io::Error> for Unwired {
    fn from(_: io::Error) -> Self {
        Unwired::Closed
    }
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(arena: Option<Arena>) -> Rc<Self> {
        Rc::new(Self {
            session: RefCell::new(Session::with_arena(Side::Client, arena)),
            why_lost: RefCell::default(),
        })
    }

    /// `body`: all of it, or `None` if it follows. `None`: no further call may begin.
    pub(super) fn call(
        self: &Rc<Self>,
        head: &request::Parts,
        body: Option<&[Bytes]>,
    ) -> Option<(WireAnswer, Option<WireUpload>)> {
        let id = self.session.borrow_mut().call(head, body)?;
        let place = Place { wire: Rc::clone(self), id };
        let upload = body.is_none().then(|| WireUpload { wire: Rc::clone(self), id });
        Some((WireAnswer { place: Some(place), was_started: false }, upload))
    }

    pub(super) fn takes_calls(&self) -> bool {
        self.session.borrow().takes_calls()
    }

    pub(super) fn retire(&self) {
        self.session.borrow_mut().say_last();
    }

    fn error(&self, cut: Cut) -> CallError {
        match cut {
            Cut::Reset { code, is_remote } => {
                CallError::Reset { reason: Reason::from(code), is_remote }
            }
            Cut::Lost => CallError::Broken(self.why_lost.borrow().clone()),
        }
    }
}

// === impl WireDriver ===

impl<S: AsyncRead + AsyncWrite + Unpin> WireDriver<S> {
    pub(super) fn new(wire: Rc<Wire>, stream: S) -> Self {
        let (frames, memory) = (FrameStream::new(stream), MemoryRest::default());
        Self { wire, frames, broken: None, memory }
    }

    /// Writes as much as possible; ready when the connection is finished.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.wire.session.borrow_mut();
        if self.broken.is_none() {
            match self.frames.poll_write(session.outgoing(), cx) {
                Poll::Ready(Err(error)) if is_of_peer(&error) => {
                    // A call that would not be sent must not begin.
                    session.say_last();
                    self.broken = Some(error);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if session.is_over() => return self.frames.poll_shutdown(cx),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        self.memory.poll(&mut session, cx);
        session.wait(cx);
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Drive for WireDriver<S> {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        self.wire.session.borrow_mut().begin_turn();
        let session = &self.wire.session;
        let take = |frame| session.borrow_mut().on_frame(frame).map(drop);
        if let Poll::Ready(ended) = self.frames.poll_read(take, cx) {
            let error = ended.err().or(self.broken.take());
            let closed = || "the peer closed the connection".to_owned();
            return Poll::Ready(error.map_or_else(closed, |error| error.to_string()));
        }
        self.poll_write(cx).map(|ended| match ended {
            Ok(()) => "the connection takes no more calls".to_owned(),
            Err(error) => error.to_string(),
        })
    }

    fn ping(&mut self, _cx: &mut Context<'_>) {
        self.wire.session.borrow_mut().ping();
    }

    fn signs_of_life(&self) -> u64 {
        self.frames.signs_of_life()
    }

    fn end(&mut self, why: &str) {
        why.clone_into(&mut self.wire.why_lost.borrow_mut());
        self.wire.session.borrow_mut().lose();
    }
}

impl<S> Drop for WireDriver<S> {
    /// Also after a panic: calls without a driver must not wait.
    fn drop(&mut self) {
        if let Ok(mut session) = self.wire.session.try_borrow_mut() {
            session.lose();
        }
    }
}

/// The peer has closed, so the data that it has sent will end soon.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

// === impl Place, WireAnswer, WireAnswerBody, WireUpload ===

impl Place {
    fn polled<T>(&self, polled: Poll<Result<T, Cut>>) -> Poll<Result<T, CallError>> {
        polled.map(|ready| ready.map_err(|cut| self.wire.error(cut)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.wire.session.borrow_mut().leave(self.id);
    }
}

impl WireAnswer {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<WireAnswerBody>, CallError>> {
        let Some(place) = &self.place else { return Poll::Pending };
        let head = place.wire.session.borrow_mut().poll_head(place.id, cx);
        let head = ready!(place.polled(head));
        self.was_started = self.is_started();
        let Some(place) = self.place.take() else { return Poll::Pending };
        Poll::Ready(head.map(|head| Response::from_parts(head, WireAnswerBody { place })))
    }

    /// Whether the replica has said that it works on the call.
    pub(super) fn is_started(&self) -> bool {
        let is_started = |place: &Place| place.wire.session.borrow().is_started(place.id);
        self.place.as_ref().map_or(self.was_started, is_started)
    }
}

impl WireAnswerBody {
    pub(super) fn is_end(&self) -> bool {
        self.place.wire.session.borrow().is_end(self.place.id)
    }

    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CallError>>> {
        let Place { wire, id } = &self.place;
        let data = wire.session.borrow_mut().poll_data(*id, cx);
        data.map(|data| data.map(|piece| piece.map_err(|cut| wire.error(cut))))
    }

    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, CallError>> {
        let Place { wire, id } = &self.place;
        let trailers = wire.session.borrow_mut().poll_trailers(*id, cx);
        self.place.polled(trailers)
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.place.wire.session.borrow_mut().release(self.place.id, bytes);
    }
}

impl WireUpload {
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        self.wire.session.borrow_mut().poll_room(self.id, cx)
    }

    /// False: the other side accepts no more.
    pub(super) fn send_pieces(
        &mut self,
        pieces: impl Iterator<Item = Bytes>,
        is_end: bool,
    ) -> bool {
        let mut session = self.wire.session.borrow_mut();
        let is_sending = session.is_sending(self.id);
        if is_end {
            session.send_last(self.id, pieces);
        } else {
            session.send(self.id, pieces);
        }
        is_sending
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use router_io::QuietUnixStream;
    use tokio::io::duplex;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_server_is_told_that_no_memory_is_shared() {
        let (here, mut there) = UnixStream::pair().expect("a socket pair");
        let mut here = Stream::Unix(QuietUnixStream::new(here).expect("a free descriptor"));
        let offered = offer_arena(&mut here, || None).await.expect("room for a byte");
        assert!(offered.is_none());
        assert_eq!(NO_ARENA, there.read_u8().await.expect("a byte"));
    }

    #[test]
    fn a_driver_that_is_dropped_ends_its_calls() {
        let (wire, (stream, _peer)) = (Wire::new(None), duplex(64));
        let driver = WireDriver::new(Rc::clone(&wire), stream);
        let head = Request::post("/a").body(()).unwrap().into_parts().0;
        let (mut answer, _) = wire.call(&head, Some(&[])).expect("an open connection");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(answer.poll(&mut cx).is_pending() && wire.takes_calls());
        drop(driver);
        let ended = answer.poll(&mut cx);
        assert!(matches!(ended, Poll::Ready(Err(CallError::Broken(_)))), "{ended:?}");
        assert!(!wire.takes_calls());
    }
}
