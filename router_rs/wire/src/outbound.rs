//! The part of a body still to be sent: data that waits for credit, and its end.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, request};
use router_arena::Arena;
use router_protocol::names;

use crate::errors::TooLong;
use crate::frame::{CREDIT_BYTES_INITIAL, CallId, LENT_BYTES_MIN, Place};
use crate::outgoing::Outgoing;

#[derive(Debug)]
pub(crate) struct Outbound {
    /// The bytes that may be sent.
    pub(crate) credit: usize,
    /// Waits for it.
    backlog: VecDeque<Bytes>,
    backlog_bytes: usize,
    end: End,
    /// Whether long pieces may go through the arena.
    may_lend: bool,
}

#[derive(Debug)]
enum End {
    /// More may follow.
    Open,
    /// Nothing follows the backlog but these.
    Follows(Option<HeaderMap>),
    Sent,
}

impl Outbound {
    pub(crate) fn new() -> Self {
        Self {
            credit: CREDIT_BYTES_INITIAL,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            end: End::Open,
            may_lend: true,
        }
    }

    /// For a request body that follows `head`. Much of a WebSocket is many small messages, which take
    /// their reader long: it keeps to the credit that a body begins with.
    pub(crate) fn following(head: &request::Parts) -> Self {
        Self { may_lend: !names::is_websocket(&head.headers), ..Self::new() }
    }

    /// For a body that was sent with its head.
    pub(crate) fn sent() -> Self {
        Self { end: End::Sent, ..Self::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.end, End::Open)
    }

    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.end, End::Sent)
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.backlog_bytes += piece.len();
            self.backlog.push_back(piece);
        }
    }

    /// Only the trailers follow.
    pub(crate) fn finish(&mut self, trailers: HeaderMap) {
        self.end = End::Follows(Some(trailers).filter(|trailers| !trailers.is_empty()));
    }

    /// Writes as much as there is credit for.
    ///
    /// # Errors
    /// The trailers do not fit in a frame.
    pub(crate) fn write(
        &mut self,
        id: CallId,
        outgoing: &mut Outgoing,
        mut arena: Option<&mut Arena>,
    ) -> Result<(), TooLong> {
        // One frame carries no more than the credit that a body begins with.
        loop {
            let length = self.backlog_bytes.min(self.credit).min(CREDIT_BYTES_INITIAL);
            let is_all = length == self.backlog_bytes;
            if length == 0 && !is_all {
                return Ok(());
            }
            let is_final = is_all && matches!(self.end, End::Follows(None));
            if let Some(place) = arena.as_deref_mut().and_then(|arena| self.lend(length, arena)) {
                outgoing.put_lent(id, place, is_final);
            } else if length > 0 || is_final {
                outgoing.put_piece(id, length, is_final);
                self.take(length, |bytes| outgoing.push(&bytes));
            }
            if is_final {
                self.end = End::Sent;
            }
            if is_all {
                break;
            }
        }
        if let End::Follows(Some(trailers)) = &self.end {
            outgoing.put_trailers(id, trailers)?;
            self.end = End::Sent;
        }
        Ok(())
    }

    /// Copies `length` bytes of the data into the arena; `None` if they are few or must not go there,
    /// or it is full.
    fn lend(&mut self, length: usize, arena: &mut Arena) -> Option<Place> {
        if !self.may_lend || length < LENT_BYTES_MIN {
            return None;
        }
        let mut lease = arena.lend(length)?;
        self.take(length, |bytes| lease.put(&bytes));
        Some(Place { first_block: lease.finish(), bytes: length as u32 })
    }

    /// Takes `length` bytes of the data that waits for credit.
    fn take(&mut self, length: usize, mut push: impl FnMut(Bytes)) {
        self.credit -= length;
        self.backlog_bytes -= length;
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
}
