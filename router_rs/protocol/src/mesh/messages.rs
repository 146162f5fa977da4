//! Reads the messages of a stream between two processes of the mesh.

use bytes::Bytes;
use h2::RecvStream;
use prost::Message;

use crate::grpc::Decoder;

/// Messages of one kind, in gRPC's framing.
#[derive(Debug)]
pub struct MessageReader {
    body: RecvStream,
    decoder: Decoder,
    /// What has come and is not decoded yet.
    chunk: Bytes,
}

impl MessageReader {
    /// A message of more than `message_bytes_max` ends the stream.
    pub fn new(body: RecvStream, message_bytes_max: usize) -> Self {
        Self { body, decoder: Decoder::new(message_bytes_max), chunk: Bytes::new() }
    }

    /// The next message; `None` at the end, and for what is no message. May be dropped while it
    /// waits.
    pub async fn next<M: Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.chunk).ok()? {
                return M::decode(message.into_bytes()).ok();
            }
            self.chunk = self.body.data().await?.ok()?;
            // Fails only for a stream that is over, whose window nobody needs.
            let _window_of_an_ended_stream =
                self.body.flow_control().release_capacity(self.chunk.len());
        }
    }
}
