//! A TCP stream that counts the bytes received: nothing else shows how much TLS buffers of a
//! handshake that is never finished.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The number of bytes received. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ReceivedBytes(Arc<AtomicU64>);

/// See the module's documentation.
#[derive(Debug)]
pub struct CountedTcp {
    stream: TcpStream,
    received: ReceivedBytes,
}

// === impl ReceivedBytes ===

impl ReceivedBytes {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        // One task writes it, so no read-modify-write is needed.
        self.0.store(self.get() + bytes as u64, Ordering::Relaxed);
    }
}

// === impl CountedTcp ===

impl CountedTcp {
    pub fn new(stream: TcpStream, received: ReceivedBytes) -> Self {
        Self { stream, received }
    }

    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl From<TcpStream> for CountedTcp {
    fn from(stream: TcpStream) -> Self {
        Self::new(stream, ReceivedBytes::default())
    }
}

impl AsyncRead for CountedTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.received.add(buffer.filled().len() - before);
        outcome
    }
}

impl AsyncWrite for CountedTcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
