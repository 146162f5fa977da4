//! Why a call that was sent upstream has no answer.

use h2::Reason;

/// Why a call has no answer, or its answer no end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    #[error("the call was reset: {reason}")]
    Reset { reason: Reason, is_remote: bool },
    /// The peer has not begun the call and will not.
    #[error("{0}")]
    NotTaken(String),
    /// The connection broke, with all its calls.
    #[error("{0}")]
    Broken(String),
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_reset() => {
                Self::Reset { reason, is_remote: error.is_remote() }
            }
            // A GOAWAY of the peer fails only streams that it reports as not processed (RFC 9113,
            // 6.8).
            _ if error.is_go_away() && error.is_remote() => Self::NotTaken(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}
