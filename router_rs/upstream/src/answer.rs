//! The answer of a started call, whether it has an HTTP/2 stream of its own or came by a relay.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, Response};

use super::call_error::CallError;
use super::relay::{RelayedAnswer, RelayedBody};

/// Waits for the head. Dropping it resets the call.
#[derive(Debug)]
pub enum Answering {
    Stream(ResponseFuture),
    Relay(RelayedAnswer),
}

/// What follows the head. Dropping it resets the call, unless that is over.
#[derive(Debug)]
pub enum AnswerBody {
    Stream(RecvStream),
    Relay(RelayedBody),
}

impl Future for Answering {
    type Output = Result<Response<AnswerBody>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Answering::Stream(response) => Pin::new(response).poll(cx).map(|answer| {
                let answer = answer.map_err(CallError::from);
                answer.map(|answer| answer.map(AnswerBody::Stream))
            }),
            Answering::Relay(answer) => {
                answer.poll(cx).map(|answer| answer.map(|it| it.map(AnswerBody::Relay)))
            }
        }
    }
}

impl AnswerBody {
    /// All has come and was taken, and no trailers follow.
    pub fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Stream(stream) => stream.is_end_stream(),
            AnswerBody::Relay(body) => body.is_end(),
        }
    }

    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        match self {
            AnswerBody::Stream(stream) => {
                stream.poll_data(cx).map(|data| data.map(|data| data.map_err(CallError::from)))
            }
            AnswerBody::Relay(body) => body.poll_data(cx),
        }
    }

    /// To be called when the data is over.
    pub fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, CallError>> {
        match self {
            AnswerBody::Stream(stream) => {
                stream.poll_trailers(cx).map(|trailers| trailers.map_err(CallError::from))
            }
            AnswerBody::Relay(body) => body.poll_trailers(cx),
        }
    }

    /// So many bytes have been passed on, and as many more may come.
    pub fn release(&mut self, bytes: usize) {
        match self {
            AnswerBody::Stream(stream) => {
                // Fails only for a stream that is over, whose window nobody needs.
                let _window_of_an_ended_stream = stream.flow_control().release_capacity(bytes);
            }
            AnswerBody::Relay(body) => body.release(bytes),
        }
    }
}
