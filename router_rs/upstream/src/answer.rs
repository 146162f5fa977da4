//! The answer of a started call, over HTTP/2 or the wire.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, Response};
use router_protocol::mesh::messages::ByteSource;

use super::call_error::CallError;
use super::wire::{WireAnswer, WireAnswerBody};

/// Waits for the head. Dropping it resets the call.
#[derive(Debug)]
pub enum Answering {
    Http2(ResponseFuture),
    Wire(WireAnswer),
}

/// The rest of an answer after its head. Dropping it resets the call, unless that is over.
#[derive(Debug)]
pub enum AnswerBody {
    Http2(RecvStream),
    Wire(WireAnswerBody),
}

impl Future for Answering {
    type Output = Result<Response<AnswerBody>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Answering::Http2(response) => Pin::new(response).poll(cx).map(|answer| {
                let answer = answer.map_err(CallError::from);
                answer.map(|answer| answer.map(AnswerBody::Http2))
            }),
            Answering::Wire(answer) => {
                answer.poll(cx).map(|answer| answer.map(|it| it.map(AnswerBody::Wire)))
            }
        }
    }
}

impl Answering {
    /// Whether the replica has said, before its answer, that it works on the call. It does where
    /// the connection [tells starts](super::connection::Connection::tells_starts) and the call asks
    /// for that.
    pub fn is_started(&self) -> bool {
        match self {
            Answering::Http2(_) => false,
            Answering::Wire(answer) => answer.is_started(),
        }
    }
}

impl AnswerBody {
    /// All data has come and was taken, and no trailers follow.
    pub fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Http2(stream) => stream.is_end_stream(),
            AnswerBody::Wire(body) => body.is_end(),
        }
    }

    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        match self {
            AnswerBody::Http2(stream) => {
                stream.poll_data(cx).map(|data| data.map(|data| data.map_err(CallError::from)))
            }
            AnswerBody::Wire(body) => body.poll_data(cx),
        }
    }

    /// Call it when the data is over.
    pub fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, CallError>> {
        match self {
            AnswerBody::Http2(stream) => {
                stream.poll_trailers(cx).map(|trailers| trailers.map_err(CallError::from))
            }
            AnswerBody::Wire(body) => body.poll_trailers(cx),
        }
    }

    /// Acknowledges `bytes`, which were passed on: as many more may come.
    pub fn release(&mut self, bytes: usize) {
        match self {
            AnswerBody::Http2(stream) => {
                // Fails only for a stream that is over, which needs no window.
                let _window_of_an_ended_stream = stream.flow_control().release_capacity(bytes);
            }
            AnswerBody::Wire(body) => body.release(bytes),
        }
    }
}

impl ByteSource for AnswerBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let chunk = ready!(self.poll_data(cx)).and_then(Result::ok);
        if let Some(chunk) = &chunk {
            self.release(chunk.len());
        }
        Poll::Ready(chunk)
    }
}
