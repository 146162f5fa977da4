//! The driver of an HTTP/2 connection, and its observations of the stream.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use router_protocol::windows::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::drive::Drive;
use super::stopwatch::Stopwatch;

/// Streams that may start before the peer has announced its own limit.
const STREAMS_INITIAL: usize = 1024;

/// Trailers carry at most the metadata that a server may set by default, and its status.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Cancelled calls whose late frames are recognised for a second; as many as a server of ours
/// allows at once.
const RESET_STREAMS_MAX: usize = 4096;

pub(super) struct Http2Driver<S> {
    connection: Connection<Observed<S>, Bytes>,
    ping_pong: Option<PingPong>,
    received: Rc<Cell<u64>>,
}

/// Exchanges the preface and the settings.
///
/// # Errors
/// A violation by the peer in them.
pub(super) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> Result<(SendRequest<Bytes>, Http2Driver<S>), h2::Error> {
    let received = Rc::new(Cell::new(0));
    let io = Observed { io: stream, received: Rc::clone(&received), stopwatch: Stopwatch::new() };
    let (sender, mut connection) = Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_max_send_streams(STREAMS_INITIAL)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        // Frames that the peer had sent before it learnt of a cancelled call arrive after the
        // reset. h2 counts such frames of forgotten streams as errors, and ends the connection with
        // all its other calls at the 1 024th. The server was chosen by us, so none of them counts.
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(io)
        .await?;
    let ping_pong = connection.ping_pong();
    Ok((sender, Http2Driver { connection, ping_pong, received }))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Drive for Http2Driver<S> {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        Poll::Ready(match ready!(Pin::new(&mut self.connection).poll(cx)) {
            Ok(()) => "the peer closed the connection".to_owned(),
            Err(error) => error.to_string(),
        })
    }

    fn ping(&mut self, cx: &mut Context<'_>) {
        if let Some(ping_pong) = &mut self.ping_pong {
            // Takes the answer of the previous PING, without which no other may be sent. The bytes
            // received are the sign of life, so the answer's value adds nothing.
            let _answer_or_not_yet = ping_pong.poll_pong(cx);
            // An error means that the last PING is still unanswered or that the connection ends:
            // the silence after it counts all the same.
            let _asked_or_ending = ping_pong.send_ping(Ping::opaque());
        }
    }

    fn signs_of_life(&self) -> u64 {
        self.received.get()
    }

    /// h2 notifies its streams.
    fn end(&mut self, _why: &str) {}
}

/// Counts the reads that bring bytes.
#[derive(Debug)]
struct Observed<S> {
    io: S,
    received: Rc<Cell<u64>>,
    stopwatch: Stopwatch,
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.stopwatch.on_read(&buffer.filled()[before..]);
            self.received.set(self.received.get() + 1);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.stopwatch.on_written(&[io::IoSlice::new(bytes)], written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.stopwatch.on_written(slices, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
