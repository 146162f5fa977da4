//! What is counted for as long as it lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use router_upstream::call::Door;

use crate::Front;

/// Counts one call for as long as it lives.
#[derive(Debug)]
pub(super) struct CallCount {
    front: Arc<Front>,
    door: Door,
}

impl CallCount {
    pub(super) fn new(front: &Arc<Front>, door: Door) -> Self {
        front.counters.in_flight.fetch_add(1, Ordering::AcqRel);
        front.counters.doors.open(door);
        Self { front: Arc::clone(front), door }
    }
}

impl Drop for CallCount {
    fn drop(&mut self) {
        let counters = &self.front.counters;
        if std::thread::panicking() {
            counters.panics.count();
        }
        counters.doors.close(self.door);
        counters.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts one connection for as long as it lives.
#[derive(Debug)]
pub struct ConnectionCount {
    front: Arc<Front>,
}

impl ConnectionCount {
    /// Also says how many others there are.
    pub(super) fn new(front: &Arc<Front>) -> (Self, u64) {
        let before = front.counters.connections.fetch_add(1, Ordering::AcqRel);
        (Self { front: Arc::clone(front) }, before)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.front.counters.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
