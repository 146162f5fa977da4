//! Whether a replica gives signs of life, over all connections of all threads.
//!
//! A connection that waits in vain for the answer to a PING, or for a handshake, reports it
//! (`dial::on_silence`). The replica's router is notified once, and a task tries to connect again
//! until that works: a stopped process gets no calls meanwhile, and one that continues is back
//! within a moment.

use std::sync::Arc;

use parking_lot::Mutex;

/// Observes a replica; may be called from any thread.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// The replica gives no sign of life, or does so again.
    fn on_silence(&self, is_silent: bool);
}

/// The state of one target.
#[derive(Debug, Default)]
pub struct Reachability {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_silent: bool,
    /// Called under the lock, so that it gets events in order.
    observer: Option<Arc<dyn Observer>>,
}

impl Reachability {
    /// Sets the observer, instead of any other. It is called at once if the target is silent.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let mut state = self.state.lock();
        if state.is_silent {
            observer.on_silence(true);
        }
        state.observer = Some(observer);
    }

    /// Returns whether that is a change.
    pub(super) fn set_silent(&self, is_silent: bool) -> bool {
        let mut state = self.state.lock();
        let is_news = std::mem::replace(&mut state.is_silent, is_silent) != is_silent;
        if let Some(observer) = state.observer.as_ref().filter(|_| is_news) {
            observer.on_silence(is_silent);
        }
        is_news
    }
}
