//! The frames of a relay: one HTTP/2 stream that carries the small calls of a connection.
//!
//! A call on a stream of its own costs both ends the state of a stream, header compression and two
//! frames of HTTP/2 or more each way. Here calls that go out in one turn share one DATA frame.
//!
//! ```text
//! frame    length of the payload: u32, kind: u8, id: u64, payload      (all numbers big-endian)
//! Call     method, target, authority (u16 length and bytes each), pairs, body     to the server
//! Whole    status: u16, pairs, body                                               to the client
//! Head     status: u16, pairs; pieces and their end follow                        to the client
//! Piece    bytes; Final: the last of them                                         to the client
//! Trailers pairs; nothing follows                                                 to the client
//! Reset    reason of HTTP/2: u32; the call is over                                both ways
//! Credit   bytes: u32; as many more may be sent in pieces                         to the server
//! Last     no further call, please, and the answer to that: none follows          both ways
//! pairs    count: u16, then for each a name (0 and u16 length and bytes, or 1 + its index in NAMES)
//!          and a value (u16 length and bytes)
//! ```

mod block;
mod decoder;
mod errors;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, StatusCode, request};

pub use block::{Wire, read_answer, read_call, read_trailers};
pub use decoder::Decoder;
pub use errors::{Malformed, TooLong};

/// What the offer of a relay says first. To be raised with every change of the frames or of the
/// list of names, so that two versions of the mesh never misread each other.
const VERSION: &str = "2";

/// What a call's or a whole answer's body may have; longer ones gain nothing from sharing a frame.
pub const BODY_BYTES_MAX: usize = 16 * 1024;

/// Payloads up to this are copied where they may be kept for as long as a call lasts.
const DETACHED_BYTES_MAX: usize = 4096;

/// What a block of names and values may have in any case, as blocks of HTTP/2 in the mesh.
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// What a call's answer may send in pieces before the client has taken any: as the window of a
/// stream, so that neither way is slower.
pub const CREDIT_BYTES_INITIAL: usize = crate::windows::STREAM_WINDOW_BYTES as usize;

/// A longer piece is sent as several, so that what others have to say comes in between.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Length, kind and id.
const PREFIX_BYTES: usize = 13;

/// Names a call among those of its relay: a place, which is used again, and a number, which is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub place: u32,
    pub serial: u32,
}

/// What has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Call { id: CallId, payload: Bytes },
    Whole { id: CallId, payload: Bytes },
    Head { id: CallId, payload: Bytes },
    Piece { id: CallId, bytes: Bytes, is_final: bool },
    Trailers { id: CallId, payload: Bytes },
    Reset { id: CallId, reason: Reason },
    Credit { id: CallId, bytes: u32 },
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Call = 1,
    Whole,
    Head,
    Piece,
    Final,
    Trailers,
    Reset,
    Credit,
    Last,
}

/// Whether a call's body is for a relay.
pub fn is_small<'a>(body: impl IntoIterator<Item = &'a Bytes>) -> bool {
    body.into_iter().map(Bytes::len).sum::<usize>() <= BODY_BYTES_MAX
}

/// A payload that may be kept: what it is cut from is as long as what came at once, and a call may
/// last. Long ones stay where they are, as copying them would cost more than it keeps free.
pub fn detach(payload: Bytes) -> Bytes {
    if payload.len() > DETACHED_BYTES_MAX { payload } else { Bytes::copy_from_slice(&payload) }
}

// === the offer ===

/// What a server says of its relay: heads up to `head_bytes_max` as HTTP/2 counts them are taken.
pub fn offer(head_bytes_max: u32) -> String {
    format!("{VERSION};{head_bytes_max}")
}

/// The longest head that the offer takes; `None` for an offer of another version.
pub fn read_offer(offer: &str) -> Option<usize> {
    let bytes: usize = offer.strip_prefix(VERSION)?.strip_prefix(';')?.parse().ok()?;
    Some(bytes.min(BLOCK_BYTES_MAX))
}

// === writing ===

/// Writes a call, or nothing.
///
/// # Errors
/// A part of the head is longer than a frame may say.
pub fn put_call(
    wire: &mut Wire,
    id: CallId,
    head: &request::Parts,
    body: &[Bytes],
) -> Result<(), TooLong> {
    put_frame(wire, Kind::Call, id, |wire| {
        block::put_call(wire, head)?;
        for piece in body {
            wire.extend_from_slice(piece);
        }
        Ok(())
    })
}

/// Writes the head of an answer with a body of `body_bytes`, which the caller appends; or nothing.
///
/// # Errors
/// As [`put_call`].
pub fn put_whole(
    wire: &mut Wire,
    id: CallId,
    (status, headers): (StatusCode, &HeaderMap),
    body_bytes: usize,
) -> Result<(), TooLong> {
    let start = wire.len();
    put_frame(wire, Kind::Whole, id, |wire| block::put_answer(wire, status, headers))?;
    let head_bytes = wire.len() - start - PREFIX_BYTES;
    put_length(wire, start, head_bytes + body_bytes);
    Ok(())
}

/// Writes the head of an answer that goes on; or nothing.
///
/// # Errors
/// As [`put_call`].
pub fn put_head(
    wire: &mut Wire,
    id: CallId,
    (status, headers): (StatusCode, &HeaderMap),
) -> Result<(), TooLong> {
    put_frame(wire, Kind::Head, id, |wire| block::put_answer(wire, status, headers))
}

/// Writes what stands before a piece of `bytes`, which the caller appends.
pub fn put_piece(wire: &mut Wire, id: CallId, bytes: usize, is_final: bool) {
    put_prefix(wire, if is_final { Kind::Final } else { Kind::Piece }, id, bytes);
}

/// Writes trailers, or nothing.
///
/// # Errors
/// As [`put_call`].
pub fn put_trailers(wire: &mut Wire, id: CallId, trailers: &HeaderMap) -> Result<(), TooLong> {
    put_frame(wire, Kind::Trailers, id, |wire| block::put_pairs(wire, trailers))
}

pub fn put_reset(wire: &mut Wire, id: CallId, reason: Reason) {
    put_prefix(wire, Kind::Reset, id, 4);
    wire.extend_from_slice(&u32::from(reason).to_be_bytes());
}

pub fn put_credit(wire: &mut Wire, id: CallId, bytes: u32) {
    put_prefix(wire, Kind::Credit, id, 4);
    wire.extend_from_slice(&bytes.to_be_bytes());
}

pub fn put_last(wire: &mut Wire) {
    put_prefix(wire, Kind::Last, CallId { place: 0, serial: 0 }, 0);
}

fn put_frame(
    wire: &mut Wire,
    kind: Kind,
    id: CallId,
    put: impl FnOnce(&mut Wire) -> Result<(), TooLong>,
) -> Result<(), TooLong> {
    let start = wire.len();
    put_prefix(wire, kind, id, 0);
    let put = put(wire).and_then(|()| {
        let length = wire.len() - start - PREFIX_BYTES;
        if length > BLOCK_BYTES_MAX + BODY_BYTES_MAX { Err(TooLong) } else { Ok(length) }
    });
    match put {
        Ok(length) => put_length(wire, start, length),
        Err(TooLong) => wire.truncate(start),
    }
    put.map(drop)
}

fn put_prefix(wire: &mut Wire, kind: Kind, id: CallId, length: usize) {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..4].copy_from_slice(&length_bytes(length));
    prefix[4] = kind as u8;
    prefix[5..9].copy_from_slice(&id.serial.to_be_bytes());
    prefix[9..].copy_from_slice(&id.place.to_be_bytes());
    wire.extend_from_slice(&prefix);
}

fn put_length(wire: &mut Wire, start: usize, length: usize) {
    wire[start..start + 4].copy_from_slice(&length_bytes(length));
}

fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("invariant: frames are short").to_be_bytes()
}
