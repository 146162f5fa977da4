//! Wakes a deployment's router when its next step depends on time alone.
//!
//! One task per deployment, on the thread of the call that parked first. It ends when no call is
//! parked.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, sleep_until};

use super::DeploymentEntry;

impl DeploymentEntry {
    pub(super) fn spawn_ticker(self: &Arc<Self>) {
        let guard = TickerGuard { entry: Arc::downgrade(self), is_done: false };
        tokio::task::spawn_local(tick(guard));
    }
}

async fn tick(mut guard: TickerGuard) {
    loop {
        let Some(entry) = guard.entry.upgrade() else { return };
        let Some(due) = entry.tick() else {
            guard.is_done = true;
            return;
        };
        // Holding the entry while a call is parked does not leak it: parked calls hold it too.
        tokio::select! {
            () = sleep_until(Instant::from_std(due)) => {}
            () = entry.earlier.notified() => {}
        }
    }
}

/// Hands the task's duty over when its thread ends.
struct TickerGuard {
    entry: Weak<DeploymentEntry>,
    is_done: bool,
}

impl Drop for TickerGuard {
    fn drop(&mut self) {
        if let (false, Some(entry)) = (self.is_done, self.entry.upgrade()) {
            entry.lose_ticker();
        }
    }
}
