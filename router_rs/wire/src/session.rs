//! The calls of one connection, at one of its ends.
//!
//! The driver of the connection passes frames in and writes the outgoing ones. Calls send data and
//! poll for received data. Both sides of a call are polled by one task.

mod client;
mod incoming;
mod lending;
mod server;

use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{HeaderMap, request, response};
use router_arena::Arena;

use crate::errors::{Cut, Malformed, TooLong};
use crate::frame::{CALLS_MAX, CallId, Frame, Kind, code};
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::outgoing::Outgoing;

/// The amount of unwritten data up to which a server still reads calls: unread answers are kept
/// here, and short ones need no credit. Arbitrary.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;

/// The caller's side or the answering side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// A call that a server has received.
#[derive(Debug)]
pub struct Called {
    pub id: CallId,
    pub head: request::Parts,
    /// `None`: it follows.
    pub body: Option<Bytes>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Session {
    side: Side,
    /// By place.
    calls: Vec<Option<Call>>,
    /// Places that a client may reuse.
    free: Vec<u32>,
    /// How many calls there are.
    open: usize,
    /// The number of the client's next call. Frames for an earlier call in its place are ignored.
    serial: u32,
    outgoing: Outgoing,
    memory: Memory,
    /// The driver's waker, while it waits.
    driver: Option<Waker>,
    /// `Last` was sent, or received.
    is_last_said: bool,
    is_last_heard: bool,
    owes_pong: bool,
}

/// The memory that is shared with the other side.
#[derive(Debug)]
enum Memory {
    None,
    /// The server may map it.
    Offered(Arena),
    Shared(Arena),
}

#[derive(Debug)]
struct Call {
    serial: u32,
    /// Of the answer, at the client.
    head: Head,
    /// The server has said that it works on the call, at the client.
    is_started: bool,
    inbound: Inbound,
    outbound: Outbound,
    waker: Option<Waker>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // places are used again, and a box would be made anew
enum Head {
    Awaited {
        is_of_head_request: bool,
    },
    Come(response::Parts),
    /// Or is not wanted.
    Taken,
}

impl Session {
    pub fn new(side: Side) -> Self {
        Self {
            side,
            calls: Vec::new(),
            free: Vec::new(),
            open: 0,
            serial: 0,
            outgoing: Outgoing::default(),
            memory: Memory::None,
            driver: None,
            is_last_said: false,
            is_last_heard: false,
            owes_pong: false,
        }
    }

    /// A session whose large pieces go through `arena`: at a server from the start, at a client once
    /// the server has said that it has mapped it.
    pub fn with_arena(side: Side, arena: Option<Arena>) -> Self {
        let mut session = Self::new(side);
        session.memory = match (arena, side) {
            (None, _) => Memory::None,
            (Some(arena), Side::Client) => Memory::Offered(arena),
            (Some(arena), Side::Server) => {
                session.outgoing.put_sign(Kind::Mapped);
                Memory::Shared(arena)
            }
        };
        session
    }

    // === for the driver ===

    /// Handles a received frame. At a server it may be a call, which has its place from here on.
    ///
    /// # Errors
    /// The other side uses another protocol.
    pub fn on_frame(&mut self, frame: Frame) -> Result<Option<Called>, Malformed> {
        match (frame, self.side) {
            (Frame::Call { id, payload }, Side::Server) => return self.on_call(id, payload, true),
            (Frame::Begin { id, payload }, Side::Server) => {
                return self.on_call(id, payload, false);
            }
            (Frame::Whole { id, payload }, Side::Client) => self.on_whole(id, payload),
            (Frame::Head { id, payload }, Side::Client) => self.on_head(id, payload),
            (Frame::Trailers { id, payload }, Side::Client) => self.on_trailers(id, payload),
            (Frame::Piece { id, bytes, is_final }, _) => self.on_piece(id, bytes, is_final),
            (Frame::Lent { id, place, is_final }, _) => self.on_lent(id, place, is_final)?,
            (Frame::Mapped, Side::Client) => self.memory.share()?,
            (Frame::Started { id }, Side::Client) => self.on_started(id),
            (Frame::Credit { id, bytes }, _) => self.on_credit(id, bytes as usize),
            (Frame::Reset { id, code }, _) => self.on_cut(id, Cut::Reset { code, is_remote: true }),
            (Frame::Last, _) => {
                self.is_last_heard = true;
                if self.side == Side::Client {
                    // The server waits for it: the calls before it are all that it gets.
                    self.say_last();
                }
            }
            (Frame::Ping, _) => self.owes_pong = true,
            (Frame::Pong, _) => {}
            (
                Frame::Call { .. }
                | Frame::Begin { .. }
                | Frame::Whole { .. }
                | Frame::Head { .. }
                | Frame::Trailers { .. }
                | Frame::Started { .. }
                | Frame::Mapped,
                _,
            ) => return Err(Malformed::UNEXPECTED),
        }
        Ok(None)
    }

    /// The bytes to write.
    pub fn outgoing(&mut self) -> &mut Outgoing {
        // Any other frame is an equally good sign of life.
        if std::mem::take(&mut self.owes_pong) && !self.outgoing.has_remaining() {
            self.outgoing.put_sign(Kind::Pong);
        }
        &mut self.outgoing
    }

    /// Whether a client may begin a call.
    pub fn takes_calls(&self) -> bool {
        !self.is_last_said && self.open < CALLS_MAX as usize
    }

    /// The driver of a server must write before it reads more. A client's driver always reads, or
    /// both might wait for each other.
    pub fn is_full(&self) -> bool {
        self.side == Side::Server && self.outgoing.remaining() > UNWRITTEN_BYTES_MAX
    }

    #[cfg(test)]
    pub(crate) fn has_arena(&self) -> bool {
        self.memory.arena().is_some()
    }

    /// Whether the arena's memory is worth giving back some time; see [`Session::rest`].
    pub fn has_memory(&self) -> bool {
        self.memory.arena().is_some_and(Arena::has_memory)
    }

    /// Gives the arena's memory back if nothing has been sent through it since the last call. The
    /// driver calls it from time to time while it [`Session::has_memory`].
    pub fn rest(&mut self) {
        self.memory.shared().into_iter().for_each(Arena::rest);
    }

    /// Sends a PING.
    pub fn ping(&mut self) {
        self.outgoing.put_sign(Kind::Ping);
        self.wake_driver();
    }

    /// Ends the calls: a client begins no more, a server announces `Last`.
    pub fn say_last(&mut self) {
        if !self.is_last_said {
            self.is_last_said = true;
            self.outgoing.put_sign(Kind::Last);
            self.wake_driver();
        }
    }

    /// Whether everything is finished and written.
    pub fn is_over(&self) -> bool {
        let is_last = match self.side {
            Side::Client => self.is_last_said,
            Side::Server => self.is_last_heard,
        };
        is_last && self.open == 0 && !self.outgoing.has_remaining()
    }

    /// The driver is awake: it writes further frames without being woken.
    pub fn begin_turn(&mut self) {
        self.driver = None;
    }

    /// Wakes the driver when there are frames to write, or everything is over.
    pub fn wait(&mut self, cx: &Context<'_>) {
        wait(&mut self.driver, cx);
    }

    /// The connection is gone.
    pub fn lose(&mut self) {
        self.is_last_said = true;
        self.outgoing = Outgoing::default();
        // References to the session must not keep the memory.
        self.memory = Memory::None;
        for call in self.calls.iter_mut().flatten() {
            call.inbound.end.get_or_insert(Err(Cut::Lost));
            call.wake();
        }
        if self.side == Side::Server {
            self.calls.clear();
            self.open = 0;
        }
    }

    // === for the calls of both ===

    pub fn poll_data(&mut self, id: CallId, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let Some(call) = self.get(id) else {
            // The client has left the call of a server; a client polls only its own calls.
            let is_client = self.side == Side::Client;
            return Poll::Ready(if is_client { None } else { Some(Err(Cut::Lost)) });
        };
        if let Some(piece) = call.inbound.next_piece() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match call.inbound.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(cut)) => Poll::Ready(Some(Err(cut))),
            None => call.wait(cx),
        }
    }

    /// Acknowledges `bytes`, which were passed on: as many more may come.
    pub fn release(&mut self, id: CallId, bytes: usize) {
        if let Some(credit) = self.get(id).and_then(|call| call.inbound.release(bytes)) {
            self.outgoing.put_credit(id, credit);
            self.wake_driver();
        }
    }

    /// How many bytes may be sent, at least 1; `None`: the other side accepts no more.
    pub fn poll_room(&mut self, id: CallId, cx: &Context<'_>) -> Poll<Option<usize>> {
        match self.answering(id) {
            Some(call) if call.outbound.credit == 0 => call.wait(cx),
            Some(call) => Poll::Ready(Some(call.outbound.credit)),
            None => Poll::Ready(None),
        }
    }

    /// Sends as much as there is credit for; the rest when there is more.
    pub fn send(&mut self, id: CallId, pieces: impl IntoIterator<Item = Bytes>) {
        if let Some(call) = self.answering(id) {
            pieces.into_iter().for_each(|piece| call.outbound.push(piece));
            self.write(id);
        }
    }

    /// Only the trailers follow, if there are any.
    pub fn finish(&mut self, id: CallId, trailers: HeaderMap) {
        if let Some(call) = self.answering(id) {
            call.outbound.finish(trailers);
            self.write(id);
        }
    }

    /// The last pieces.
    pub fn send_last(&mut self, id: CallId, pieces: impl IntoIterator<Item = Bytes>) {
        if let Some(call) = self.answering(id) {
            pieces.into_iter().for_each(|piece| call.outbound.push(piece));
        }
        self.finish(id, HeaderMap::new());
    }

    /// Whether the other side accepts data.
    pub fn is_sending(&self, id: CallId) -> bool {
        self.look(id).is_some_and(|call| call.takes_more(self.side))
    }

    // === what all do ===

    fn write(&mut self, id: CallId) {
        let Some(call) = get(&mut self.calls, id) else { return };
        let put = call.outbound.write(id, &mut self.outgoing, self.memory.shared());
        if call.outbound.is_sent() && self.side == Side::Server {
            self.take(id);
        }
        self.check_put(id, put);
    }

    /// A head that does not fit in a frame cannot be sent: the limits of heads are below those of
    /// frames.
    fn check_put(&mut self, id: CallId, put: Result<(), TooLong>) {
        if put.is_err() {
            self.take(id);
            self.outgoing.put_reset(id, code::INTERNAL_ERROR);
        }
        self.wake_driver();
    }

    fn take(&mut self, id: CallId) -> Option<Call> {
        self.get(id)?;
        self.open -= 1;
        self.calls[id.place as usize].take()
    }

    /// `None`: the call is over here.
    fn get(&mut self, id: CallId) -> Option<&mut Call> {
        get(&mut self.calls, id)
    }

    fn look(&self, id: CallId) -> Option<&Call> {
        let call = self.calls.get(id.place as usize)?.as_ref();
        call.filter(|call| call.serial == id.serial)
    }

    /// Like `get`, while data may still come.
    fn unended(&mut self, id: CallId) -> Option<&mut Call> {
        self.get(id).filter(|call| call.inbound.end.is_none())
    }

    /// Like `get`, while data may still be sent: a call ends with its answer.
    fn answering(&mut self, id: CallId) -> Option<&mut Call> {
        let side = self.side;
        self.get(id).filter(|call| call.takes_more(side))
    }

    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

fn get(calls: &mut [Option<Call>], id: CallId) -> Option<&mut Call> {
    let call = calls.get_mut(id.place as usize)?.as_mut();
    call.filter(|call| call.serial == id.serial)
}

// === impl Memory ===

impl Memory {
    /// The other side has mapped it.
    fn share(&mut self) -> Result<(), Malformed> {
        match std::mem::replace(self, Memory::None) {
            Memory::None => Err(Malformed::UNEXPECTED),
            Memory::Offered(arena) | Memory::Shared(arena) => {
                *self = Memory::Shared(arena);
                Ok(())
            }
        }
    }

    /// The memory from which the other side may have lent.
    fn arena(&self) -> Option<&Arena> {
        match self {
            Memory::None => None,
            Memory::Offered(arena) | Memory::Shared(arena) => Some(arena),
        }
    }

    /// The memory from which this side may lend.
    fn shared(&mut self) -> Option<&mut Arena> {
        if let Memory::Shared(arena) = self { Some(arena) } else { None }
    }
}

// === impl Call ===

impl Call {
    fn new(serial: u32, head: Head, inbound: Inbound, outbound: Outbound) -> Self {
        Self { serial, head, is_started: false, inbound, outbound, waker: None }
    }

    /// Whether the other side accepts data from this one.
    fn takes_more(&self, side: Side) -> bool {
        self.outbound.is_open() && (side == Side::Server || self.inbound.end.is_none())
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        wait(&mut self.waker, cx);
        Poll::Pending
    }
}

fn wait(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}
