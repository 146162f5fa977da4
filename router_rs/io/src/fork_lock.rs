//! Keeps forks of the process out of moments in which a socket is open but not noted.
//!
//! A forked child releases the sockets that were noted here. One that stayed open in it would hide
//! the parent's death from the peer. The sets of the pollers are not enough to find them: a socket
//! that is being closed or that moves between threads is open but in no poller's set.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
// Not parking_lot's: its unlocking may touch a table that another thread had locked at the fork.
// This one is a futex, which a child may unlock.
use std::sync::{Mutex, MutexGuard, PoisonError};

static OPENING: Mutex<()> = Mutex::new(());
/// By descriptor, so that there are never more than were open at one time. Entries are never
/// removed: a thread that closes a socket would have to wait for a fork, with whatever it holds.
static OPENED: Mutex<BTreeMap<RawFd, File>> = Mutex::new(BTreeMap::new());

thread_local! {
    static HELD: Cell<Option<MutexGuard<'static, ()>>> = const { Cell::new(None) };
}

/// The file of a descriptor; the number may have been reused since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub device: u64,
    pub inode: u64,
}

/// Runs each poll of `future` between forks: a child never sees a socket that is opened but not
/// noted, if one poll does both.
pub async fn between_forks<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _no_fork_meanwhile = lock();
        future.as_mut().poll(context)
    })
    .await
}

/// Runs `open` between forks.
pub(crate) fn open_between_forks<T>(open: impl FnOnce() -> T) -> T {
    let _no_fork_meanwhile = lock();
    open()
}

/// Makes forked children release a socket, as long as it is open. Call it [`between_forks`].
///
/// # Errors
/// `fstat` fails.
pub fn note_opened<S: AsFd>(socket: S) -> io::Result<S> {
    let descriptor = socket.as_fd();
    let status = rustix::fs::fstat(descriptor)?;
    let file = File { device: status.st_dev, inode: status.st_ino };
    opened().insert(descriptor.as_raw_fd(), file);
    Ok(socket)
}

/// The noted sockets, including those closed since; for the thread that forks.
pub fn opened_sockets() -> Vec<(RawFd, File)> {
    opened().iter().map(|(descriptor, file)| (*descriptor, *file)).collect()
}

fn opened() -> MutexGuard<'static, BTreeMap<RawFd, File>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until each open socket is noted, and keeps it so. Call it before a fork.
pub fn lock_for_fork() {
    HELD.set(Some(lock()));
}

/// Call it after a fork, in both processes, on the thread that forked.
pub fn unlock_after_fork() {
    HELD.take();
}

fn lock() -> MutexGuard<'static, ()> {
    // It guards no data that a panic could have left inconsistent.
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_socket_is_opened_after_the_fork_or_before_it() {
        let (opened, opens) = channel();
        lock_for_fork();
        let opener = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(between_forks(async { opened.send(()).expect("awaited") }));
        });
        let early = opens.recv_timeout(Duration::from_millis(50));
        unlock_after_fork();
        let late = opens.recv_timeout(Duration::from_secs(20));
        opener.join().expect("it has opened");
        assert!(early.is_err());
        assert!(late.is_ok());
        lock_for_fork();
        unlock_after_fork();
    }

    #[test]
    fn a_socket_is_told_in_whatever_set_it_is() {
        use std::os::unix::fs::MetadataExt;
        use std::os::unix::net::UnixDatagram;
        let socket = note_opened(UnixDatagram::unbound().expect("a socket")).expect("open");
        let descriptor = socket.as_raw_fd();
        let file = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).expect("open");
        let told = (descriptor, File { device: file.dev(), inode: file.ino() });
        assert!(opened_sockets().contains(&told));
    }
}
