//! Keeps forks of the process out of the moments in which a socket is open, and in no poller's set:
//! a forked child lets go of what the pollers of the I/O threads watch.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::RawFd;
// Not that of parking_lot: its unlocking may touch a table that another thread had locked at the
// fork. This one is a futex, which a child may let go of.
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::socket::Socket;

/// Sockets on their way between I/O threads, in no poller's set; their list is the lock as well.
static MOVING: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

thread_local! {
    static HELD: Cell<Option<MutexGuard<'static, Vec<RawFd>>>> = const { Cell::new(None) };
}

/// Runs each poll of `future` between forks: what opens a socket and has it watched in one poll is
/// never seen between the two by a child. So is what `future` has open when it is dropped.
pub(crate) async fn between_forks<F: Future>(future: F) -> F::Output {
    let mut future = Socket::from(Box::pin(future));
    poll_fn(|context| {
        let _no_fork_meanwhile = lock();
        future.as_mut().poll(context)
    })
    .await
}

/// Waits until no socket is half open or half closed, and keeps it so; to be called before a fork.
pub fn lock_for_fork() {
    HELD.set(Some(lock()));
}

/// To be called after a fork, in both processes, by the thread that forked.
pub fn unlock_after_fork() {
    HELD.take();
}

/// What moves between I/O threads; of a thread that forks also while it holds the lock.
pub fn moving_sockets() -> Vec<RawFd> {
    let Some(held) = HELD.take() else { return lock().clone() };
    let found = held.clone();
    HELD.set(Some(held));
    found
}

pub(super) fn lock() -> MutexGuard<'static, Vec<RawFd>> {
    // No panic leaves the list half changed.
    MOVING.lock().unwrap_or_else(PoisonError::into_inner)
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
}
