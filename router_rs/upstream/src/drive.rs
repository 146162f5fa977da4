//! What both protocols have in common for the task of a connection.

use std::task::{Context, Poll};

/// What drives a connection, whatever it speaks.
pub(super) trait Drive {
    /// Ready when the connection is over, with the reason as a sentence.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<String>;

    /// Asks for a sign of life.
    fn ping(&mut self, cx: &mut Context<'_>);

    /// How often the peer has shown that it is there.
    fn signs_of_life(&self) -> u64;

    /// The calls that are left have no answer.
    fn end(&mut self, why: &str);
}
