//! Calls whose clients are slow, and the calls that wait for their places.

use std::task::Context;

use super::{DeploymentEntry, Locked, Wakers};

/// The number of slow calls that are woken when a call waits; the others check from time to time.
/// Arbitrary.
const SLOW_MAX: usize = 64;

impl DeploymentEntry {
    /// Whether a call waits for a place. If not, the slow call is woken when one does, unless many
    /// others will be.
    pub(crate) fn wants_place(&self, cx: &Context<'_>) -> bool {
        let mut locked = self.locked.lock();
        if locked.router.wants_places() {
            return true;
        }
        let slow = &mut locked.slow;
        if slow.len() < SLOW_MAX && !slow.iter().any(|waker| waker.will_wake(cx.waker())) {
            slow.push(cx.waker().clone());
        }
        false
    }
}

impl Locked {
    /// A call begins to wait: wakes the slow ones to check whether it needs their place.
    pub(super) fn tell_slow(&mut self, wakers: &mut Wakers) {
        if !self.slow.is_empty() && self.router.wants_places() {
            wakers.extend(self.slow.drain(..));
        }
    }
}
