//! Reads the messages of a stream between two processes of the mesh.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;

use crate::grpc::Decoder;

/// The source of the bytes.
pub trait ByteSource {
    /// The next bytes, whose flow-control window is returned; `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// Messages of one kind, in gRPC's framing.
#[derive(Debug)]
pub struct MessageReader<B> {
    body: B,
    decoder: Decoder,
    /// Received bytes that are not decoded yet.
    chunk: Bytes,
}

impl<B: ByteSource> MessageReader<B> {
    /// A message of more than `message_bytes_max` ends the stream.
    pub fn new(body: B, message_bytes_max: usize) -> Self {
        Self { body, decoder: Decoder::new(message_bytes_max), chunk: Bytes::new() }
    }

    /// The next message; `None` at the end, and if it is malformed. The future may be dropped while
    /// it waits.
    pub async fn next<M: Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.chunk).ok()? {
                return M::decode(message.into_bytes()).ok();
            }
            self.chunk = poll_fn(|cx| self.body.poll_chunk(cx)).await?;
        }
    }
}
