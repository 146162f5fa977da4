//! One connection of an address that is remembered (`strangers`), from its coming to its end.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Front;
use crate::guard::strangers::TLS_POINTS;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Visit {
    front: Arc<Front>,
    /// `None`: it is that of a proxy, and says nothing of who comes.
    address: Option<IpAddr>,
    points: u32,
    has_asked: Cell<bool>,
}

// === impl Visit ===

impl Visit {
    /// A connection has come.
    pub(super) fn new(front: &Arc<Front>, address: Option<IpAddr>, is_tls: bool) -> Self {
        let points = if is_tls { TLS_POINTS } else { 1 };
        Self { front: Arc::clone(front), address, points, has_asked: Cell::new(false) }
    }

    /// How long it has to wait before anything of it is read.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let (strangers, address) = (&self.front.strangers, self.address?);
        strangers.on_come(address, self.points, now);
        strangers.queue(address, self.points, now)
    }

    /// Its client asks for something.
    pub(super) fn on_request(&self) {
        let Some(address) = self.address else { return };
        if !self.has_asked.replace(true) {
            self.front.strangers.on_request(address, self.points);
        }
    }
}
