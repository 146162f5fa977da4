//! Frames and their limits.

use bytes::Bytes;
use router_protocol::windows::STREAM_WINDOW_BYTES;

/// The size limit for the body of a call or of a whole answer in one frame with its head; longer
/// bodies gain nothing from that.
pub const BODY_BYTES_MAX: usize = 16 * 1024;

/// The absolute size limit of a block of names and values. Servers and clients have smaller limits
/// of their own; this one bounds what is collected before a head can be parsed.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// How much of a body may be sent before its reader has taken any: like the window of an HTTP/2
/// stream, so that neither protocol is slower.
pub const CREDIT_BYTES_INITIAL: usize = STREAM_WINDOW_BYTES as usize;

/// The most calls at once. Routers and gates have smaller limits; this one bounds a server's list.
pub const CALLS_MAX: u32 = 1 << 16;

/// As many bytes more may be sent of a body of which some came through the arena: their memory is
/// bounded by the arena, and a body of 1 MiB then waits for credit once.
pub(crate) const CREDIT_BYTES_LENT: usize = 3 * CREDIT_BYTES_INITIAL;

/// Shorter pieces cost less as bytes on the socket than as blocks of the arena.
pub(crate) const LENT_BYTES_MIN: usize = 32 * 1024;

/// Payloads up to this size are copied where they may be kept for as long as a call lasts.
pub(crate) const DETACHED_BYTES_MAX: usize = 4096;

/// Length, kind and id.
pub(crate) const PREFIX_BYTES: usize = 13;

/// Codes of resets that either end makes by itself (RFC 9113, 7).
pub mod code {
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const CANCEL: u32 = 8;
}

/// Identifies a call on its connection: a place, which is reused, and a number, which is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub place: u32,
    pub serial: u32,
}

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Call {
        id: CallId,
        payload: Bytes,
    },
    Begin {
        id: CallId,
        payload: Bytes,
    },
    Whole {
        id: CallId,
        payload: Bytes,
    },
    Head {
        id: CallId,
        payload: Bytes,
    },
    Trailers {
        id: CallId,
        payload: Bytes,
    },
    Piece {
        id: CallId,
        bytes: Bytes,
        is_final: bool,
    },
    Lent {
        id: CallId,
        place: Place,
        is_final: bool,
    },
    Credit {
        id: CallId,
        bytes: u32,
    },
    Reset {
        id: CallId,
        code: u32,
    },
    Last,
    Ping,
    Pong,
    Mapped,
    /// The server has begun to work on the call, whose client has asked to be told.
    Started {
        id: CallId,
    },
}

/// Where a piece is in the arena of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub first_block: u32,
    pub bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Call = 1,
    Begin,
    Whole,
    Head,
    Trailers,
    Piece,
    Final,
    Credit,
    Reset,
    Last,
    Ping,
    Pong,
    Lent,
    LentFinal,
    Mapped,
    Started,
}

/// Whether a body is sent in one frame with its head.
pub fn is_small<'a>(body: impl IntoIterator<Item = &'a Bytes>) -> bool {
    body.into_iter().map(Bytes::len).sum::<usize>() <= BODY_BYTES_MAX
}

/// A payload that may be kept. It shares the memory of everything that was read with it, for as
/// long as a call lasts, so short payloads are copied. Copying a long one would cost more than it
/// frees.
pub fn detach(payload: Bytes) -> Bytes {
    if payload.len() > DETACHED_BYTES_MAX { payload } else { Bytes::copy_from_slice(&payload) }
}

// === impl Kind ===

impl Kind {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        const KINDS: [Kind; 16] = [
            Kind::Call,
            Kind::Begin,
            Kind::Whole,
            Kind::Head,
            Kind::Trailers,
            Kind::Piece,
            Kind::Final,
            Kind::Credit,
            Kind::Reset,
            Kind::Last,
            Kind::Ping,
            Kind::Pong,
            Kind::Lent,
            Kind::LentFinal,
            Kind::Mapped,
            Kind::Started,
        ];
        KINDS.get(usize::from(byte.checked_sub(1)?)).copied()
    }

    pub(crate) fn may_have(self, length: usize) -> bool {
        match self {
            Kind::Call | Kind::Whole => length <= BLOCK_BYTES_MAX + BODY_BYTES_MAX,
            Kind::Begin | Kind::Head | Kind::Trailers => length <= BLOCK_BYTES_MAX,
            Kind::Piece | Kind::Final => length <= CREDIT_BYTES_INITIAL,
            Kind::Credit | Kind::Reset => length == 4,
            Kind::Lent | Kind::LentFinal => length == 8,
            Kind::Last | Kind::Ping | Kind::Pong | Kind::Mapped | Kind::Started => length == 0,
        }
    }
}
