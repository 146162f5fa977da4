//! A Unix stream that wakes its task only for the events that it waits for.
//!
//! A Unix socket reports "writable" every time its peer has read something, and tokio's own
//! stream is registered for that at all times: each message cost its sender one more wake-up,
//! a fifth of the processor time of a lone call (measured: strace, one call in flight). This one
//! is registered for reading, and for writing only while the socket's buffer is full.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::fork_lock::{note_opened, open_between_forks};

#[derive(Debug)]
pub struct QuietUnixStream {
    socket: AsyncFd<StdUnixStream>,
    /// The same socket under another descriptor, while there is something to wait for.
    full: Option<AsyncFd<StdUnixStream>>,
}

impl QuietUnixStream {
    /// # Errors
    /// When the poller or the descriptor table is full.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let stream = stream.into_std()?;
        Ok(Self { socket: register(stream, Interest::READABLE)?, full: None })
    }

    /// Sends one byte, and a descriptor with it.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn send_descriptor(&mut self, byte: u8, descriptor: &OwnedFd) -> io::Result<()> {
        let descriptors = [descriptor.as_fd()];
        let send = |socket: &StdUnixStream| send_with(socket, byte, &descriptors);
        poll_fn(|context| self.poll_write_with(context, send)).await.map(drop)
    }

    /// Receives one byte, and the descriptor that came with it. The bytes before must have been read,
    /// but no others.
    ///
    /// # Errors
    /// Those of the socket, and `UnexpectedEof` at the end of the stream.
    pub async fn receive_descriptor(&mut self) -> io::Result<(u8, Option<OwnedFd>)> {
        loop {
            let mut guard = self.socket.readable().await?;
            match receive_with(guard.get_inner()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&StdUnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                ready!(full.poll_write_ready(context))?.clear_ready();
                self.full = None;
            }
            match write(self.socket.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let socket = self.socket.get_ref();
                    let twin = open_between_forks(|| note_opened(socket.try_clone()?))?;
                    self.full = Some(register(twin, Interest::WRITABLE)?);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

fn send_with(
    socket: &StdUnixStream,
    byte: u8,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, &[IoSlice::new(&[byte])], &mut ancillary, flags)?)
}

fn receive_with(socket: &StdUnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((byte[0], descriptors.flatten().last()))
}

/// Registers a socket with the thread's poller.
#[allow(deprecated)] // for types whose descriptor may change under way; a std socket's does not
fn register(stream: StdUnixStream, interest: Interest) -> io::Result<AsyncFd<StdUnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl AsyncRead for QuietUnixStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let mut guard = ready!(this.socket.poll_read_ready(context))?;
            let target = buffer.initialize_unfilled();
            let wanted = target.len();
            match guard.get_inner().read(target) {
                Ok(count) => {
                    // A short read has emptied the socket: the next bytes are a new edge.
                    if count > 0 && count < wanted {
                        guard.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for QuietUnixStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(context, |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(context, |mut socket| socket.write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.get_ref().shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn pair() -> (QuietUnixStream, QuietUnixStream) {
        let (a, b) = tokio::net::UnixStream::pair().expect("a socket pair");
        let quiet = |stream| QuietUnixStream::new(stream).expect("a free descriptor");
        (quiet(a), quiet(b))
    }

    #[tokio::test]
    async fn more_than_the_buffer_holds_arrives_whole() {
        let (mut sender, mut receiver) = pair();
        let data: Vec<u8> = (0..4_000_000_u32).map(|index| index as u8).collect();
        let expected = data.clone();
        let sending = tokio::spawn(async move {
            sender.write_all(&data).await.expect("the peer reads");
            sender.shutdown().await.expect("an open socket");
        });
        let mut received = Vec::new();
        timeout(PATIENCE, receiver.read_to_end(&mut received)).await.expect("in time").unwrap();
        timeout(PATIENCE, sending).await.expect("in time").unwrap();
        assert!(expected == received, "{} bytes arrived", received.len());
    }

    #[tokio::test]
    async fn a_descriptor_comes_with_its_byte() {
        let (mut one, mut other) = pair();
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        one.write_all(b"before").await.expect("room");
        one.send_descriptor(7, &writer.into()).await.expect("room");
        one.write_all(b"after").await.expect("room");
        let mut before = [0; 6];
        other.read_exact(&mut before).await.expect("bytes");
        let (byte, descriptor) =
            timeout(PATIENCE, other.receive_descriptor()).await.expect("in time").expect("a byte");
        let descriptor = descriptor.expect("it came with the byte");
        std::io::PipeWriter::from(descriptor).write_all(b"piped").expect("room");
        let mut piped = String::new();
        reader.read_to_string(&mut piped).expect("text");
        assert_eq!((b"before", 7, "piped"), (&before, byte, piped.as_str()));
        assert!(matches!(other.receive_descriptor().await, Ok((b'a', None))));
        drop(one);
        other.read_exact(&mut [0; 4]).await.expect("the rest");
        let error = other.receive_descriptor().await.expect_err("nothing more comes");
        assert_eq!(io::ErrorKind::UnexpectedEof, error.kind());
    }

    #[tokio::test]
    async fn a_reader_does_not_wake_the_writer() {
        let (mut one, mut other) = pair();
        let mut byte = [0];
        one.write_all(b"x").await.expect("room");
        other.read_exact(&mut byte).await.expect("a byte");
        // The socket is not even registered for "writable" while the buffer has room.
        assert!(one.full.is_none());
        let silent = timeout(Duration::from_millis(20), one.read_exact(&mut byte)).await;
        assert!(silent.is_err(), "nothing was sent back");
        other.write_all(b"y").await.expect("room");
        timeout(PATIENCE, one.read_exact(&mut byte)).await.expect("in time").unwrap();
        assert_eq!(b"y", &byte);
    }

    #[tokio::test]
    async fn the_end_of_the_peer_is_seen_on_both_roads() {
        let (mut one, other) = pair();
        drop(other);
        assert_eq!(0, one.read(&mut [0; 8]).await.expect("an end is no error"));
        let error = one.write(b"x").await.expect_err("nobody reads");
        assert_eq!(io::ErrorKind::BrokenPipe, error.kind());
    }
}
