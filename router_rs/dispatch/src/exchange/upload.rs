//! The path of the request: pieces from the caller to the connection, with end-to-end flow control.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request;
use router_call::{Caller, Cancelled, Piece};
use router_protocol::names::is_websocket;
use router_protocol::windows::STREAM_WINDOW_BYTES;
use router_upstream::connection::{Connection, Sends, Started};
use router_upstream::request_body::{Closed, RequestBody};
use router_wire::is_small;
use smallvec::SmallVec;

use crate::replay_buffer::ReplayBuffer;

/// A first piece up to this size is sent without asking for window: one frame of the size that
/// every peer accepts. h2 gives a new stream no window before its connection has opened it, so
/// asking would send the head alone and wake the replica twice.
const FIRST_PIECE_BYTES_MAX: usize = 16 * 1024;

/// As much is sent at once: the most that a frame of the wire has. Not of a WebSocket, whose pieces
/// may be many small messages each: those of a client that is gone need not be sent.
const GATHERED_BYTES_MAX: usize = STREAM_WINDOW_BYTES as usize;

/// The parts of the request: received, sent, and kept for another attempt.
#[derive(Debug)]
pub struct Upload {
    replay: ReplayBuffer,
    /// Received but not yet sent in this attempt. At most one piece, unless an attempt repeats it
    /// or it came before the attempt.
    unsent: VecDeque<Bytes>,
    /// The last piece has come.
    is_complete: bool,
    /// END_STREAM was sent, or the other side wants no more.
    is_closed: bool,
    /// Bytes sent in this attempt, and the most that any attempt has sent: bytes beyond that are
    /// returned to the caller's window.
    sent: usize,
    returned: usize,
    gathered_bytes_max: usize,
}

impl Upload {
    pub fn new(replay: ReplayBuffer, is_complete: bool) -> Self {
        Self {
            replay,
            unsent: VecDeque::new(),
            is_complete,
            is_closed: false,
            sent: 0,
            returned: 0,
            gathered_bytes_max: GATHERED_BYTES_MAX,
        }
    }

    /// Whether the caller sends no more.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The whole body, if all of it is here.
    pub fn whole(&self) -> Option<&[Bytes]> {
        (self.is_complete && self.replay.is_whole()).then(|| self.replay.pieces())
    }

    /// The length of the body, if all of it is here.
    pub(crate) fn whole_bytes(&self) -> Option<u64> {
        let bytes = || self.unsent.iter().map(|piece| piece.len() as u64).sum();
        (self.is_complete && self.sent == 0).then(bytes)
    }

    /// Of the body, in this attempt.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent as u64
    }

    /// A piece has come, before the first attempt or while nothing else is left to send.
    pub(crate) fn add(&mut self, piece: Piece) {
        self.is_complete = piece.is_last;
        self.replay.push(&piece.bytes);
        self.unsent.push_back(piece.bytes);
    }

    /// Takes what has arrived already, before anything is sent: no more than shows whether the
    /// request is complete and small.
    pub(crate) fn look<C: Caller>(
        &mut self,
        caller: &mut C,
        cx: &mut Context<'_>,
    ) -> Result<(), Cancelled> {
        while !self.is_complete && self.sent == 0 && is_small(&self.unsent) {
            match self.poll_caller(caller, cx) {
                Poll::Ready(taken) => taken?,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Starts an attempt, with the whole body if it is complete and small; the first one, or only
    /// while [`Upload::may_repeat`].
    ///
    /// # Errors
    /// Like [`Connection::start`].
    pub(crate) fn start(
        &mut self,
        connection: &Rc<Connection>,
        head: &request::Parts,
    ) -> Result<Started, String> {
        if self.sent > 0 {
            self.unsent = self.replay.pieces().iter().cloned().collect();
            self.sent = 0;
        }
        if is_websocket(&head.headers) {
            self.gathered_bytes_max = 0;
        }
        let bytes = self.unsent.iter().map(Bytes::len).sum();
        let sends = match bytes {
            _ if !self.is_complete || !is_small(&self.unsent) => Sends::Later,
            0 => Sends::Nothing,
            _ => Sends::All(self.unsent.make_contiguous()),
        };
        let follows = matches!(sends, Sends::Later);
        let started = connection.start(head, sends)?;
        if !follows {
            self.unsent.clear();
            self.sent = bytes;
        }
        self.is_closed = !follows;
        Ok(started)
    }

    /// The same request for an attempt beside this one; only if it is complete and kept whole. It
    /// asks nothing of the caller.
    pub(crate) fn again(&self) -> Self {
        Self {
            replay: self.replay.none(),
            unsent: self.replay.pieces().iter().cloned().collect(),
            is_complete: true,
            is_closed: false,
            sent: 0,
            // The caller's window is returned for the first attempt only.
            returned: usize::MAX,
            gathered_bytes_max: GATHERED_BYTES_MAX,
        }
    }

    /// Everything that was sent is still kept.
    pub fn may_repeat(&self) -> bool {
        self.replay.is_whole()
    }

    /// The answer has begun: there will be no other attempt.
    pub fn commit(&mut self) {
        self.replay.commit();
    }

    /// Moves as much as possible. Ready when the whole request is sent, or the other side takes no
    /// more of it (its answer says why).
    pub fn poll<C: Caller>(
        &mut self,
        caller: &mut C,
        mut stream: Option<&mut RequestBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        while !self.is_closed {
            let Some(stream) = &mut stream else { break };
            ready!(self.gather(caller, cx))?;
            if ready!(self.poll_send(stream, cx)).is_err() {
                self.is_closed = true;
            }
            self.give_back(caller);
        }
        // Of what went with the head.
        self.give_back(caller);
        Poll::Ready(Ok(()))
    }

    fn give_back<C: Caller>(&mut self, caller: &mut C) {
        if self.sent > self.returned {
            caller.accepted(self.sent - self.returned);
            self.returned = self.sent;
        }
    }

    /// Takes what has come and is not sent: one large frame costs the other side less than many.
    fn gather<C: Caller>(
        &mut self,
        caller: &mut C,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        let mut bytes: usize = self.unsent.iter().map(Bytes::len).sum();
        while !self.is_complete && (bytes < self.gathered_bytes_max || self.unsent.is_empty()) {
            match self.poll_caller(caller, cx) {
                Poll::Ready(taken) => taken?,
                Poll::Pending if self.unsent.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
            bytes += self.unsent.back().map_or(0, Bytes::len);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_caller<C: Caller>(
        &mut self,
        caller: &mut C,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        let piece = ready!(caller.poll_piece(cx))?;
        self.add(piece);
        Poll::Ready(Ok(()))
    }

    /// Sends the unsent pieces, as far as there is window. Those that were not sent may be sent in
    /// another attempt.
    fn poll_send(
        &mut self,
        stream: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Closed>> {
        let bytes: usize = self.unsent.iter().map(Bytes::len).sum();
        let goes_with_head = self.sent == 0 && bytes <= FIRST_PIECE_BYTES_MAX;
        let room =
            if bytes == 0 || goes_with_head { bytes } else { ready!(stream.poll_room(bytes, cx))? };
        let is_end = self.is_complete && room == bytes;
        self.sent += room;
        // No bytes only mark the end of the request, or mean nothing.
        if is_end || room > 0 {
            stream.send_pieces(self.take(room).into_iter(), is_end)?;
        }
        self.is_closed = is_end;
        Poll::Ready(Ok(()))
    }

    /// Takes `bytes` bytes of the unsent pieces; all of them if they have no more.
    fn take(&mut self, bytes: usize) -> SmallVec<[Bytes; 4]> {
        let (mut taken, mut left) = (SmallVec::new(), bytes);
        while let Some(piece) = self.unsent.front_mut() {
            if piece.len() > left {
                if left > 0 {
                    taken.push(piece.split_to(left));
                }
                break;
            }
            left -= piece.len();
            taken.extend(self.unsent.pop_front());
        }
        taken
    }
}
