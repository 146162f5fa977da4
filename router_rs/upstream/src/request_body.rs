//! The body of a started request, over HTTP/2 or the wire.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::SendStream;

use super::wire::WireUpload;

/// The destination of a request's body.
#[derive(Debug)]
pub enum RequestBody {
    Http2(SendStream<Bytes>),
    Wire(WireUpload),
}

/// The other side accepts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl RequestBody {
    /// Room for up to `wanted` bytes (more than 0), at least 1 when ready.
    ///
    /// # Errors
    /// The other side accepts no more; its answer says why.
    pub fn poll_room(
        &mut self,
        wanted: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Closed>> {
        match self {
            RequestBody::Http2(stream) => {
                poll_room(stream, wanted, cx).map(|room| room.map_err(|_| Closed))
            }
            RequestBody::Wire(upload) => {
                upload.poll_room(cx).map(|room| room.map(|room| room.min(wanted)).ok_or(Closed))
            }
        }
    }

    /// Sends pieces that follow each other, of which only the last may be empty; the wire joins them.
    ///
    /// # Errors
    /// Like [`RequestBody::poll_room`].
    pub fn send_pieces(
        &mut self,
        pieces: impl ExactSizeIterator<Item = Bytes>,
        is_end: bool,
    ) -> Result<(), Closed> {
        match self {
            RequestBody::Http2(stream) => {
                let mut left = pieces.len();
                for piece in pieces {
                    left -= 1;
                    stream.send_data(piece, is_end && left == 0).map_err(|_| Closed)?;
                }
                Ok(())
            }
            RequestBody::Wire(upload) => {
                upload.send_pieces(pieces, is_end).then_some(()).ok_or(Closed)
            }
        }
    }

    /// Sends a piece; bytes that do not fit now are buffered here.
    ///
    /// # Errors
    /// Like [`RequestBody::poll_room`].
    pub fn send_data(&mut self, piece: Bytes, is_end: bool) -> Result<(), Closed> {
        self.send_pieces([piece].into_iter(), is_end)
    }
}

/// Send window for up to `wanted` bytes (more than 0) of one stream, at least 1 when ready.
///
/// # Errors
/// The stream accepts no more data.
pub fn poll_room<B: Buf>(
    stream: &mut SendStream<B>,
    wanted: usize,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, h2::Error>> {
    stream.reserve_capacity(wanted);
    let mut room = stream.capacity();
    while room == 0 {
        match ready!(stream.poll_capacity(cx)) {
            Some(capacity) => room = capacity?,
            None => return Poll::Ready(Err(h2::Reason::CANCEL.into())),
        }
    }
    Poll::Ready(Ok(room.min(wanted)))
}
