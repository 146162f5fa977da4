//! What frames do to the calls that they are for.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, request, response};
use router_protocol::content_length;

use super::{Call, Called, Head, Session, Side};
use crate::errors::{Cut, Malformed};
use crate::frame::{CALLS_MAX, CallId, code};
use crate::inbound::Inbound;
use crate::outbound::Outbound;

impl Session {
    pub(super) fn on_call(
        &mut self,
        id: CallId,
        head: request::Parts,
        body: Option<Bytes>,
    ) -> Result<Called, Malformed> {
        if id.place >= CALLS_MAX {
            return Err(Malformed::OUT_OF_PLACE);
        }
        let place = id.place as usize;
        if place >= self.calls.len() {
            self.calls.resize_with(place + 1, || None);
        }
        if self.calls[place].is_some() {
            return Err(Malformed::OUT_OF_PLACE);
        }
        let mut inbound = Inbound::new();
        if body.is_none() {
            inbound.announce(content_length(&head.headers));
        } else {
            inbound.end = Some(Ok(()));
        }
        self.calls[place] = Some(Call::new(id.serial, Head::Taken, inbound, Outbound::new()));
        self.open += 1;
        Ok(Called { id, head, body })
    }

    pub(super) fn on_head(
        &mut self,
        id: CallId,
        head: response::Parts,
        body: Option<Bytes>,
    ) -> Result<(), Malformed> {
        let Some(call) = self.unended(id) else { return Ok(()) };
        let Head::Awaited { is_of_head_request } = call.head else {
            return Err(Malformed::OUT_OF_PLACE);
        };
        call.inbound.announce(announced(&head).filter(|_| !is_of_head_request));
        call.head = Head::Come(head);
        let told = body.map_or(Ok(()), |body| call.inbound.add(body, true));
        call.wake();
        self.check(id, told);
        Ok(())
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

    pub(super) fn on_trailers(&mut self, id: CallId, trailers: HeaderMap) {
        if let Some(call) = self.unended(id) {
            call.inbound.trailers = Some(trailers);
        }
        self.on_piece(id, Bytes::new(), true);
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

    /// What comes is not as it should: the call is over at both ends.
    fn check(&mut self, id: CallId, told: Result<(), u32>) {
        if let Err(code) = told {
            self.outgoing.put_reset(id, code);
            self.on_cut(id, Cut::Reset { code, is_remote: false });
        }
    }
}

/// How long a body is to be; HTTP/2 streams are held to it as well.
fn announced(head: &response::Parts) -> Option<u64> {
    if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return None;
    }
    content_length(&head.headers)
}
