//! Where the body of a request comes from, and what of it is read.

use h2::RecvStream;
use router_protocol::grpc::Message;

/// One step of reading.
#[derive(Debug)]
pub(super) enum Taken {
    Message(Message),
    /// The client sends no more, and ended between two messages.
    End,
    /// The stream broke: reset, or the connection is gone.
    Gone,
}

/// Where the bytes come from.
#[derive(Debug)]
pub(super) enum Source {
    Open(RecvStream),
    /// All has come, and its end is to be told.
    Ended,
    Closed,
}
