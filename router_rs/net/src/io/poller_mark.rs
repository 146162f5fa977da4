//! By what a forked child tells the pollers of our I/O threads from those of other code: each has a
//! socket in its set that nobody else has.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

static MARKS: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Keeps the mark of the runtime in which it was made.
#[derive(Debug)]
pub(super) struct PollerMark {
    socket: AsyncFd<UnixDatagram>,
}

impl PollerMark {
    pub(super) fn new() -> io::Result<Self> {
        // Nobody knows it, so nothing ever comes.
        let socket = AsyncFd::with_interest(UnixDatagram::unbound()?, Interest::READABLE)?;
        MARKS.lock().push(socket.as_raw_fd());
        Ok(Self { socket })
    }
}

impl Drop for PollerMark {
    fn drop(&mut self) {
        let own = self.socket.as_raw_fd();
        MARKS.lock().retain(|mark| *mark != own);
    }
}

/// The marks of all I/O threads, for a forked child. None of them when another thread was at the
/// list in the moment of the fork.
pub fn poller_marks() -> Vec<RawFd> {
    MARKS.try_lock().map_or_else(Vec::new, |marks| marks.clone())
}
