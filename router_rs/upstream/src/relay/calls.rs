//! The calls of a relay, and how far their answers have come.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, StatusCode, response};
use router_protocol::content_length;
use router_protocol::mesh::relay::{CallId, Malformed, detach, read_answer, read_trailers};
use slab::Slab;

use crate::call_error::CallError;

/// Answers beyond this are long: what they gain by a relay is nothing, and its one window holds them
/// up where each could have its own. 1 MiB to 16 clients: 1 220 requests/s by streams, 800 to 1 020 by
/// a relay (same core).
const LONG_BYTES: usize = 128 * 1024;

/// After a long answer so many calls have streams of their own: where one answer is long, most are.
/// Then one finds out anew, which costs those that have long answers only next to nothing.
const DETOURS: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Calls {
    by_place: Slab<Call>,
    /// The number of the next call: what comes for one before it in its place is not for it.
    serial: u32,
    /// So many calls are still to go another way.
    detours: u32,
}

#[derive(Debug)]
struct Call {
    serial: u32,
    /// What of the body has come.
    body_bytes: usize,
    is_head_request: bool,
    head: Option<response::Parts>,
    has_head: bool,
    pieces: VecDeque<Bytes>,
    /// What the head has announced and has not come; `None`: nothing was announced.
    missing: Option<u64>,
    trailers: Option<HeaderMap>,
    /// All has come, or nothing more will.
    end: Option<Result<(), CallError>>,
    waker: Option<Waker>,
}

/// Whether the other side may go on; if not, it is to be told why.
type Told = Result<(), Reason>;

// === impl Calls ===

impl Calls {
    /// Whether the next call is to have a stream of its own.
    pub(super) fn takes_detour(&mut self) -> bool {
        let takes = self.detours > 0;
        self.detours -= u32::from(takes);
        takes
    }

    pub(super) fn begin(&mut self, is_head_request: bool) -> CallId {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let place = self.by_place.insert(Call {
            serial,
            body_bytes: 0,
            is_head_request,
            head: None,
            has_head: false,
            pieces: VecDeque::new(),
            missing: None,
            trailers: None,
            end: None,
            waker: None,
        });
        CallId { place: u32::try_from(place).expect("invariant: streams are counted"), serial }
    }

    pub(super) fn remove(&mut self, id: CallId) {
        if self.get(id).is_some() {
            self.by_place.remove(id.place as usize);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Whether the whole answer is here, or will never be.
    pub(super) fn has_come(&self, id: CallId) -> bool {
        let call = self.by_place.get(id.place as usize).filter(|call| call.serial == id.serial);
        call.is_none_or(|call| call.end.is_some())
    }

    /// `None`: nobody waits for it any more.
    fn get(&mut self, id: CallId) -> Option<&mut Call> {
        self.by_place.get_mut(id.place as usize).filter(|call| call.serial == id.serial)
    }

    /// As `get`, for what has just come.
    fn open(&mut self, id: CallId) -> Option<&mut Call> {
        self.get(id).filter(|call| call.end.is_none())
    }

    // === what comes ===

    pub(super) fn on_head(
        &mut self,
        id: CallId,
        payload: Bytes,
        is_whole: bool,
    ) -> Result<Told, Malformed> {
        // A caller may keep the head of an answer that goes on.
        let (head, body) = read_answer(if is_whole { payload } else { detach(payload) })?;
        let Some(call) = self.open(id) else { return Ok(Ok(())) };
        if call.has_head || (!is_whole && !body.is_empty()) {
            return Err(Malformed::OUT_OF_PLACE);
        }
        call.missing = announced(&head).filter(|_| !call.is_head_request);
        call.head = Some(head);
        call.has_head = true;
        if is_whole {
            return Ok(call.on_piece(body, true));
        }
        call.wake();
        Ok(Ok(()))
    }

    pub(super) fn on_piece(&mut self, id: CallId, bytes: Bytes, is_final: bool) -> Told {
        let Some(call) = self.open(id) else { return Ok(()) };
        let before = long_parts(call.body_bytes);
        call.body_bytes += bytes.len();
        let is_long = long_parts(call.body_bytes) > before;
        let told = call.on_piece(bytes, is_final);
        if is_long {
            self.detours = DETOURS;
        }
        told
    }

    pub(super) fn on_trailers(&mut self, id: CallId, payload: Bytes) -> Result<Told, Malformed> {
        let trailers = read_trailers(payload)?;
        let Some(call) = self.open(id) else { return Ok(Ok(())) };
        call.trailers = Some(trailers);
        Ok(call.on_piece(Bytes::new(), true))
    }

    pub(super) fn on_end(&mut self, id: CallId, error: CallError) {
        if let Some(call) = self.open(id) {
            call.end = Some(Err(error));
            call.wake();
        }
    }

    pub(super) fn end_all(&mut self, error: impl Fn() -> CallError) {
        for (_, call) in &mut self.by_place {
            call.end.get_or_insert_with(|| Err(error()));
            call.wake();
        }
    }

    // === what is taken ===

    pub(super) fn poll_head(
        &mut self,
        id: CallId,
        cx: &Context<'_>,
    ) -> Poll<Result<response::Parts, CallError>> {
        let Some(call) = self.get(id) else { return Poll::Pending };
        if let Some(head) = call.head.take() {
            return Poll::Ready(Ok(head));
        }
        match call.take_error() {
            Some(error) => Poll::Ready(Err(error)),
            None => call.wait(cx),
        }
    }

    pub(super) fn is_end(&self, id: CallId) -> bool {
        let call = self.by_place.get(id.place as usize).filter(|call| call.serial == id.serial);
        call.is_none_or(|call| {
            matches!(call.end, Some(Ok(()))) && call.pieces.is_empty() && call.trailers.is_none()
        })
    }

    pub(super) fn poll_data(
        &mut self,
        id: CallId,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Bytes, CallError>>> {
        let Some(call) = self.get(id) else { return Poll::Ready(None) };
        if let Some(piece) = call.pieces.pop_front() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match &call.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(_)) => Poll::Ready(call.take_error().map(Err)),
            None => call.wait(cx),
        }
    }

    pub(super) fn poll_trailers(
        &mut self,
        id: CallId,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, CallError>> {
        let Some(call) = self.get(id) else { return Poll::Ready(Ok(None)) };
        match &call.end {
            Some(Ok(())) => Poll::Ready(Ok(call.trailers.take())),
            Some(Err(_)) => Poll::Ready(call.take_error().map_or(Ok(None), Err)),
            None => call.wait(cx),
        }
    }
}

/// How often a body has been long: one that lasts and says a little now and then keeps others off
/// its relay no longer than a short one that is as long in all.
fn long_parts(bytes: usize) -> usize {
    bytes.saturating_sub(1) / LONG_BYTES
}

/// How long a body is to be; HTTP/2 streams are held to it as well.
fn announced(head: &response::Parts) -> Option<u64> {
    if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return None;
    }
    content_length(&head.headers)
}

// === impl Call ===

impl Call {
    fn on_piece(&mut self, bytes: Bytes, is_final: bool) -> Told {
        let length = bytes.len() as u64;
        let is_as_announced = self
            .missing
            .is_none_or(|missing| if is_final { length == missing } else { length <= missing });
        if !self.has_head || !is_as_announced {
            let reason = Reason::PROTOCOL_ERROR;
            self.end = Some(Err(CallError::Reset { reason, is_remote: false }));
            self.wake();
            return Err(reason);
        }
        self.missing = self.missing.map(|missing| missing - length);
        if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
        if is_final {
            self.end = Some(Ok(()));
        }
        self.wake();
        Ok(())
    }

    /// The error once, as a stream says it.
    fn take_error(&mut self) -> Option<CallError> {
        let error = self.end.take_if(|end| end.is_err())?.err();
        let told = || Err(CallError::Broken("the call is over".to_owned()));
        self.end = Some(told());
        error
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_LENGTH;

    use super::*;
    use router_protocol::mesh::relay::{Decoder, Frame, Wire, put_head};

    #[test]
    fn a_head_keeps_nothing_of_what_came_with_it() {
        let mut calls = Calls::default();
        let id = calls.begin(false);
        let headers = [(CONTENT_LENGTH, "7".parse().unwrap())].into_iter().collect();
        let mut wire = Wire::new();
        put_head(&mut wire, id, (StatusCode::OK, &headers)).unwrap();
        // What others have said in the same turn.
        wire.resize(256 * 1024, 0);
        let came = Bytes::from(wire);
        let mut chunk = came.clone();
        let frame = Decoder::default().decode(&mut chunk).unwrap();
        let Some(Frame::Head { payload, .. }) = frame else { panic!("{frame:?} is no head") };
        calls.on_head(id, payload, false).unwrap().unwrap();
        drop(chunk);
        assert!(came.is_unique());
    }
}
