//! What cannot be read or written, and how calls end before their time.

/// What cannot be read. Of a frame: the peer does not speak as we do, and the connection ends. Of the
/// head in one: the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame: {0}")]
pub struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// A frame of the other direction, or one that cannot follow what came before.
    pub(crate) const UNEXPECTED: Self = Self("a frame that cannot come here");
}

/// A head that no frame can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Why nothing more comes of a call.
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
