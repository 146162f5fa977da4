//! The replica's cache, as it is reported to routers whose calls name cache entries (the load stream,
//! `load`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_core::{CacheBatch, CacheLog, CacheReader};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Batches follow each other no sooner. Arbitrary: routers know where they have sent calls
/// themselves.
const PACE: Duration = Duration::from_millis(100);
/// Changes of one batch: at most 50 KiB. More follow at once.
const CHANGES_MAX: usize = 2_048;
/// Keys that a replica reports unless it is told another bound.
const KEYS_MAX: usize = 1 << 15;

/// The cache entries that a server reports; changed from any thread.
#[derive(Debug)]
pub struct Caches {
    log: Mutex<CacheLog>,
    changed: watch::Sender<()>,
}

/// Keys that are reported, and those dropped because they were too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheCounts {
    pub(super) keys: u64,
    pub(super) dropped: u64,
}

/// One router's way through it.
pub(super) struct CacheFollower {
    caches: Arc<Caches>,
    reader: CacheReader,
    changed: watch::Receiver<()>,
    due_at: Instant,
}

// === impl Caches ===

impl Caches {
    pub(super) fn new() -> Self {
        Self { log: Mutex::new(CacheLog::new(KEYS_MAX)), changed: watch::Sender::new(()) }
    }

    /// How many entries are reported at most; beyond that the oldest are dropped.
    pub fn set_keys_max(&self, keys_max: usize) {
        self.change(|log| log.set_keys_max(keys_max));
    }

    /// Entries are there: a chain after `parent`, or each by itself. Routers whose calls name entries
    /// are told within a tenth of a second.
    pub fn store(&self, keys: &[u64], parent: Option<u64>) {
        self.change(|log| {
            let mut before = parent.unwrap_or(0);
            for key in keys {
                log.store(*key, before);
                before = if parent.is_some() { *key } else { 0 };
            }
        });
    }

    /// Entries are not there any more.
    pub fn remove(&self, keys: &[u64]) {
        self.change(|log| keys.iter().for_each(|key| log.remove(*key)));
    }

    /// No entry is there any more.
    pub fn clear(&self) {
        self.change(CacheLog::clear);
    }

    pub(super) fn counts(&self) -> CacheCounts {
        let log = self.log.lock();
        CacheCounts { keys: log.len() as u64, dropped: log.dropped() }
    }

    /// A router wants to know all, and then what changes.
    pub(super) fn follow(self: &Arc<Self>) -> CacheFollower {
        CacheFollower {
            caches: Arc::clone(self),
            reader: CacheReader::default(),
            changed: self.changed.subscribe(),
            due_at: Instant::now(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut CacheLog)) {
        change(&mut self.log.lock());
        self.changed.send_replace(());
    }
}

// === impl CacheFollower ===

impl CacheFollower {
    /// The next batch, once it is time. Nothing is lost if this is dropped before it returns.
    pub(super) async fn next(&mut self) -> CacheBatch {
        sleep_until(self.due_at).await;
        loop {
            self.changed.mark_unchanged();
            let batch = self.caches.log.lock().read(&mut self.reader, CHANGES_MAX);
            if let Some(batch) = batch {
                let is_all = batch.changes.len() < CHANGES_MAX;
                self.due_at = Instant::now() + if is_all { PACE } else { Duration::ZERO };
                return batch;
            }
            if self.changed.changed().await.is_err() {
                // The server is gone, and with it this connection.
                std::future::pending::<()>().await;
            }
        }
    }
}
