//! What all connections of an ingress share, and the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::access::Access;
use crate::dispatch::RoutingTable;

/// Counters for people and tests; relaxed, since nothing is decided by them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Requests that became calls, and those that were answered on the spot.
    pub calls: AtomicU64,
    /// Calls that got a replica's answer.
    pub forwarded: AtomicU64,
    /// Calls that the ingress answered itself.
    pub answered_here: AtomicU64,
    /// Calls whose client went away.
    pub cancelled_by_client: AtomicU64,
    /// Calls that failed by a defect of ours.
    pub panics: AtomicU64,
    pub connections: AtomicU64,
    in_flight: AtomicU64,
}

#[derive(Debug)]
pub(super) struct IngressState {
    pub table: Arc<RoutingTable>,
    pub access: Option<Arc<Access>>,
    pub counters: Counters,
}

impl IngressState {
    pub(super) fn new(table: Arc<RoutingTable>, access: Option<Arc<Access>>) -> Self {
        Self { table, access, counters: Counters::default() }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.counters.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn stats(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("in_flight", self.in_flight()),
            ("calls", read(&counters.calls)),
            ("forwarded", read(&counters.forwarded)),
            ("answered_here", read(&counters.answered_here)),
            ("cancelled_by_client", read(&counters.cancelled_by_client)),
            ("panics", read(&counters.panics)),
            ("connections", read(&counters.connections)),
        ]
    }
}

/// Counts one for as long as it lives.
#[derive(Debug)]
pub(super) struct CallCount {
    state: Arc<IngressState>,
}

impl CallCount {
    pub(super) fn new(state: &Arc<IngressState>) -> Self {
        state.counters.in_flight.fetch_add(1, Ordering::AcqRel);
        Self { state: Arc::clone(state) }
    }
}

impl Drop for CallCount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.counters.panics.fetch_add(1, Ordering::Relaxed);
        }
        self.state.counters.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts one connection for as long as it lives.
#[derive(Debug)]
pub(super) struct ConnectionCount {
    state: Arc<IngressState>,
}

impl ConnectionCount {
    pub(super) fn new(state: &Arc<IngressState>) -> Self {
        state.counters.connections.fetch_add(1, Ordering::Relaxed);
        Self { state: Arc::clone(state) }
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.state.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
