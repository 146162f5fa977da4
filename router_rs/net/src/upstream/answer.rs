//! The answer of a started call, whether it has an HTTP/2 stream of its own or came by a relay.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Response};

use super::relay::{RelayedAnswer, RelayedBody};

/// Why a call has no answer, or no end of one.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the call was reset: {reason}")]
    Reset { reason: Reason, is_remote: bool },
    /// The peer has not begun the call and will not.
    #[error("{0}")]
    NotTaken(String),
    /// All calls of the connection, or of its relay, broke off.
    #[error("{0}")]
    Broken(String),
}

/// Waits for the head. Dropping it resets the call.
#[derive(Debug)]
pub(crate) enum Answering {
    Stream(ResponseFuture),
    Relay(RelayedAnswer),
}

/// What follows the head. Dropping it resets the call, unless that is over.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Stream(RecvStream),
    Relay(RelayedBody),
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_reset() => {
                Self::Reset { reason, is_remote: error.is_remote() }
            }
            // A GOAWAY of the peer fails only streams that it says it did not process (RFC 9113,
            // 6.8).
            _ if error.is_go_away() && error.is_remote() => Self::NotTaken(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
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
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Stream(stream) => stream.is_end_stream(),
            AnswerBody::Relay(body) => body.is_end(),
        }
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CallError>>> {
        match self {
            AnswerBody::Stream(stream) => {
                stream.poll_data(cx).map(|data| data.map(|data| data.map_err(CallError::from)))
            }
            AnswerBody::Relay(body) => body.poll_data(cx),
        }
    }

    /// To be called when the data is over.
    pub(crate) fn poll_trailers(
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
    pub(crate) fn release(&mut self, bytes: usize) {
        match self {
            AnswerBody::Stream(stream) => {
                // Fails only for a stream that is over, whose window nobody needs.
                let _window_of_an_ended_stream = stream.flow_control().release_capacity(bytes);
            }
            AnswerBody::Relay(body) => body.release(bytes),
        }
    }
}
