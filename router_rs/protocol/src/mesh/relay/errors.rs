//! What cannot be read as a frame, or be written as one.

/// The peer does not speak as we do: there is no telling where the next frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame of a relay: {0}")]
pub struct Malformed(pub(super) &'static str);

impl Malformed {
    /// A frame of the other direction, or one that cannot follow what came before.
    pub const OUT_OF_PLACE: Self = Self("a frame that is out of place");
}

/// A head that no frame can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;
