//! Reads a stream in chunks that can be kept, and writes parts that are not joined.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_write_buf;

/// The size of a read at first: some messages of a turn.
const READ_BYTES_MIN: usize = 16 * 1024;

/// The size if reads are full again and again. A Unix socket has room for three of them by default.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Less room than this is not worth a read.
const ROOM_BYTES_MIN: usize = 4 * 1024;

#[derive(Debug)]
pub struct ChunkedStream<S> {
    stream: S,
    /// Memory that is overwritten by reads. It is zeroed once, so that streams that require it need
    /// not do so for each read.
    room: BytesMut,
    /// The size of the next buffer.
    room_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ChunkedStream<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, room: BytesMut::new(), room_bytes: READ_BYTES_MIN }
    }

    /// The bytes received; empty at the end of the stream.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if self.room.len() < ROOM_BYTES_MIN {
            // Reclaims the memory of dropped chunks.
            self.room.clear();
            self.room.resize(self.room_bytes, 0);
        }
        let mut read = ReadBuf::new(&mut self.room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        let read_bytes = read.filled().len();
        if read_bytes == self.room.len() && read_bytes >= READ_BYTES_MIN {
            self.room_bytes = READ_BYTES_MAX.min(self.room_bytes * 2);
        } else if read_bytes < READ_BYTES_MIN {
            self.room_bytes = READ_BYTES_MIN;
        }
        Poll::Ready(Ok(self.room.split_to(read_bytes).freeze()))
    }

    /// Writes all of `parts`.
    ///
    /// # Errors
    /// Errors of the stream, and an error if it accepts no more.
    pub fn poll_write(
        &mut self,
        parts: &mut impl Buf,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while parts.has_remaining() {
            if ready!(poll_write_buf(Pin::new(&mut self.stream), cx, parts))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        // Flushes bytes buffered by TLS.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes the writing side.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_in_chunks_that_can_be_kept() {
        let (mut near, far) = duplex(3 * READ_BYTES_MAX);
        let mut far = ChunkedStream::new(far);
        let sent: Vec<u8> = (0..400_000_u32).map(|at| (at / 7) as u8).collect();
        let sending = sent.clone();
        let write = tokio::spawn(async move {
            near.write_all(&sending).await.expect("a reader");
            near
        });
        let (mut chunks, mut came) = (Vec::new(), 0);
        while came < sent.len() {
            let chunk = poll_fn(|cx| far.poll_read(cx)).await.expect("bytes");
            came += chunk.len();
            chunks.push(chunk);
        }
        assert!(chunks.concat() == sent);
        assert!(chunks.iter().any(|chunk| chunk.len() > READ_BYTES_MIN), "buffers grow");
        drop(write.await.expect("written"));
        assert!(poll_fn(|cx| far.poll_read(cx)).await.expect("an end").is_empty());
    }

    #[tokio::test]
    async fn parts_are_written_in_their_order() {
        let (mut near, far) = duplex(64);
        let mut far = ChunkedStream::new(far);
        let mut parts = Bytes::from_static(b"one").chain(Bytes::from(vec![7; 300]));
        let write = tokio::spawn(async move {
            poll_fn(|cx| far.poll_write(&mut parts, cx)).await.expect("a reader");
        });
        let mut came = Vec::new();
        near.read_to_end(&mut came).await.expect("bytes");
        write.await.expect("written");
        assert_eq!([b"one".to_vec(), vec![7; 300]].concat(), came);
    }
}
