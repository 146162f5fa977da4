//! Sockets that a fork finds either in the set of an I/O thread's poller, or closed, or on the list
//! of those that move from thread to thread. One that it found otherwise would stay open in the
//! child, and the peer would not see the parent's death.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};

use tokio::net::TcpStream;

use super::fork_lock::lock;

/// Leaves its poller's set and closes between forks.
#[derive(Debug)]
pub struct Socket<S>(Option<S>);

/// A connection over TCP.
pub type TcpSocket = Socket<TcpStream>;

/// A connection that is in no poller's set: a socket belongs to the poller of one thread, and this
/// one goes to another.
#[derive(Debug)]
pub(crate) struct MovingSocket(Option<StdTcpStream>);

const TAKEN: &str = "only what consumes or drops a socket takes it out";

// === impl Socket ===

impl<S> Socket<S> {
    /// Runs `open` between forks.
    pub(super) fn open(open: impl FnOnce() -> io::Result<S>) -> io::Result<Self> {
        let _no_fork_meanwhile = lock();
        open().map(Self::from)
    }
}

impl TcpSocket {
    /// # Errors
    /// The poller does not let go of it; then it is closed.
    pub(crate) fn leave_thread(mut self) -> io::Result<MovingSocket> {
        let mut moving = lock();
        let stream = self.0.take().expect(TAKEN).into_std()?;
        moving.push(stream.as_raw_fd());
        Ok(MovingSocket(Some(stream)))
    }
}

impl<S> From<S> for Socket<S> {
    fn from(socket: S) -> Self {
        Self(Some(socket))
    }
}

impl<S> Deref for Socket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.0.as_ref().expect(TAKEN)
    }
}

impl<S> DerefMut for Socket<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.0.as_mut().expect(TAKEN)
    }
}

impl<S> Drop for Socket<S> {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            let _no_fork_meanwhile = lock();
            drop(socket);
        }
    }
}

// === impl MovingSocket ===

impl MovingSocket {
    /// Has the poller of this thread watch it.
    ///
    /// # Errors
    /// The poller takes no more; then it is closed.
    pub(crate) fn arrive(mut self) -> io::Result<TcpSocket> {
        let stream = self.0.take().expect(TAKEN);
        let mut moving = lock();
        forget(&mut moving, &stream);
        TcpStream::from_std(stream).map(Socket::from)
    }
}

impl Drop for MovingSocket {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            let mut moving = lock();
            forget(&mut moving, &stream);
            drop(stream);
        }
    }
}

fn forget(moving: &mut Vec<RawFd>, stream: &StdTcpStream) {
    moving.retain(|each| *each != stream.as_raw_fd());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::io::{lock_for_fork, moving_sockets, unlock_after_fork};

    struct Closing(std::sync::mpsc::Sender<()>);

    impl Drop for Closing {
        fn drop(&mut self) {
            self.0.send(()).expect("awaited");
        }
    }

    #[test]
    fn a_socket_is_closed_after_the_fork_or_before_it() {
        let (closed, closes) = channel();
        let socket = Socket::from(Closing(closed));
        lock_for_fork();
        let closer = thread::spawn(move || drop(socket));
        let early = closes.recv_timeout(Duration::from_millis(50));
        unlock_after_fork();
        let late = closes.recv_timeout(Duration::from_secs(20));
        closer.join().expect("it has closed");
        assert!(early.is_err());
        assert!(late.is_ok());
    }

    #[tokio::test]
    async fn a_fork_finds_a_socket_that_moves() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stays = TcpSocket::from(TcpStream::connect(address).await.expect("listening"));
        let number = stays.as_raw_fd();
        let is_found = || moving_sockets().contains(&number);
        assert!(!is_found());
        let moving = stays.leave_thread().expect("open");
        assert!(is_found());
        let stays = moving.arrive().expect("open");
        assert!(!is_found());
        assert_eq!(number, stays.as_raw_fd());
    }
}
