//! The receiver of a server's calls.

use std::sync::Arc;

use router_protocol::grpc::Message;

use super::served_call::ServedCall;
use crate::link::EventSink;

/// Receives the calls of a server and their events; implemented by the bridge. Never blocks.
pub trait CallSink: EventSink {
    /// A new call; with its message when the request is unary. Its events bear its link's token.
    fn begin(&self, served_call: Arc<ServedCall>, message: Option<Message>);

    /// Calls `then` once, as soon as user code has calls but can do nothing for any of them until
    /// something else happens. It is called on any thread, immediately if that is the case now, and
    /// never for code that is not watched in this way.
    fn when_idle(&self, _then: Box<dyn FnOnce() + Send>) {}
}
