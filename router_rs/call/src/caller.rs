//! The interface between the exchange and its caller: an HTTP/2 client or Python.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, response};

use crate::{Failure, Refusal};

/// The caller wants nothing more: it has reset the call, or its connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// A piece of the request's body.
#[derive(Debug)]
pub struct Piece {
    pub bytes: Bytes,
    /// No further piece follows.
    pub is_last: bool,
}

/// One end of a call. All methods are called from the call's own task.
pub trait Caller {
    /// The call goes to `peer`, in gRPC's notation for addresses; called once for each attempt.
    fn on_sent(&mut self, peer: &Arc<str>);

    /// The caller's address in grpc's notation, according to its request's head; empty: this
    /// process.
    fn peer(&self, _headers: &HeaderMap) -> String {
        String::new()
    }

    /// The next piece of the request; not called again after the last one.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>>;

    /// The other side has accepted `bytes` of the request; more may come.
    fn accepted(&mut self, bytes: usize);

    /// Ready when the caller is gone; called whenever the exchange has nothing else to do.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled>;

    /// Whether the caller keeps the other side waiting for longer than allowed while others want
    /// the place of its call.
    fn is_slow(&self) -> bool {
        false
    }

    /// The call ends, because the caller was slow and others wanted its place.
    fn on_give_way(&mut self) {}

    /// Whether the caller must get the answer's pieces as they were written, because their
    /// boundaries matter; otherwise small ones may be joined.
    fn keeps_pieces(&self) -> bool {
        false
    }

    /// The head of the answer; with `is_last`, all of it (Trailers-Only).
    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled>;

    /// How many bytes of `wanted` the caller accepts now; never 0 when ready.
    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>>;

    /// A piece of the answer's body, no larger than the room.
    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled>;

    /// The end of the answer; empty if the other side sent none.
    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled>;

    /// After the whole answer was passed on: ready when it is certain what the caller is told, but
    /// before it can have got the end. An answer that is impossible in the caller's protocol is
    /// replaced, see [`Caller::refused`]. Also ready if the caller is gone.
    fn poll_settled(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The caller has got all that it asked for before the other side has ended its answer. The end
    /// has aborted the exchange as if the caller were gone.
    fn has_enough(&self) -> bool {
        false
    }

    /// The refusal that this end sends in place of the other side's answer. If the answer was not
    /// complete by then, the end has aborted the exchange as if the caller were gone.
    fn refused(&self) -> Option<&Refusal> {
        None
    }
}

/// A caller that is a client of a listener: it may have to get a failure in its own protocol.
pub trait ClientEnd: Caller {
    /// Answers with a status of ours, or ends the answer with it if that has begun.
    fn fail(&mut self, failure: &Failure);

    /// Hands over buffered data once the exchange is over, however it ended: some protocols can
    /// begin an answer only when they know its end. Reports what [`Caller::refused`] has. Ready
    /// when nothing is left or the caller is gone. It waits for the caller's room, so the code that
    /// polls it must bound the time.
    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
