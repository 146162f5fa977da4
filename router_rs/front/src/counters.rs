//! The counters of a front.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use router_call::Door;

use crate::doors::Doors;

/// A number for people and tests. Relaxed, since no decision depends on it.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See `Ingress.stats` for the names.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests in all protocols.
    pub(super) calls: Counter,
    /// Those answered by a replica.
    pub(super) forwarded: Counter,
    /// Those answered by the front itself.
    pub(super) answered_here: Counter,
    /// Those whose client left.
    pub(super) cancelled_by_client: Counter,
    /// Those that failed because of a bug of ours.
    pub(super) panics: Counter,
    /// Plain HTTP requests by the class of their status, 1 to 5.
    by_class: [Counter; 5],
    /// Plain HTTP requests whose client left before they were answered.
    pub(super) client_closed: Counter,
    pub(super) connections_refused: Counter,
    /// Handshakes in which one side refused the other, or a client that did not speak TLS.
    pub(super) tls_failures: Counter,
    /// Connections of trusted proxies that sent no valid PROXY header.
    pub(super) proxy_headers_malformed: Counter,
    pub(super) header_bytes_exceeded: Counter,
    pub(super) body_bytes_exceeded: Counter,
    pub(super) header_timeouts: Counter,
    pub(super) idle_timeouts: Counter,
    pub(super) body_timeouts: Counter,
    pub(super) keep_alive_timeouts: Counter,
    /// Connections asked to close because all idle ones kept too much memory.
    pub(super) idle_closed: Counter,
    /// Idle connections asked to close because new ones needed their place.
    pub(super) displaced: Counter,
    /// Connections closed because they flooded the front.
    pub(super) floods: Counter,
    /// Connections delayed because others of their address were closed for offences.
    pub(super) delayed_connections: Counter,
    /// Requests that gave up their place because their client was slow and others waited.
    pub(super) slow_clients: Counter,
    /// How often a connection of HTTP/1.1 became idle.
    pub(super) rests: Counter,
    pub doors: Doors,
    connections: AtomicU64,
    in_flight: AtomicU64,
}

// === impl Counters ===

impl Counters {
    /// Counts a request that was answered immediately.
    pub(super) fn count_here(&self, door: Door, status: Option<StatusCode>) {
        self.answered_here.count();
        self.doors.count(door, status);
    }

    /// A plain HTTP request has been answered.
    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        if let Some(counter) = self.by_class.get(class.wrapping_sub(1)) {
            counter.count();
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Those that are open.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn read(&self) -> Vec<(&'static str, u64)> {
        let [class_1, class_2, class_3, class_4, class_5] = &self.by_class;
        vec![
            ("in_flight", self.in_flight()),
            ("calls", self.calls.read()),
            ("forwarded", self.forwarded.read()),
            ("answered_here", self.answered_here.read()),
            ("cancelled_by_client", self.cancelled_by_client.read()),
            ("panics", self.panics.read()),
            ("http_1xx", class_1.read()),
            ("http_2xx", class_2.read()),
            ("http_3xx", class_3.read()),
            ("http_4xx", class_4.read()),
            ("http_5xx", class_5.read()),
            ("http_499", self.client_closed.read()),
            ("connections", self.connections()),
            ("connections_refused", self.connections_refused.read()),
            ("tls_failures", self.tls_failures.read()),
            ("proxy_headers_malformed", self.proxy_headers_malformed.read()),
            ("header_bytes_exceeded", self.header_bytes_exceeded.read()),
            ("body_bytes_exceeded", self.body_bytes_exceeded.read()),
            ("header_timeouts", self.header_timeouts.read()),
            ("idle_timeouts", self.idle_timeouts.read()),
            ("body_timeouts", self.body_timeouts.read()),
            ("keep_alive_timeouts", self.keep_alive_timeouts.read()),
            ("idle_closed", self.idle_closed.read()),
            ("displaced", self.displaced.read()),
            ("floods", self.floods.read()),
            ("delayed_connections", self.delayed_connections.read()),
            ("slow_clients", self.slow_clients.read()),
            ("rests", self.rests.read()),
        ]
    }
}

/// Counts one call for as long as it lives.
#[derive(Debug)]
pub(super) struct CallCount {
    counters: Arc<Counters>,
    door: Door,
}

impl CallCount {
    pub(super) fn new(counters: &Arc<Counters>, door: Door) -> Self {
        counters.in_flight.fetch_add(1, Ordering::AcqRel);
        counters.doors.open(door);
        Self { counters: Arc::clone(counters), door }
    }
}

impl Drop for CallCount {
    fn drop(&mut self) {
        let counters = &self.counters;
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
    counters: Arc<Counters>,
}

impl ConnectionCount {
    /// Also returns how many others there are.
    pub(super) fn new(counters: &Arc<Counters>) -> (Self, u64) {
        let before = counters.connections.fetch_add(1, Ordering::AcqRel);
        (Self { counters: Arc::clone(counters) }, before)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.counters.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
