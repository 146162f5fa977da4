//! Who is told of a server's calls.

use std::sync::Arc;

use router_protocol::grpc::Message;

use super::exchange::Exchange;
use crate::link::EventSink;

/// Receives the calls of a server and what happens to them; implemented by the bridge. Never
/// blocks.
pub trait CallSink: EventSink {
    /// A new call; with its message when the request is unary. Its events bear its link's token.
    fn begin(&self, exchange: Arc<Exchange>, message: Option<Message>);
}
