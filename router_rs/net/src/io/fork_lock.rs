//! Keeps forks of the process out of the moments in which a socket is open, and in no poller's set.
//!
//! A forked child lets go of what the pollers of the I/O threads watch. A socket that was opened and
//! not yet watched stayed open in the child, and its peer would not see the parent's death.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
// Not that of parking_lot: its unlocking may touch a table that another thread had locked at the
// fork. This one is a futex, which a child may let go of.
use std::sync::{Mutex, MutexGuard, PoisonError};

static OPENING: Mutex<()> = Mutex::new(());

thread_local! {
    static HELD: Cell<Option<MutexGuard<'static, ()>>> = const { Cell::new(None) };
}

/// Runs each poll of `future` between forks: what opens a socket and has it watched in one poll is
/// never seen between the two by a child.
pub(crate) async fn between_forks<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _no_fork_meanwhile = lock();
        future.as_mut().poll(context)
    })
    .await
}

/// Waits until no socket is half open, and keeps it so; to be called before a fork.
pub fn lock_for_fork() {
    HELD.set(Some(lock()));
}

/// To be called after a fork, in both processes, by the thread that forked.
pub fn unlock_after_fork() {
    HELD.take();
}

fn lock() -> MutexGuard<'static, ()> {
    // It guards no data that a panic could have left half changed.
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
}
