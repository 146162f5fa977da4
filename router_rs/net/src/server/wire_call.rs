//! A call of the wire, as its task sees it: the incoming body and the outgoing answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::Reason;
use http::{HeaderMap, Response};
use router_arena::Reserved;
use router_protocol::grpc::Framed;
use router_wire::{CallId, Cut, Session};

/// The calls of one connection, shared by its driver and the calls. It lives on one thread.
pub(super) type Shared = Rc<RefCell<Session>>;

/// The answer of one call. Dropping it resets the call, unless its end was sent.
#[derive(Debug)]
pub(super) struct WireReply {
    session: Shared,
    id: CallId,
}

/// The body of a request that follows its head.
#[derive(Debug)]
pub(super) struct WireRequestBody {
    session: Shared,
    id: CallId,
}

// === impl WireReply ===

impl WireReply {
    pub(super) fn new(session: &Shared, id: CallId) -> Self {
        Self { session: Rc::clone(session), id }
    }

    /// Ready when the client has reset the call or is gone.
    pub(super) fn poll_cancelled(&self, context: &Context<'_>) -> Poll<()> {
        self.session.borrow_mut().poll_cancelled(self.id, context)
    }

    /// Like `Sink::poll_room`.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        self.session.borrow_mut().poll_room(self.id, context).map(drop)
    }

    pub(super) fn tell_start(&self) {
        self.session.borrow_mut().send_started(self.id);
    }

    /// How many bytes may be sent; `None`: the client accepts no more.
    pub(super) fn poll_room_bytes(&self, context: &Context<'_>) -> Poll<Option<usize>> {
        self.session.borrow_mut().poll_room(self.id, context)
    }

    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.session.borrow_mut().reserve(bytes)
    }

    pub(super) fn send_reserved(&self, reserved: Reserved) {
        self.session.borrow_mut().send_reserved(self.id, reserved);
    }

    pub(super) fn send_head(&self, response: &Response<()>) {
        self.session.borrow_mut().send_head(self.id, response);
    }

    pub(super) fn send_whole(&self, response: &Response<()>, body: Framed, trailers: HeaderMap) {
        let bytes = body.remaining();
        let body = (body.into_pieces(), bytes);
        self.session.borrow_mut().send_whole(self.id, response, body, trailers);
    }

    pub(super) fn send_data(&self, pieces: impl IntoIterator<Item = Bytes>) {
        self.session.borrow_mut().send(self.id, pieces);
    }

    pub(super) fn send_trailers(&self, trailers: HeaderMap) {
        self.session.borrow_mut().finish(self.id, trailers);
    }

    pub(super) fn send_reset(&self, reason: Reason) {
        self.session.borrow_mut().reset(self.id, reason.into());
    }
}

impl Drop for WireReply {
    fn drop(&mut self) {
        self.session.borrow_mut().abandon(self.id);
    }
}

// === impl WireRequestBody ===

impl WireRequestBody {
    pub(super) fn new(session: &Shared, id: CallId) -> Self {
        Self { session: Rc::clone(session), id }
    }

    pub(super) fn poll_data(&mut self, context: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.session.borrow_mut().poll_data(self.id, context)
    }

    pub(super) fn is_end(&self) -> bool {
        self.session.borrow().is_end(self.id)
    }

    pub(super) fn release(&self, bytes: usize) {
        self.session.borrow_mut().release(self.id, bytes);
    }
}
