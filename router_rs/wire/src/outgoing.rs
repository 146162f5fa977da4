//! The frames to write next, in parts that are left separate where joining costs more.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode, request};

use crate::block;
use crate::errors::TooLong;
use crate::frame::{BLOCK_BYTES_MAX, CallId, Kind, PREFIX_BYTES, Place};

/// Bytes up to this size are copied between the frames, which is cheaper than a separate part.
/// Longer ones are written from where they are.
const COPIED_BYTES_MAX: usize = 4096;

/// A buffer that has grown beyond this is freed once all of it is written.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The bytes of frames, in order. [`Buf::advance`] removes those that are written.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Before `buffer`.
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    buffer: Vec<u8>,
    /// Of `buffer`.
    written: usize,
}

// === frames ===

impl Outgoing {
    /// Writes a call with its whole body; or nothing.
    pub(crate) fn put_call(
        &mut self,
        id: CallId,
        head: &request::Parts,
        body: &[Bytes],
    ) -> Result<(), TooLong> {
        let body_bytes = body.iter().map(Bytes::len).sum();
        self.put_block(Kind::Call, id, body_bytes, |block| block::put_call(block, head))?;
        for piece in body {
            self.push(piece);
        }
        Ok(())
    }

    /// Writes the head of a call whose body follows; or nothing.
    pub(crate) fn put_begin(&mut self, id: CallId, head: &request::Parts) -> Result<(), TooLong> {
        self.put_block(Kind::Begin, id, 0, |block| block::put_call(block, head))
    }

    /// Writes an answer with its trailers and its whole body; or nothing.
    pub(crate) fn put_whole(
        &mut self,
        id: CallId,
        head: (StatusCode, &HeaderMap),
        trailers: &HeaderMap,
        (body, body_bytes): (impl IntoIterator<Item = Bytes>, usize),
    ) -> Result<(), TooLong> {
        let put = |block: &mut Vec<u8>| block::put_whole(block, head, trailers);
        self.put_block(Kind::Whole, id, body_bytes, put)?;
        for piece in body {
            self.push(&piece);
        }
        Ok(())
    }

    /// Writes the head of an answer whose rest follows; or nothing.
    pub(crate) fn put_head(
        &mut self,
        id: CallId,
        (status, headers): (StatusCode, &HeaderMap),
    ) -> Result<(), TooLong> {
        self.put_block(Kind::Head, id, 0, |block| block::put_answer(block, status, headers))
    }

    /// Writes trailers; or nothing.
    pub(crate) fn put_trailers(&mut self, id: CallId, trailers: &HeaderMap) -> Result<(), TooLong> {
        self.put_block(Kind::Trailers, id, 0, |block| block::put_pairs(block, trailers))
    }

    /// Writes the prefix of a piece of `bytes`, which the caller pushes.
    pub(crate) fn put_piece(&mut self, id: CallId, bytes: usize, is_final: bool) {
        self.put_prefix(if is_final { Kind::Final } else { Kind::Piece }, id, bytes);
    }

    /// Writes a piece that is in the arena.
    pub(crate) fn put_lent(&mut self, id: CallId, place: Place, is_final: bool) {
        self.put_prefix(if is_final { Kind::LentFinal } else { Kind::Lent }, id, 8);
        self.buffer.extend_from_slice(&place.first_block.to_be_bytes());
        self.buffer.extend_from_slice(&place.bytes.to_be_bytes());
    }

    pub(crate) fn put_credit(&mut self, id: CallId, bytes: u32) {
        self.put_prefix(Kind::Credit, id, 4);
        self.buffer.extend_from_slice(&bytes.to_be_bytes());
    }

    pub(crate) fn put_reset(&mut self, id: CallId, code: u32) {
        self.put_prefix(Kind::Reset, id, 4);
        self.buffer.extend_from_slice(&code.to_be_bytes());
    }

    pub(crate) fn put_started(&mut self, id: CallId) {
        self.put_prefix(Kind::Started, id, 0);
    }

    /// Writes a frame that belongs to no call: `Last`, `Ping`, `Pong`, `Mapped`.
    pub(crate) fn put_sign(&mut self, kind: Kind) {
        self.put_prefix(kind, CallId { place: 0, serial: 0 }, 0);
    }

    fn put_block(
        &mut self,
        kind: Kind,
        id: CallId,
        body_bytes: usize,
        put: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let start = self.buffer.len();
        self.put_prefix(kind, id, 0);
        let put = put(&mut self.buffer);
        let block_bytes = self.buffer.len() - start - PREFIX_BYTES;
        if put.is_err() || block_bytes > BLOCK_BYTES_MAX {
            self.buffer.truncate(start);
            return Err(TooLong);
        }
        self.buffer[start..start + 4].copy_from_slice(&length(block_bytes + body_bytes));
        Ok(())
    }

    fn put_prefix(&mut self, kind: Kind, id: CallId, payload_bytes: usize) {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..4].copy_from_slice(&length(payload_bytes));
        prefix[4] = kind as u8;
        prefix[5..9].copy_from_slice(&id.serial.to_be_bytes());
        prefix[9..].copy_from_slice(&id.place.to_be_bytes());
        self.buffer.extend_from_slice(&prefix);
    }

    #[cfg(test)]
    pub(crate) fn room_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    pub(crate) fn push(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            self.buffer.extend_from_slice(bytes);
            return;
        }
        if self.written < self.buffer.len() {
            let mut sealed = Bytes::from(std::mem::take(&mut self.buffer));
            sealed.advance(self.written);
            self.parts_bytes += sealed.len();
            self.parts.push_back(sealed);
        }
        self.buffer.clear();
        self.written = 0;
        self.parts_bytes += bytes.len();
        self.parts.push_back(bytes.clone());
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("invariant: frames are short").to_be_bytes()
}

// === what is left to write ===

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.parts_bytes + self.buffer.len() - self.written
    }

    fn has_remaining(&self) -> bool {
        !self.parts.is_empty() || self.written < self.buffer.len()
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&self.buffer[self.written..], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let last = Some(&self.buffer[self.written..]).filter(|rest| !rest.is_empty());
        let chunks = self.parts.iter().map(|part| &part[..]).chain(last);
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(chunks) {
            *slice = IoSlice::new(chunk);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(part) = self.parts.front_mut() {
            let taken = bytes.min(part.len());
            part.advance(taken);
            self.parts_bytes -= taken;
            bytes -= taken;
            if !part.is_empty() {
                return;
            }
            self.parts.pop_front();
        }
        self.written += bytes;
        if self.written == self.buffer.len() {
            self.written = 0;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_BYTES_MAX);
        } else if self.written > KEPT_BYTES_MAX && self.written > self.buffer.len() / 2 {
            // Even if it is never written completely, less is moved than was written.
            self.buffer.drain(..std::mem::take(&mut self.written));
        }
    }
}
