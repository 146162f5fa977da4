//! Joins small DATA frames that have arrived already, so that a stream of small messages costs the
//! next hop one frame for many. Data is never held back to wait for more.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use router_upstream::answer::AnswerBody;
use router_upstream::call_error::CallError;
use smallvec::SmallVec;

/// Frames below this are worth a copy: copying 1 KiB takes tens of nanoseconds, one more frame
/// takes several locks here and a parse at its reader.
const SMALL_BYTES: usize = 1024;

/// Joined frames stay within this, the default limit of a frame's length.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// A source of data.
pub trait DataStream {
    type Error;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>>;

    fn is_end_stream(&self) -> bool;
}

impl DataStream for RecvStream {
    type Error = h2::Error;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        self.poll_data(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_end_stream()
    }
}

impl DataStream for AnswerBody {
    type Error = CallError;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        self.poll_data(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_end_stream()
    }
}

/// Like `RecvStream::poll_data`, but joins frames. Errors come after the data before them.
pub fn poll_data<S: DataStream>(
    stream: &mut S,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, S::Error>>> {
    let first = match ready!(stream.poll_data(cx)) {
        Some(Ok(first)) if first.len() < SMALL_BYTES => first,
        other => return Poll::Ready(other),
    };
    let mut pieces: SmallVec<[Bytes; 16]> = SmallVec::new();
    let mut length = first.len();
    while length + SMALL_BYTES <= JOINED_BYTES_MAX && !stream.is_end_stream() {
        // The next poll returns an end or an error again.
        let Poll::Ready(Some(Ok(next))) = stream.poll_data(cx) else { break };
        length += next.len();
        pieces.push(next);
    }
    if pieces.is_empty() {
        return Poll::Ready(Some(Ok(first)));
    }
    // Exactly as large as its content: pieces may be kept, and their length is what is counted.
    let mut joined = BytesMut::with_capacity(length);
    joined.extend_from_slice(&first);
    for piece in &pieces {
        joined.extend_from_slice(piece);
    }
    Poll::Ready(Some(Ok(joined.freeze())))
}
