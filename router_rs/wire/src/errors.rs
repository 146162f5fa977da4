//! Errors of encoding and decoding, and the early ends of calls.

/// Malformed input. In a frame, it means that the peer uses another protocol, and the connection
/// ends. In the head inside a frame, only the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame: {0}")]
pub struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// A frame of the other direction, or one that must not follow the previous frames.
    pub(crate) const UNEXPECTED: Self = Self("a frame that cannot come here");
}

/// A head that does not fit in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Why a call gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Reset {
        /// As HTTP/2 has them (RFC 9113, 7).
        code: u32,
        is_remote: bool,
    },
    /// The connection is gone.
    Lost,
}
