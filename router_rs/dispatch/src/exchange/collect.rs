//! Determines how much of a request's body must arrive before a replica is asked for a place: a
//! client that sends slowly must not hold a place meanwhile.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use router_call::{Caller, Cancelled, Piece};
use router_io::Alarm;

use crate::exchange::upload::Upload;

/// The most that is collected. Arbitrary: larger bodies take a place at a replica while they come.
pub const COLLECTED_BYTES_MAX: usize = 64 * 1024;

/// The part of the body that is awaited before the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The body is a stream of messages, or there is none.
    Nothing,
    /// Its beginning, for at most that long: the other side may have to send first.
    Start(Duration),
    /// All of it, or [`COLLECTED_BYTES_MAX`].
    Body,
}

/// The wait for a body, or for its start. It has no limit of its own except for [`Awaited::Start`]:
/// the caller's end knows when its client is too slow.
#[derive(Debug)]
pub(crate) struct Collection {
    awaited: Awaited,
    /// The first piece, as long as it is the only one.
    first: Bytes,
    joined: BytesMut,
    alarm: Option<Alarm>,
}

// === impl Collection ===

impl Collection {
    pub(crate) fn new(awaited: Awaited) -> Self {
        Self { awaited, first: Bytes::new(), joined: BytesMut::new(), alarm: None }
    }

    /// Ready when enough has come, and is in `upload`.
    pub(crate) fn poll<C: Caller>(
        &mut self,
        caller: &mut C,
        upload: &mut Upload,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        loop {
            let Poll::Ready(piece) = caller.poll_piece(cx) else {
                return self.poll_alarm(cx).map(Ok);
            };
            let Piece { bytes, is_last } = piece?;
            self.add(bytes);
            if is_last || self.is_enough() {
                upload.add(Piece { bytes: self.take(), is_last });
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Awaited::Start(limit) = self.awaited else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Alarm::at(Instant::now() + limit));
        alarm.poll(cx)
    }

    fn is_enough(&self) -> bool {
        let length = self.first.len() + self.joined.len();
        match self.awaited {
            Awaited::Nothing => true,
            Awaited::Start(_) => length > 0,
            Awaited::Body => length >= COLLECTED_BYTES_MAX,
        }
    }

    /// Small pieces are joined: each would cost the replica a frame, and us more than its bytes.
    fn add(&mut self, bytes: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = bytes;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&bytes);
    }

    fn take(&mut self) -> Bytes {
        if self.joined.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            std::mem::take(&mut self.joined).freeze()
        }
    }
}
