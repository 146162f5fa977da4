//! The answers of a relay's calls: what of them may be sent, and what waits for credit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Response};
use router_protocol::grpc::Message;
use router_protocol::mesh::relay::{
    BODY_BYTES_MAX, CREDIT_BYTES_INITIAL, CallId, Malformed, PIECE_BYTES_MAX, TooLong, Wire,
    put_head, put_piece, put_reset, put_trailers, put_whole,
};
use smallvec::SmallVec;

/// Bytes up to this are copied between the frames; longer ones go out from where they are: below it
/// a copy is cheaper than a part of its own.
const COPIED_BYTES_MAX: usize = 4096;

pub(super) struct Replies {
    /// By the places that the client has given them.
    calls: Vec<Option<Reply>>,
    calls_max: u32,
    /// How many calls there are.
    open: usize,
    outgoing: Outgoing,
    /// The task's, while it waits.
    task: Option<Waker>,
}

/// The answer of one call. Dropping it resets the call, unless its end was sent.
pub(super) struct RelayedReply {
    replies: Rc<RefCell<Replies>>,
    id: CallId,
}

struct Reply {
    serial: u32,
    /// As many bytes may be sent in pieces.
    credit: usize,
    /// Waits for credit.
    backlog: VecDeque<Bytes>,
    /// What follows the backlog.
    trailers: Option<HeaderMap>,
    /// The user's end has said all of it.
    is_finished: bool,
    waker: Option<Waker>,
}

/// What goes out next, in parts that are not joined.
#[derive(Default)]
struct Outgoing {
    parts: SmallVec<[Bytes; 1]>,
    wire: Wire,
}

// === impl Replies ===

impl Replies {
    pub(super) fn new(calls_max: u32) -> Self {
        Self { calls: Vec::new(), calls_max, open: 0, outgoing: Outgoing::default(), task: None }
    }

    // === for the task ===

    /// # Errors
    /// The client counts wrong, or has more calls than streams are allowed.
    pub(super) fn begin(&mut self, id: CallId) -> Result<(), Malformed> {
        if id.place >= self.calls_max {
            return Err(Malformed::OUT_OF_PLACE);
        }
        let place = id.place as usize;
        if place >= self.calls.len() {
            self.calls.resize_with(place + 1, || None);
        }
        if self.calls[place].is_some() {
            return Err(Malformed::OUT_OF_PLACE);
        }
        self.calls[place] = Some(Reply::new(id.serial));
        self.open += 1;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// What is next to be sent.
    pub(super) fn wire(&mut self) -> &mut Wire {
        &mut self.outgoing.wire
    }

    /// All that is to be sent now.
    pub(super) fn take_wire(&mut self) -> Option<Message> {
        self.outgoing.take()
    }

    pub(super) fn wait(&mut self, context: &Context<'_>) {
        self.task = Some(context.waker().clone());
    }

    /// The client wants no answer any more.
    pub(super) fn on_reset(&mut self, id: CallId) {
        if let Some(waker) = self.remove(id).and_then(|reply| reply.waker) {
            waker.wake();
        }
    }

    pub(super) fn on_credit(&mut self, id: CallId, bytes: usize) {
        if let Some(reply) = get(&mut self.calls, id) {
            reply.credit = reply.credit.saturating_add(bytes);
            self.go_on(id);
        }
        if let Some(waker) = get(&mut self.calls, id).and_then(|reply| reply.waker.take()) {
            waker.wake();
        }
    }

    /// The stream is gone, and all clients with it.
    pub(super) fn end_all(&mut self) {
        self.open = 0;
        self.outgoing = Outgoing::default();
        for reply in self.calls.drain(..).flatten() {
            if let Some(waker) = reply.waker {
                waker.wake();
            }
        }
    }

    // === for the calls ===

    pub(super) fn poll_gone(&mut self, id: CallId, context: &Context<'_>) -> Poll<()> {
        match get(&mut self.calls, id) {
            Some(reply) => reply.wait(context),
            None => Poll::Ready(()),
        }
    }

    pub(super) fn poll_room(&mut self, id: CallId, context: &Context<'_>) -> Poll<()> {
        match get(&mut self.calls, id) {
            Some(reply) if reply.credit == 0 => reply.wait(context),
            _ => Poll::Ready(()),
        }
    }

    pub(super) fn send_head(&mut self, id: CallId, response: &Response<()>) {
        if get(&mut self.calls, id).is_some() {
            let head = (response.status(), response.headers());
            let put = put_head(&mut self.outgoing.wire, id, head);
            self.check(id, put);
        }
    }

    pub(super) fn send_whole(&mut self, id: CallId, response: &Response<()>, body: Message) {
        if body.len() > BODY_BYTES_MAX {
            self.send_head(id, response);
            self.send_data(id, body.segments);
            return self.finish(id, HeaderMap::new());
        }
        if get(&mut self.calls, id).is_none() {
            return;
        }
        let head = (response.status(), response.headers());
        let put = put_whole(&mut self.outgoing.wire, id, head, body.len());
        if put.is_ok() {
            body.segments.into_iter().for_each(|segment| self.outgoing.push(segment));
            self.remove(id);
        }
        self.check(id, put);
    }

    pub(super) fn send_data(&mut self, id: CallId, pieces: impl IntoIterator<Item = Bytes>) {
        if let Some(reply) = get(&mut self.calls, id) {
            reply.backlog.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
            self.go_on(id);
        }
    }

    /// Nothing follows but the trailers, if there are any.
    pub(super) fn finish(&mut self, id: CallId, trailers: HeaderMap) {
        if let Some(reply) = get(&mut self.calls, id) {
            reply.is_finished = true;
            reply.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
            self.go_on(id);
        }
    }

    pub(super) fn send_reset(&mut self, id: CallId, reason: Reason) {
        if self.remove(id).is_some() {
            put_reset(&mut self.outgoing.wire, id, reason);
            self.wake();
        }
    }

    /// Whoever answered the call is gone.
    pub(super) fn abandon(&mut self, id: CallId) {
        if get(&mut self.calls, id).is_some_and(|reply| !reply.is_finished) {
            self.send_reset(id, Reason::CANCEL);
        }
    }

    // === what both do ===

    /// Sends what there is credit for.
    fn go_on(&mut self, id: CallId) {
        let Some(reply) = get(&mut self.calls, id) else { return };
        loop {
            let length = reply.backlog.iter().map(Bytes::len).sum::<usize>();
            let length = length.min(reply.credit).min(PIECE_BYTES_MAX);
            if length == 0 {
                break;
            }
            put_piece(&mut self.outgoing.wire, id, length, false);
            reply.credit -= length;
            reply.take(length, |bytes| self.outgoing.push(bytes));
        }
        if reply.is_finished && reply.backlog.is_empty() {
            let trailers = reply.trailers.take();
            self.remove(id);
            let wire = &mut self.outgoing.wire;
            let put = if let Some(trailers) = trailers {
                put_trailers(wire, id, &trailers)
            } else {
                put_piece(wire, id, 0, true);
                Ok(())
            };
            return self.check(id, put);
        }
        self.wake();
    }

    /// What cannot be said in a frame cannot be said: the limits of heads are below those of frames.
    fn check(&mut self, id: CallId, put: Result<(), TooLong>) {
        if put.is_err() {
            self.remove(id);
            put_reset(&mut self.outgoing.wire, id, Reason::INTERNAL_ERROR);
        }
        self.wake();
    }

    fn remove(&mut self, id: CallId) -> Option<Reply> {
        get(&mut self.calls, id)?;
        self.open -= 1;
        self.calls[id.place as usize].take()
    }

    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

/// `None`: the call is over for its client.
fn get(calls: &mut [Option<Reply>], id: CallId) -> Option<&mut Reply> {
    let reply = calls.get_mut(id.place as usize)?.as_mut();
    reply.filter(|reply| reply.serial == id.serial)
}

// === impl Reply ===

impl Reply {
    fn new(serial: u32) -> Self {
        Self {
            serial,
            credit: CREDIT_BYTES_INITIAL,
            backlog: VecDeque::new(),
            trailers: None,
            is_finished: false,
            waker: None,
        }
    }

    /// Takes `length` bytes of what waits for credit.
    fn take(&mut self, length: usize, mut push: impl FnMut(Bytes)) {
        let mut left = length;
        while left > 0 {
            let Some(piece) = self.backlog.front_mut() else { return };
            let part = piece.split_to(left.min(piece.len()));
            left -= part.len();
            if piece.is_empty() {
                self.backlog.pop_front();
            }
            push(part);
        }
    }

    fn wait(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

// === impl Outgoing ===

impl Outgoing {
    fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            self.wire.extend_from_slice(&bytes);
            return;
        }
        self.seal();
        self.parts.push(bytes);
    }

    fn seal(&mut self) {
        if !self.wire.is_empty() {
            self.parts.push(std::mem::take(&mut self.wire).into());
        }
    }

    fn take(&mut self) -> Option<Message> {
        let written = self.wire.len();
        self.seal();
        if self.parts.is_empty() {
            return None;
        }
        // The next turn has about as much to say.
        self.wire = Wire::with_capacity(written);
        Some(Message { segments: std::mem::take(&mut self.parts), compressed: false })
    }
}

// === impl RelayedReply ===

impl RelayedReply {
    pub(super) fn new(replies: &Rc<RefCell<Replies>>, id: CallId) -> Self {
        Self { replies: Rc::clone(replies), id }
    }

    pub(super) fn poll_gone(&self, context: &Context<'_>) -> Poll<()> {
        self.replies.borrow_mut().poll_gone(self.id, context)
    }

    /// As `Sink::poll_room`.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        self.replies.borrow_mut().poll_room(self.id, context)
    }

    pub(super) fn send_head(&self, response: &Response<()>) {
        self.replies.borrow_mut().send_head(self.id, response);
    }

    pub(super) fn send_whole(&self, response: &Response<()>, body: Message) {
        self.replies.borrow_mut().send_whole(self.id, response, body);
    }

    pub(super) fn send_data(&self, pieces: impl IntoIterator<Item = Bytes>) {
        self.replies.borrow_mut().send_data(self.id, pieces);
    }

    pub(super) fn send_trailers(&self, trailers: HeaderMap) {
        self.replies.borrow_mut().finish(self.id, trailers);
    }

    pub(super) fn send_reset(&self, reason: Reason) {
        self.replies.borrow_mut().send_reset(self.id, reason);
    }
}

impl Drop for RelayedReply {
    fn drop(&mut self) {
        self.replies.borrow_mut().abandon(self.id);
    }
}
