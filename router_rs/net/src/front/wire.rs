//! A connection's bytes, as h2 and hyper read them: with what was read to see who speaks, and in
//! portions, so that one connection cannot keep its thread busy while others wait.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counters::ConnectionCount;
use crate::io::Stream;

/// What one turn of a connection's task may read. A flood of calls that are reset at once comes to
/// about a thousand in it, which take the thread about as many microseconds. Arbitrary.
const TURN_BYTES: usize = 64 * 1024;

/// As hyper's own buffers are filled.
const SCRATCH_BYTES: usize = 64 * 1024;

/// What a connection's task knows of its bytes. Shared with the stream that hyper or h2 owns, which
/// hyper wants to be `Send`; both are on one thread.
#[derive(Debug)]
pub(super) struct Gauge {
    received_bytes: AtomicU64,
    turn_bytes_left: AtomicUsize,
}

impl Gauge {
    /// The first turn has begun.
    pub(super) fn new() -> Arc<Self> {
        let received_bytes = AtomicU64::new(0);
        Arc::new(Self { received_bytes, turn_bytes_left: AtomicUsize::new(TURN_BYTES) })
    }

    /// The connection is driven by somebody who has no turns: it reads what has come.
    pub(super) fn lift_turns(&self) {
        self.turn_bytes_left.store(usize::MAX, Ordering::Relaxed);
    }

    /// To be called when the connection's task is polled.
    pub(super) fn begin_turn(&self) {
        self.turn_bytes_left.store(TURN_BYTES, Ordering::Relaxed);
    }

    /// All that has come so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    fn is_turn_over(&self) -> bool {
        self.turn_bytes_left.load(Ordering::Relaxed) == 0
    }

    fn on_read(&self, bytes: usize) {
        // One thread writes these, so no read-modify-write is needed.
        self.received_bytes.store(self.received_bytes() + bytes as u64, Ordering::Relaxed);
        let left = self.turn_bytes_left.load(Ordering::Relaxed);
        if left != usize::MAX {
            self.turn_bytes_left.store(left.saturating_sub(bytes), Ordering::Relaxed);
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    /// Read before the stream got here.
    first: Bytes,
    gauge: Arc<Gauge>,
    /// Here, because it lives as long as the socket does: longer than what hyper makes of it when
    /// it becomes a WebSocket, shorter than calls that go on without their client.
    _count: ConnectionCount,
}

impl Wire {
    pub(super) fn new(
        stream: Stream,
        first: Bytes,
        gauge: &Arc<Gauge>,
        count: ConnectionCount,
    ) -> Self {
        Self { stream, first, gauge: Arc::clone(gauge), _count: count }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let length = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..length]);
            this.first.advance(length);
            this.gauge.on_read(length);
            return Poll::Ready(Ok(()));
        }
        if this.gauge.is_turn_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.gauge.on_read(buffer.filled().len() - before);
        result
    }
}

impl AsyncWrite for Wire {
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

// === hyper's traits ===

thread_local! {
    /// hyper's buffers can be filled without a copy by unsafe code only.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::default();
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(SCRATCH_BYTES, 0);
            let length = cursor.remaining().min(SCRATCH_BYTES);
            let mut buffer = ReadBuf::new(&mut scratch[..length]);
            ready!(AsyncRead::poll_read(self, cx, &mut buffer))?;
            cursor.put_slice(buffer.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, cx)
    }

    fn is_write_vectored(&self) -> bool {
        AsyncWrite::is_write_vectored(self)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(self, cx, slices)
    }
}
