//! The request side of a plain HTTP request: pieces are passed on unchanged.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use router_dispatch::coalesce;
use router_protocol::grpc::Message;

use super::request_body::{BodyState, Incoming, Taken};

/// A piece that user code gets is not longer than this and the bytes of one read. Arbitrary.
const GATHERED_BYTES_MAX: usize = 256 * 1024;

/// Reads the body of one request.
#[derive(Debug)]
pub(super) struct HttpBody {
    state: BodyState,
    /// Collects a body that is handed over whole, or holds one that came whole.
    whole: Option<Message>,
    gathered_bytes_max: usize,
}

impl HttpBody {
    pub(super) fn new(body: Incoming, is_whole: bool) -> Self {
        let whole = is_whole.then(Message::default);
        Self { state: BodyState::Open(body), whole, gathered_bytes_max: GATHERED_BYTES_MAX }
    }

    /// The frames of a WebSocket. They may be many small messages, and what is handed over counts as
    /// read: more of them would come before user code has read these.
    pub(super) fn of_websocket(body: Incoming) -> Self {
        Self { gathered_bytes_max: 0, ..Self::new(body, false) }
    }

    /// A body that has come with its head.
    pub(super) fn of(body: Bytes, is_whole: bool) -> Self {
        let body = (is_whole || !body.is_empty()).then(|| Message::from(body));
        Self { state: BodyState::Ended, whole: body, gathered_bytes_max: GATHERED_BYTES_MAX }
    }

    /// Nothing more will be read. An HTTP/2 client that still sends is told to stop; others learn
    /// it from the end of the answer.
    pub(super) fn close(&mut self) {
        self.state = BodyState::Closed;
        self.whole = None;
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, BodyState::Closed)
    }

    /// Adds what has arrived behind `first`: one large piece costs user code less than many.
    fn gather(&mut self, first: Bytes, context: &mut Context<'_>) -> Message {
        let mut gathered = Message::from(first);
        let mut bytes = gathered.len();
        while let BodyState::Open(body) = &mut self.state
            && bytes < self.gathered_bytes_max
        {
            // The next poll returns an end or an error again.
            let Poll::Ready(Some(Ok(piece))) = coalesce::poll_data(body, context) else { break };
            body.release(piece.len());
            bytes += piece.len();
            gathered.segments.push(piece);
        }
        gathered
    }

    /// Reads the next piece, or all of a body that is handed over whole.
    ///
    /// The window is returned as soon as a piece is here, as for messages.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Taken> {
        while let BodyState::Open(body) = &mut self.state {
            match ready!(coalesce::poll_data(body, context)) {
                Some(Ok(piece)) => {
                    body.release(piece.len());
                    match &mut self.whole {
                        _ if piece.is_empty() => {}
                        Some(whole) => whole.segments.push(piece),
                        None => return Poll::Ready(Taken::Message(self.gather(piece, context))),
                    }
                }
                Some(Err(_)) => {
                    self.close();
                    return Poll::Ready(Taken::Cancelled);
                }
                None => self.state = BodyState::Ended,
            }
        }
        Poll::Ready(self.whole.take().map_or(Taken::End, Taken::Message))
    }
}
