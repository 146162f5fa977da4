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

    /// Calls `then` once, as soon as user code has calls and nothing to do for any of them before
    /// something else happens; on any thread, at once if that is so now. Of code that nobody watches
    /// like that it is never called.
    fn when_idle(&self, _then: Box<dyn FnOnce() + Send>) {}
}
