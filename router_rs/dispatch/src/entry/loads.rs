//! The replicas that are asked for places, and how long their load streams stay open (`listening`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::HeaderValue;
use router_core::{LeaseRequest, Nanos};
use tokio::sync::{Notify, watch};

/// The streams close when no call has named a model or asked for this long (design 7).
const QUIET: Nanos = Nanos::from_secs(10);

/// The state that a deployment's entry keeps for this.
#[derive(Debug)]
pub(super) struct Loads {
    /// When a call last named a model or asked, or came where replicas report costs.
    pub(super) last_call: AtomicU64,
    pub(super) is_listening: AtomicBool,
    /// When a call last named cache entries; 0: none has.
    last_keys: AtomicU64,
    /// Replicas are to report their caches.
    pub(super) wants_caches: watch::Sender<bool>,
    /// The members have changed.
    pub(super) changed: Notify,
    /// The asks for places.
    pub(super) asked: watch::Sender<Vec<LeaseRequest>>,
    /// The router's name at the gates of all replicas.
    pub(super) asker: HeaderValue,
}

impl Loads {
    /// `asker` must be unique among routers.
    pub(super) fn new(asker: u64) -> Self {
        Self {
            last_call: AtomicU64::new(0),
            is_listening: AtomicBool::new(false),
            last_keys: AtomicU64::new(0),
            wants_caches: watch::Sender::new(false),
            changed: Notify::new(),
            asked: watch::Sender::new(Vec::new()),
            asker: HeaderValue::from(asker),
        }
    }

    /// A call names cache entries.
    pub(super) fn name_keys(&self, now: Nanos) {
        self.last_keys.store(now.0.max(1), Ordering::SeqCst);
        self.want_caches(true);
    }

    /// Replicas need not report their caches if no call has named entries for a while.
    pub(super) fn forget_caches(&self, now: Nanos) {
        let last = Nanos(self.last_keys.load(Ordering::SeqCst));
        if now >= last.saturating_add(QUIET) {
            self.want_caches(false);
        }
    }

    fn want_caches(&self, wanted: bool) {
        // Reading is cheaper, and mostly nothing has changed.
        if *self.wants_caches.borrow() != wanted {
            self.wants_caches.send_replace(wanted);
        }
    }

    /// The router's name at the gates of all replicas.
    pub(super) fn asker(&self) -> &HeaderValue {
        &self.asker
    }

    /// Asks these replicas and no others; returns whether any is asked.
    pub(super) fn ask(&self, wanted: &[LeaseRequest]) -> bool {
        self.asked.send_if_modified(|asked| {
            let is_new = asked != wanted;
            if is_new {
                asked.clear();
                asked.extend_from_slice(wanted);
            }
            is_new
        });
        !wanted.is_empty()
    }

    /// Whether the task may end; later calls start another.
    pub(super) fn may_end(&self, now: Nanos) -> bool {
        if now < self.ends_at() {
            return false;
        }
        self.is_listening.store(false, Ordering::SeqCst);
        // A call that saw the flag set has updated `last_call` before: check again.
        let is_called = now < self.ends_at();
        !is_called || self.is_listening.swap(true, Ordering::SeqCst)
    }

    pub(super) fn ends_at(&self) -> Nanos {
        Nanos(self.last_call.load(Ordering::SeqCst)).saturating_add(QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_ends_ten_seconds_after_the_last_call_and_begins_again_with_the_next() {
        let loads = Loads::new(1);
        loads.is_listening.store(true, Ordering::SeqCst);
        loads.last_call.store(Nanos::from_secs(3).0, Ordering::SeqCst);
        assert!(!loads.may_end(Nanos::from_millis(12_999)));
        assert!(loads.is_listening.load(Ordering::SeqCst));
        assert!(loads.may_end(Nanos::from_secs(13)));
        assert!(!loads.is_listening.load(Ordering::SeqCst));
    }
}
