//! The effects of received frames on their calls.

use bytes::Bytes;
use http::{StatusCode, response};
use router_protocol::content_length;

use super::{Call, Called, Head, Session, Side};
use crate::block::{read_answer, read_call, read_trailers, read_whole};
use crate::errors::{Cut, Malformed};
use crate::frame::{CALLS_MAX, CallId, LENT_BYTES_MIN, Place, code, detach};
use crate::inbound::Inbound;
use crate::outbound::Outbound;

/// How far a client's place may exceed those that the server has seen.
const UNUSED_PLACES_MAX: usize = 1024;

impl Session {
    /// A malformed head ends its call, and no other.
    pub(super) fn on_call(
        &mut self,
        id: CallId,
        payload: Bytes,
        is_whole: bool,
    ) -> Result<Option<Called>, Malformed> {
        let place = id.place as usize;
        let places = self.calls.len();
        // A client takes places in turn, except for those of heads that it did not send.
        if id.place >= CALLS_MAX || place > places + UNUSED_PLACES_MAX {
            return Err(Malformed::UNEXPECTED);
        }
        self.calls.resize_with(places.max(place + 1), || None);
        if self.calls[place].is_some() {
            return Err(Malformed::UNEXPECTED);
        }
        let read = read_call(detach(payload)).ok().filter(|(_, rest)| is_whole || rest.is_empty());
        let Some((head, body)) = read else {
            self.outgoing.put_reset(id, code::PROTOCOL_ERROR);
            return Ok(None);
        };
        let mut inbound = Inbound::new();
        if is_whole {
            inbound.end = Some(Ok(()));
        } else {
            inbound.announce(content_length(&head.headers));
        }
        self.calls[place] = Some(Call::new(id.serial, Head::Taken, inbound, Outbound::new()));
        self.open += 1;
        Ok(Some(Called { id, head, body: is_whole.then_some(body) }))
    }

    pub(super) fn on_whole(&mut self, id: CallId, payload: Bytes) {
        let Ok((head, trailers, body)) = read_whole(payload) else {
            return self.check(id, Err(code::PROTOCOL_ERROR));
        };
        self.on_answer(id, head, |inbound| {
            inbound.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
            inbound.add(body, true)
        });
    }

    pub(super) fn on_head(&mut self, id: CallId, payload: Bytes) {
        // A caller may keep the head of an answer whose rest follows.
        match read_answer(detach(payload)) {
            Ok(head) => self.on_answer(id, head, |_| Ok(())),
            Err(_) => self.check(id, Err(code::PROTOCOL_ERROR)),
        }
    }

    fn on_answer(
        &mut self,
        id: CallId,
        head: response::Parts,
        rest: impl FnOnce(&mut Inbound) -> Result<(), u32>,
    ) {
        let Some(call) = self.unended(id) else { return };
        let told = if let Head::Awaited { is_of_head_request } = call.head {
            call.inbound.announce(announced(&head).filter(|_| !is_of_head_request));
            call.head = Head::Come(head);
            rest(&mut call.inbound)
        } else {
            Err(code::PROTOCOL_ERROR)
        };
        call.wake();
        self.check(id, told);
    }

    pub(super) fn on_started(&mut self, id: CallId) {
        if let Some(call) = self.unended(id) {
            call.is_started = true;
            call.wake();
        }
    }

    pub(super) fn on_piece(&mut self, id: CallId, bytes: Bytes, is_final: bool) {
        let Some(call) = self.unended(id) else { return };
        let told = match call.head {
            Head::Awaited { .. } => Err(code::PROTOCOL_ERROR),
            Head::Come(_) | Head::Taken => call.inbound.on_piece(bytes, is_final),
        };
        call.wake();
        self.check(id, told);
    }

    /// A piece that is in the arena.
    ///
    /// # Errors
    /// The place is outside of the arena, the piece is too short for it, or nothing is shared.
    pub(super) fn on_lent(
        &mut self,
        id: CallId,
        place: Place,
        is_final: bool,
    ) -> Result<(), Malformed> {
        let is_long = place.bytes as usize >= LENT_BYTES_MIN;
        let arena = self.memory.arena().filter(|_| is_long);
        let borrowed = arena.and_then(|arena| arena.borrow(place.first_block, place.bytes));
        // It is returned if its call is over.
        let bytes = borrowed.ok_or(Malformed::UNEXPECTED)?;
        self.on_piece(id, bytes, is_final);
        if let Some(credit) = self.unended(id).and_then(|call| call.inbound.widen()) {
            self.outgoing.put_credit(id, credit);
        }
        Ok(())
    }

    pub(super) fn on_trailers(&mut self, id: CallId, payload: Bytes) {
        let Some(call) = self.unended(id) else { return };
        match read_trailers(payload) {
            Ok(trailers) => {
                call.inbound.trailers = Some(trailers);
                self.on_piece(id, Bytes::new(), true);
            }
            Err(_) => self.check(id, Err(code::PROTOCOL_ERROR)),
        }
    }

    pub(super) fn on_credit(&mut self, id: CallId, bytes: usize) {
        if let Some(call) = self.get(id) {
            call.outbound.credit = call.outbound.credit.saturating_add(bytes);
            call.wake();
            self.write(id);
        }
    }

    pub(super) fn on_cut(&mut self, id: CallId, cut: Cut) {
        if self.side == Side::Server {
            // Its task finds nothing in its place.
            self.take(id).iter_mut().for_each(Call::wake);
        } else if let Some(call) = self.unended(id) {
            call.inbound.end = Some(Err(cut));
            call.wake();
        }
    }

    /// The frame breaks the protocol: the call is over at both ends.
    fn check(&mut self, id: CallId, told: Result<(), u32>) {
        if let Err(code) = told {
            self.outgoing.put_reset(id, code);
            self.on_cut(id, Cut::Reset { code, is_remote: false });
        }
    }
}

/// The announced length of a body; HTTP/2 streams are held to it as well.
fn announced(head: &response::Parts) -> Option<u64> {
    if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return None;
    }
    content_length(&head.headers)
}
