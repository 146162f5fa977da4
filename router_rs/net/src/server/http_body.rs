//! The request side of a plain HTTP request: pieces are passed on unchanged.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use router_dispatch::coalesce;
use router_protocol::grpc::Message;

use super::request_body::{BodyState, Incoming, Taken};

/// Reads the body of one request.
#[derive(Debug)]
pub(super) struct HttpBody {
    state: BodyState,
    /// Collects a body that is handed over whole, or holds one that came whole.
    whole: Option<Message>,
}

impl HttpBody {
    pub(super) fn new(body: Incoming, is_whole: bool) -> Self {
        Self { state: BodyState::Open(body), whole: is_whole.then(Message::default) }
    }

    /// A body that has come with its head.
    pub(super) fn of(body: Bytes, is_whole: bool) -> Self {
        let body = (is_whole || !body.is_empty()).then(|| Message::from(body));
        Self { state: BodyState::Ended, whole: body }
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
                        None => return Poll::Ready(Taken::Message(piece.into())),
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
