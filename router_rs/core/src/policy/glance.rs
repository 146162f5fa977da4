//! The first data that a scan reads of each replica.

use crate::learnt::Pool;
use crate::membership::Tier;
use crate::replica::Replica;
use crate::time::Nanos;

/// The inputs for a lower bound of a prediction, stored where a scan finds them: sixteen bytes per
/// replica, instead of the three cache lines that a prediction reads.
///
/// It must be computed again when a call arrives or leaves at the replica, when the replica
/// reports, when learnt values reach it, and for all replicas when they turn out to be shared with
/// other routers. Values learnt for the deployment change with each answer, so they are looked up
/// when the bound is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Glance {
    /// Until then the bound holds, and no probe is due.
    holds_until: Nanos,
    /// Of what has ended there, without the time since.
    slowness: f32,
    /// With one more call. More count as the highest number.
    level: u16,
    tier: Tier,
}

impl Glance {
    /// Says nothing.
    pub(crate) const NONE: Self =
        Self { holds_until: Nanos::ZERO, slowness: 0.0, level: 0, tier: Tier::Any };

    /// `NONE` where more than time changes a prediction between two events: the batcher's plan.
    #[inline]
    pub(crate) fn of(replica: &Replica, pool: &Pool) -> Self {
        if replica.batch.is_some() {
            return Self::NONE;
        }
        let level = replica.pace.level() + 1;
        Self {
            holds_until: replica.no_probe_before(pool),
            slowness: replica.pace.usual_slowness(pool),
            level: u16::try_from(level).unwrap_or(u16::MAX),
            tier: replica.tier,
        }
    }

    #[inline]
    pub(crate) fn least_ns(self, pool: &Pool, now: Nanos) -> Option<f64> {
        if now >= self.holds_until {
            return None;
        }
        let finish_ns = pool.finish_ns(u32::from(self.level)) * f64::from(self.slowness);
        Some(finish_ns + pool.turnaround_ns(self.tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{ReplicaId, ReplicaSpec};

    fn replica_with_a_call(pool: &Pool) -> Replica {
        let spec = ReplicaSpec { id: ReplicaId(1), tier: Tier::Zone, capacity: u32::MAX };
        let mut replica = Replica::new(&spec);
        replica.in_flight = 1;
        replica.pace.on_sent(pool, Nanos::ZERO);
        replica
    }

    /// A bound below what all have in common rules nobody out, and all are predicted.
    #[test]
    fn a_bound_is_exact_while_nothing_is_late() {
        let mut pool = Pool::default();
        let replica = replica_with_a_call(&pool);
        let glance = Glance::of(&replica, &pool);
        let is_exact = |pool: &Pool| {
            let finish_ns = replica.finish_ns(pool, Nanos::ZERO);
            assert_eq!(Some(finish_ns), glance.least_ns(pool, Nanos::ZERO));
            finish_ns
        };
        let before_ns = is_exact(&pool);
        pool.on_turnaround(Tier::Zone, Nanos::from_millis(5), Nanos::from_millis(2));
        let after_ns = is_exact(&pool);
        assert_eq!(Nanos::from_millis(3), Nanos((after_ns - before_ns) as u64));
    }
}
