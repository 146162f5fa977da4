//! The calls of a server: answers them.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response};

use super::Session;
use crate::frame::{BODY_BYTES_MAX, CallId, code};

impl Session {
    /// Ready when the client no longer wants an answer.
    pub fn poll_cancelled(&mut self, id: CallId, cx: &Context<'_>) -> Poll<()> {
        self.get(id).map_or(Poll::Ready(()), |call| call.wait(cx))
    }

    /// Says that work on the call has begun. Only for a client that has asked to be told.
    pub fn send_started(&mut self, id: CallId) {
        if self.get(id).is_some() {
            self.outgoing.put_started(id);
            self.wake_driver();
        }
    }

    /// The head of an answer whose rest follows.
    pub fn send_head(&mut self, id: CallId, response: &Response<()>) {
        if self.get(id).is_some() {
            let put = self.outgoing.put_head(id, (response.status(), response.headers()));
            self.check_put(id, put);
        }
    }

    /// A complete answer.
    pub fn send_whole(
        &mut self,
        id: CallId,
        response: &Response<()>,
        (body, body_bytes): (impl IntoIterator<Item = Bytes>, usize),
        trailers: HeaderMap,
    ) {
        if body_bytes > BODY_BYTES_MAX {
            self.send_head(id, response);
            self.send(id, body);
            return self.finish(id, trailers);
        }
        if self.get(id).is_none() {
            return;
        }
        let head = (response.status(), response.headers());
        let put = self.outgoing.put_whole(id, head, &trailers, (body, body_bytes));
        if put.is_ok() {
            self.take(id);
        }
        self.check_put(id, put);
    }

    /// The task that answered the call is gone.
    pub fn abandon(&mut self, id: CallId) {
        if self.look(id).is_some_and(|call| call.outbound.is_open()) {
            self.reset(id, code::CANCEL);
        }
    }

    pub fn reset(&mut self, id: CallId, code: u32) {
        if self.take(id).is_some() {
            self.outgoing.put_reset(id, code);
            self.wake_driver();
        }
    }
}
