//! The bytes of a connection as hyper sees them: heads are inspected on their way in, and hyper's
//! answer to an unreadable one is not sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ClientStream, REFUSED, SCRATCH, SCRATCH_BYTES};

impl Read for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(SCRATCH_BYTES, 0);
            let length = cursor.remaining().min(SCRATCH_BYTES);
            let mut buffer = ReadBuf::new(&mut scratch[..length]);
            ready!(AsyncRead::poll_read(self.as_mut(), cx, &mut buffer))?;
            let refused = self.lines.read(buffer.filled());
            self.on_head_read();
            match refused {
                None => cursor.put_slice(buffer.filled()),
                Some((line_feed, unclear)) => {
                    self.unclear = Some(unclear);
                    cursor.put_slice(&buffer.filled()[..line_feed]);
                    let room = cursor.remaining().min(REFUSED.len());
                    cursor.put_slice(&REFUSED[..room]);
                    self.first = Bytes::from_static(&REFUSED[room..]);
                }
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl Write for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.keeps(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        AsyncWrite::poll_write(self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_some() {
            return Poll::Ready(Ok(()));
        }
        AsyncWrite::poll_shutdown(self, cx)
    }

    fn is_write_vectored(&self) -> bool {
        AsyncWrite::is_write_vectored(self)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices
            && self.keeps(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        AsyncWrite::poll_write_vectored(self, cx, slices)
    }
}
