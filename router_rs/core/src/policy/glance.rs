//! What a scan reads of each replica first.

use crate::learnt::Pool;
use crate::replica::Replica;
use crate::time::Nanos;

/// A lower bound of a prediction, kept where a scan finds it: sixteen bytes a replica, instead of
/// the three cache lines that a prediction reads.
///
/// It has to be made again when a call comes or goes at the replica, when it reports, and for all
/// replicas when what is learnt of the deployment changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Glance {
    least_ns: f64,
    /// Until then the bound holds, and no probe is due.
    holds_until: Nanos,
}

impl Glance {
    /// Says nothing.
    pub(crate) const NONE: Self = Self { least_ns: 0.0, holds_until: Nanos::ZERO };

    /// What follows from the calls that have ended there, without the time since. `NONE` where more
    /// than time changes a prediction between two events: the batcher's plan, and what other
    /// routers have there.
    #[inline]
    pub(crate) fn of(replica: &Replica, pool: &Pool) -> Self {
        if replica.batch.is_some() || replica.others.0 > 0 {
            return Self::NONE;
        }
        let slowness = f64::from(replica.pace.usual_slowness(pool));
        Self {
            least_ns: pool.finish_ns(replica.pace.level() + 1) * slowness,
            holds_until: replica.no_probe_before(pool),
        }
    }

    #[inline]
    pub(crate) fn least_ns(self, now: Nanos) -> Option<f64> {
        (now < self.holds_until).then_some(self.least_ns)
    }
}
