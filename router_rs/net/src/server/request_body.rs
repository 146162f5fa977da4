//! The source of a request body, and how much of it has been read.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use router_dispatch::coalesce;
use router_protocol::grpc::Message;
use router_protocol::mesh::messages::ByteSource;

use super::sink::ClientGone;
use super::wire_call::WireRequestBody;

/// One step of reading.
#[derive(Debug)]
pub(super) enum Taken {
    Message(Message),
    /// The client sends no more, and ended between two messages.
    End,
    /// The stream broke: reset, or the connection is gone.
    Cancelled,
}

/// Whether more of the body can come.
#[derive(Debug)]
pub(super) enum BodyState {
    Open(Incoming),
    /// Everything has arrived; only the end is still to be reported.
    Ended,
    Closed,
}

/// A body that is on its way.
#[derive(Debug)]
pub(super) enum Incoming {
    Http2(RecvStream),
    Wire(WireRequestBody),
}

// === impl Incoming ===

impl Incoming {
    /// Acknowledges `bytes`: as many more may come.
    pub(super) fn release(&mut self, bytes: usize) {
        match self {
            Incoming::Http2(stream) => {
                // It fails only for a stream that is gone, which the next poll reports.
                let _window_of_an_ended_stream = stream.flow_control().release_capacity(bytes);
            }
            Incoming::Wire(body) => body.release(bytes),
        }
    }
}

impl coalesce::DataStream for Incoming {
    type Error = ClientGone;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientGone>>> {
        match self {
            Incoming::Http2(stream) => {
                stream.poll_data(context).map(|data| data.map(|data| data.map_err(|_| ClientGone)))
            }
            Incoming::Wire(body) => {
                body.poll_data(context).map(|data| data.map(|data| data.map_err(|_| ClientGone)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Incoming::Http2(stream) => stream.is_end_stream(),
            Incoming::Wire(body) => body.is_end(),
        }
    }
}

impl ByteSource for Incoming {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let chunk = ready!(coalesce::DataStream::poll_data(self, context)).and_then(Result::ok);
        if let Some(chunk) = &chunk {
            self.release(chunk.len());
        }
        Poll::Ready(chunk)
    }
}

impl From<RecvStream> for Incoming {
    fn from(stream: RecvStream) -> Self {
        Incoming::Http2(stream)
    }
}
