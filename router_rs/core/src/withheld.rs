//! What leaving slow replicas alone may have cost; the router does so within a budget.

use crate::time::Nanos;

/// The part of the answers that may be lost by leaving slow replicas alone.
const LOSS_MAX: f64 = 1.0 / 64.0;
/// So many answers may be lost in a row.
const LOSS_SAVED_MAX: f64 = 4.0;

/// What leaving slow replicas alone may cost, counted in calls that they could have answered.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    pub(crate) left: f64,
    pub(crate) withheld: Option<Withheld>,
}

/// Replicas that are left alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withheld {
    pub(crate) since: Nanos,
    /// How many calls a nanosecond they could answer, and how many they are.
    pub(crate) rate: f64,
    pub(crate) replicas: f64,
}

impl Budget {
    #[inline]
    pub(crate) fn on_answer(&mut self) {
        self.left = (self.left + LOSS_MAX).min(LOSS_SAVED_MAX);
    }

    /// Each replica has lost one answer at most: whatever happens next, somebody looks again.
    #[inline]
    pub(crate) fn count(&mut self, now: Nanos) {
        if let Some(Withheld { since, rate, replicas }) = self.withheld.take() {
            let lost = now.saturating_sub(since).0 as f64 * rate;
            self.left = (self.left - lost.min(replicas)).max(0.0);
        }
    }
}
