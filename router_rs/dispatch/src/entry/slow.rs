//! Calls whose clients are slow, and those that wait for their places.

use std::task::Context;

use super::{DeploymentEntry, Locked, Wakers};

/// So many slow calls are told that somebody waits; the others look now and then. Arbitrary.
const SLOW_MAX: usize = 64;

impl DeploymentEntry {
    /// Whether a call waits for a place. If not, the slow call that asks is woken when one does,
    /// unless many others will be.
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
    /// A call begins to wait: has the slow ones look whether it is for a place.
    pub(super) fn tell_slow(&mut self, wakers: &mut Wakers) {
        if !self.slow.is_empty() && self.router.wants_places() {
            wakers.extend(self.slow.drain(..));
        }
    }
}
