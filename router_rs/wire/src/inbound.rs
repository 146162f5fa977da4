//! The received part of one body: its pieces up to the announced length, its trailers, and its end.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::errors::Cut;
use crate::frame::{CREDIT_BYTES_INITIAL, CREDIT_BYTES_LENT, DETACHED_BYTES_MAX, code};

#[derive(Debug)]
pub(crate) struct Inbound {
    /// The first piece is stored inline: most bodies have no more, and need no list.
    first: Option<Bytes>,
    rest: VecDeque<Waiting>,
    /// The bytes of short pieces that wait: as separate pieces, each would keep everything that was
    /// read with it.
    short: BytesMut,
    pub(crate) trailers: Option<HeaderMap>,
    /// Everything has come, or nothing more will.
    pub(crate) end: Option<Result<(), Cut>>,
    /// Announced, but not yet received; `None`: nothing was announced.
    missing: Option<u64>,
    /// The bytes that may still come.
    room: usize,
    /// Taken, but not yet reported to the other side.
    owed: usize,
    /// The credit of bodies in the arena was given.
    is_lent: bool,
}

/// A piece after another one.
#[derive(Debug)]
enum Waiting {
    /// So many of the copied bytes.
    Short(usize),
    Long(Bytes),
}

impl Inbound {
    pub(crate) fn new() -> Self {
        Self {
            first: None,
            rest: VecDeque::new(),
            short: BytesMut::new(),
            trailers: None,
            end: None,
            missing: None,
            room: CREDIT_BYTES_INITIAL,
            owed: 0,
            is_lent: false,
        }
    }

    pub(crate) fn announce(&mut self, missing: Option<u64>) {
        self.missing = missing;
    }

    /// A piece that needs credit.
    ///
    /// # Errors
    /// It exceeds what was announced or allowed: the code to reset the call with.
    pub(crate) fn on_piece(&mut self, bytes: Bytes, is_final: bool) -> Result<(), u32> {
        self.room = self.room.checked_sub(bytes.len()).ok_or(code::PROTOCOL_ERROR)?;
        self.add(bytes, is_final)
    }

    /// Gives more credit to a body that comes through the arena, once, if it has as much to send.
    pub(crate) fn widen(&mut self) -> Option<u32> {
        let has_more = self.missing.is_none_or(|missing| missing > self.room as u64);
        if self.is_lent || self.end.is_some() || !has_more {
            return None;
        }
        self.is_lent = true;
        self.room += CREDIT_BYTES_LENT;
        u32::try_from(CREDIT_BYTES_LENT).ok()
    }

    /// Like `on_piece`, for a body that came with its head.
    pub(crate) fn add(&mut self, bytes: Bytes, is_final: bool) -> Result<(), u32> {
        let length = bytes.len() as u64;
        let is_as_announced = self
            .missing
            .is_none_or(|missing| if is_final { length == missing } else { length <= missing });
        if !is_as_announced {
            return Err(code::PROTOCOL_ERROR);
        }
        self.missing = self.missing.map(|missing| missing - length);
        self.keep(bytes);
        if is_final {
            self.end = Some(Ok(()));
        }
        Ok(())
    }

    fn keep(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = Some(bytes);
        } else if bytes.len() <= DETACHED_BYTES_MAX {
            if self.short.capacity() - self.short.len() < bytes.len() {
                // Twice as much: while a piece is still held, this copies all waiting bytes.
                self.short.reserve(self.short.len() + bytes.len());
            }
            self.short.extend_from_slice(&bytes);
            self.rest.push_back(Waiting::Short(bytes.len()));
        } else {
            self.rest.push_back(Waiting::Long(bytes));
        }
    }

    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        if self.first.is_some() {
            return self.first.take();
        }
        Some(match self.rest.pop_front()? {
            Waiting::Short(length) => self.short.split_to(length).freeze(),
            Waiting::Long(piece) => piece,
        })
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    pub(crate) fn is_end(&self) -> bool {
        matches!(self.end, Some(Ok(()))) && self.is_empty() && self.trailers.is_none()
    }

    /// `bytes` have been taken. Returns the credit to give, in amounts that are worth a frame.
    pub(crate) fn release(&mut self, bytes: usize) -> Option<u32> {
        self.owed += bytes;
        if self.owed < CREDIT_BYTES_INITIAL / 4 || self.end.is_some() {
            return None;
        }
        self.room += self.owed;
        u32::try_from(std::mem::take(&mut self.owed)).ok()
    }
}
