//! The common part of the connection tasks of both protocols.

use std::task::{Context, Poll};

/// The driver of a connection, for either protocol.
pub(super) trait Drive {
    /// Ready when the connection is over, with the reason as a sentence.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<String>;

    /// Sends a PING.
    fn ping(&mut self, cx: &mut Context<'_>);

    /// How often the peer has shown signs of life.
    fn signs_of_life(&self) -> u64;

    /// Ends the remaining calls without an answer.
    fn end(&mut self, why: &str);
}
