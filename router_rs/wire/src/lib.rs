//! The wire: the protocol between the processes of one mesh, on connections of their own.
//!
//! A pure state machine: bytes in and events out, events in and bytes out. It knows neither sockets
//! nor HTTP/2, and any thread may drive it. Peers outside the mesh use HTTP/2, as do members of a
//! release without these frames.
//!
//! A connection begins with a greeting ([`greeting`]), by which both sides prove the mesh token. Then
//! frames follow each other, both ways:
//!
//! ```text
//! frame    length of the payload: u32, kind: u8, id: u64, payload      (all numbers big-endian)
//! Call     method, target, authority (texts), pairs, body                         to the server
//! Begin    method, target, authority, pairs; pieces and their end follow          to the server
//! Whole    status: u16, pairs, pairs of the trailers, body                         to the client
//! Head     status: u16, pairs; pieces and their end follow                        to the client
//! Trailers pairs; nothing follows                                                 to the client
//! Piece    bytes; Final: the last of them                                         both ways
//! Credit   bytes: u32; as many more may be sent in pieces                         both ways
//! Lent     first block: u32, bytes: u32; a piece in the arena (`router_arena`)       both ways
//! Mapped   the server has mapped the arena                                         to the client
//! Reset    a code of HTTP/2: u32; the call is over                                both ways
//! Last     no further call, please; and the answer to that: none follows          both ways
//! Ping     to be answered by Pong                                                 both ways
//! text     length: u8, or 255 and u32; bytes
//! pairs    count: u16, then for each a name (0 and a text, or 1 + its index in a list) and a text
//! ```
//!
//! Calls sent in one turn share a write. Each body has credit of its own, as an HTTP/2 stream has
//! its window, so that a slow reader delays only its own call. A server that wants to end announces
//! that it takes no further calls (`Last`), takes those that came before the acknowledgement, and
//! closes after the last answer. So no call is lost on the way, and the fate of each is known.

#![forbid(unsafe_code)]

mod block;
mod decoder;
mod errors;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod greeting;
mod inbound;
mod outbound;
mod outgoing;
mod session;
#[cfg(test)]
mod tests;

pub use block::{head_bytes, read_answer, read_call, read_trailers, read_whole};
pub use decoder::Decoder;
pub use errors::{Cut, Malformed, TooLong};
pub use frame::{
    BLOCK_BYTES_MAX, BODY_BYTES_MAX, CALLS_MAX, CREDIT_BYTES_INITIAL, CallId, Frame, Place, code,
    detach, is_small,
};
pub use outgoing::Outgoing;
pub use session::{Called, Session, Side};
