//! Lets a forked child tell the pollers of our I/O threads from those of other code: each has a
//! socket in its set that no other poller has.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use parking_lot::Mutex;
use tokio::net::UnixDatagram;

static MARKS: Mutex<Vec<Mark>> = Mutex::new(Vec::new());

/// Descriptors of one I/O thread, for a child.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// It is in the set of the thread's poller.
    pub watched: RawFd,
    /// Only there to be closed, so that the child can open something.
    pub spare: RawFd,
}

/// Keeps the mark of the runtime in which it was made.
#[derive(Debug)]
pub(super) struct PollerMark {
    socket: UnixDatagram,
    _spare: std::os::unix::net::UnixDatagram,
}

impl PollerMark {
    pub(super) fn new() -> io::Result<Self> {
        // Its address is not known to any peer, so nothing ever arrives.
        let spare = std::os::unix::net::UnixDatagram::unbound()?;
        let socket = UnixDatagram::unbound()?;
        MARKS.lock().push(Mark { watched: socket.as_raw_fd(), spare: spare.as_raw_fd() });
        Ok(Self { socket, _spare: spare })
    }
}

impl Drop for PollerMark {
    fn drop(&mut self) {
        let own = self.socket.as_raw_fd();
        MARKS.lock().retain(|mark| mark.watched != own);
    }
}

/// The marks of all I/O threads, for a fork: the parent calls it before, the child after. Empty if
/// another thread was using the list at that moment.
pub fn poller_marks() -> Vec<Mark> {
    MARKS.try_lock().map_or_else(Vec::new, |marks| marks.clone())
}
