//! Whether a replica gives signs of life, over all connections of all threads.
//!
//! Whoever waits in vain for an answer to a PING, or for a handshake, says so here. The replica's
//! router is told once, and a task tries to connect anew until that works: a stopped process takes
//! no call meanwhile, and one that goes on is back within a moment.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::dial::{Target, dial};

/// The pause between two attempts to connect to a silent replica that fail at once: a process that
/// is gone is refused by its router's backoff in any case, so nothing depends on it.
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// Wants to know; it is told from any thread.
pub(crate) trait Observer: Send + Sync + std::fmt::Debug {
    /// The replica gives no sign of life, or does so again.
    fn on_silence(&self, is_silent: bool);
}

/// What is known of one target.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_silent: bool,
    /// Told under the lock, so that it hears things in their order.
    observer: Option<Arc<dyn Observer>>,
}

impl Vitals {
    /// Who is told from now on; nobody else is. It is told at once if the target is silent.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let mut state = self.state.lock();
        if state.is_silent {
            observer.on_silence(true);
        }
        state.observer = Some(observer);
    }

    /// Returns whether that is news.
    fn set_silent(&self, is_silent: bool) -> bool {
        let mut state = self.state.lock();
        let is_news = std::mem::replace(&mut state.is_silent, is_silent) != is_silent;
        if let Some(observer) = state.observer.as_ref().filter(|_| is_news) {
            observer.on_silence(is_silent);
        }
        is_news
    }
}

/// Nobody answers at `target`; must be called within a `LocalRuntime`.
pub(crate) fn on_silence(target: &Arc<Target>) {
    if target.as_replica().is_some() && target.vitals().set_silent(true) {
        tokio::task::spawn_local(probe(Probe { target: Arc::downgrade(target) }));
    }
}

/// Connects until it works, or nobody knows the target any more.
async fn probe(probe: Probe) {
    loop {
        let Some(target) = probe.target.upgrade() else { return };
        match dial(&target).await {
            // The connection has proved itself; calls open their own.
            Ok(connection) => return connection.retire(),
            Err(_) => drop(target),
        }
        sleep(PROBE_PAUSE).await;
    }
}

/// When it ends, the target counts as heard: it answered, or nobody is left who would find out.
struct Probe {
    target: Weak<Target>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(target) = self.target.upgrade() {
            target.vitals().set_silent(false);
        }
    }
}
