//! The calls of a client: begins them, and takes their answers.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, request, response};

use super::{Call, Head, Session};
use crate::errors::Cut;
use crate::frame::{CallId, code};
use crate::inbound::Inbound;
use crate::outbound::Outbound;

impl Session {
    /// Begins a call. `body`: all of it, small enough for one frame with the head, or `None` if it
    /// follows. Returns `None` if no further call may begin.
    pub fn call(&mut self, head: &request::Parts, body: Option<&[Bytes]>) -> Option<CallId> {
        if !self.takes_calls() {
            return None;
        }
        self.serial = self.serial.wrapping_add(1);
        let is_of_head_request = head.method == Method::HEAD;
        let outbound = if body.is_some() { Outbound::sent() } else { Outbound::following(head) };
        let awaited = Head::Awaited { is_of_head_request };
        let id = self.insert(Call::new(self.serial, awaited, Inbound::new(), outbound));
        let put = match body {
            Some(body) => self.outgoing.put_call(id, head, body),
            None => self.outgoing.put_begin(id, head),
        };
        if put.is_err() {
            self.answer_too_long(id);
        }
        self.wake_driver();
        Some(id)
    }

    fn insert(&mut self, call: Call) -> CallId {
        let serial = call.serial;
        let place = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            u32::try_from(self.calls.len() - 1).expect("invariant: calls are counted")
        });
        self.calls[place as usize] = Some(call);
        self.open += 1;
        CallId { place, serial }
    }

    /// The answer that the server would give to such a head.
    fn answer_too_long(&mut self, id: CallId) {
        if let Some(call) = self.get(id) {
            let (mut head, ()) = Response::new(()).into_parts();
            head.status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            call.head = Head::Come(head);
            call.inbound.end = Some(Ok(()));
        }
    }

    /// The caller does not await the answer any more.
    pub fn leave(&mut self, id: CallId) {
        let is_to_be_told = self.unended(id).is_some();
        if self.take(id).is_some() {
            self.free.push(id.place);
        }
        if is_to_be_told {
            self.outgoing.put_reset(id, code::CANCEL);
        }
        if is_to_be_told || self.is_last_said {
            // The driver may have waited for the last one.
            self.wake_driver();
        }
    }

    pub fn poll_head(
        &mut self,
        id: CallId,
        cx: &Context<'_>,
    ) -> Poll<Result<response::Parts, Cut>> {
        let Some(call) = self.get(id) else { return Poll::Pending };
        match std::mem::replace(&mut call.head, Head::Taken) {
            Head::Come(head) => return Poll::Ready(Ok(head)),
            head => call.head = head,
        }
        match call.inbound.end {
            Some(Err(cut)) => Poll::Ready(Err(cut)),
            _ => call.wait(cx),
        }
    }

    /// Whether the server has said that it works on the call.
    pub fn is_started(&self, id: CallId) -> bool {
        self.look(id).is_some_and(|call| call.is_started)
    }

    /// All data has come and was taken, and no trailers follow.
    pub fn is_end(&self, id: CallId) -> bool {
        self.look(id).is_none_or(|call| call.inbound.is_end())
    }

    /// Call it when the data is over.
    pub fn poll_trailers(
        &mut self,
        id: CallId,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, Cut>> {
        let Some(call) = self.get(id) else { return Poll::Ready(Ok(None)) };
        match call.inbound.end {
            Some(Ok(())) => Poll::Ready(Ok(call.inbound.trailers.take())),
            Some(Err(cut)) => Poll::Ready(Err(cut)),
            None => call.wait(cx),
        }
    }
}
