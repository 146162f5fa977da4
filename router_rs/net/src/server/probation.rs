//! Peers at a mesh's ports that have not yet proven that they hold its token.
//!
//! Anyone who can reach such a port can connect. Members prove themselves in their first round
//! trip. To limit the descriptors that the others take, an unproven connection is closed once a
//! certain number of unproven ones have come after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use router_io::BriefMutex;
use tokio::sync::Notify;

/// The number of unproven connections kept. Arbitrary: more than a mesh has routers that connect
/// within a round trip.
const UNPROVEN_MAX: usize = 256;

/// The unproven connections, in order of arrival.
#[derive(Debug)]
pub(super) struct Probations(BriefMutex<VecDeque<Arc<Probation>>>);

/// The probation of one connection.
#[derive(Debug, Default)]
pub(super) struct Probation {
    /// The peer has proven itself, or is gone.
    is_over: AtomicBool,
    displaced: Notify,
}

/// Ends a probation with its connection.
pub(super) struct Held(Arc<Probation>);

// === impl Probations ===

impl Probations {
    pub(super) fn new() -> Self {
        Self(BriefMutex::new(VecDeque::new()))
    }

    /// Begins a probation; one that began long before may end with its connection.
    pub(super) fn begin(&self) -> Held {
        let probation = Arc::new(Probation::default());
        let mut line = self.0.lock();
        line.retain(|each| !each.is_over());
        line.push_back(Arc::clone(&probation));
        if line.len() > UNPROVEN_MAX {
            line.pop_front().iter().for_each(|oldest| oldest.displaced.notify_one());
        }
        Held(probation)
    }
}

// === impl Probation ===

impl Probation {
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

// === impl Held ===

impl Held {
    pub(super) fn probation(&self) -> Arc<Probation> {
        Arc::clone(&self.0)
    }

    /// Completes when the connection must close; never if the peer proves itself before.
    pub(super) async fn displaced(&self) {
        loop {
            self.0.displaced.notified().await;
            if !self.0.is_over() {
                return;
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_to_go(held: &Held) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(held.displaced()).as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn whoever_came_first_and_proved_nothing_goes_for_others() {
        let line = Probations::new();
        let mut held: Vec<Held> = (0..UNPROVEN_MAX).map(|_| line.begin()).collect();
        held[0].probation().end();
        assert!(!has_to_go(&held[1]));

        held.push(line.begin());
        assert!(!has_to_go(&held[1]), "one has proven itself, which left a place");
        held.push(line.begin());
        assert!(!has_to_go(&held[0]));
        assert!(has_to_go(&held[1]));
        assert!(!has_to_go(&held[2]));
    }

    #[test]
    fn those_who_have_gone_leave_their_places() {
        let line = Probations::new();
        let first = line.begin();
        for _ in 0..3 * UNPROVEN_MAX {
            drop(line.begin());
        }
        assert!(!has_to_go(&first));
    }
}
