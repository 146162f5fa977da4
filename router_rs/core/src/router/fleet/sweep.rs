//! Brings what was learnt of the deployment to its replicas: which of their calls are long-lived,
//! and how many more keep a replica out.
//!
//! With 64 replicas that takes as long as several picks, and reads four cache lines of each; calls
//! of other threads would wait for the router meanwhile. So a sweep has steps, one with each
//! departure. Until it comes to a replica, what was known before holds there.

use super::{Fleet, Sweep};
use crate::replica::Replica;
use crate::time::Nanos;

/// So often at least, while replicas are held back, it is looked whether that is still right.
const LONG_LIVED_LOOK_MAX: Nanos = Nanos::from_secs(1);

/// The least number of replicas per step: about as long as a pick among 64. Learnt values are
/// outdated after 64 departures, so steps are larger if the sweep would not reach all replicas by
/// then.
const STEP_MIN: usize = 16;

impl Fleet {
    /// Brings what was learnt to all replicas at once.
    #[cold]
    pub(in crate::router) fn hold_back(&mut self, now: Nanos) {
        self.begin_sweep(1, now);
    }

    /// Brings what was learnt to the first replicas, and has [`Fleet::sweep_on`] come to all of
    /// them by the last of so many departures, of which this is the first.
    #[cold]
    pub(super) fn begin_sweep(&mut self, departures: u32, now: Nanos) {
        self.sweep = Some(Sweep {
            next: 0,
            step: self.replicas.len().div_ceil(departures.max(1) as usize).max(STEP_MIN),
            long_lived_at: None,
        });
        self.sweep_on(now);
    }

    /// The next step, if the last sweep is not over.
    #[inline]
    pub(super) fn sweep_on(&mut self, now: Nanos) {
        if let Some(sweep) = self.sweep {
            self.sweep = self.step(sweep, now);
        }
    }

    /// Makes one step; returns the rest of the sweep.
    fn step(&mut self, mut sweep: Sweep, now: Nanos) -> Option<Sweep> {
        let end = (sweep.next + sweep.step).min(self.replicas.len());
        for slot in sweep.next..end {
            let long_lived_at = self.hold_one_back(slot as u32, now);
            sweep.long_lived_at = sweep.long_lived_at.into_iter().chain(long_lived_at).min();
        }
        sweep.next = end;
        if end < self.replicas.len() {
            return Some(sweep);
        }
        // The replicas of earlier steps may have changed since, and the result may be watched
        // already.
        let watched = self.long_lived_at.filter(|_| sweep.step < end);
        self.watch_long_lived_from(sweep.long_lived_at.into_iter().chain(watched).min(), now);
        None
    }

    /// Returns when calls there become long-lived next that now keep others out.
    fn hold_one_back(&mut self, slot: u32, now: Nanos) -> Option<Nanos> {
        let replica = &mut self.replicas[slot as usize];
        replica.pace.on_learnt(&self.pool, now);
        let useful = if self.is_patient && !self.costs.is_on {
            self.pool.useful_for(replica.pace.slowness(&self.pool), replica.tier)
        } else {
            None
        };
        let held = useful.unwrap_or(u32::MAX);
        if replica.held != held {
            replica.held = held;
            self.refresh(slot);
        }
        self.glance(slot);
        self.replicas[slot as usize].long_lived_at()
    }

    /// Looks when calls become long-lived next that now keep others out.
    pub(in crate::router) fn watch_long_lived(&mut self, now: Nanos) {
        if self.long_lived_at.is_none() && self.is_patient {
            let first = self.replicas.iter().filter_map(Replica::long_lived_at).min();
            self.watch_long_lived_from(first, now);
        }
    }

    /// As [`Fleet::watch_long_lived`], where only the replica in `slot` has changed.
    #[inline]
    pub(in crate::router) fn watch_long_lived_of(&mut self, slot: u32, now: Nanos) {
        if self.long_lived_at.is_none() && self.is_patient {
            self.watch_long_lived_from(self.replicas[slot as usize].long_lived_at(), now);
        }
    }

    fn watch_long_lived_from(&mut self, first: Option<Nanos>, now: Nanos) {
        let latest = now.saturating_add(LONG_LIVED_LOOK_MAX);
        self.long_lived_at = first.map(|at| at.min(latest)).filter(|_| self.is_patient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{ReplicaId, ReplicaSpec, Tier};
    use crate::policy::PolicyKind;

    /// Each of which is held back, though nothing is known that says so.
    fn fleet_held_back(len: u64) -> Fleet {
        let mut fleet = Fleet::new(PolicyKind::Predicted.build(1.25), 1);
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 4 };
        let specs: Vec<ReplicaSpec> = (0..len).map(spec).collect();
        fleet.apply(&specs, (Nanos::ZERO, Nanos::ZERO), |_| {});
        for slot in 0..len as u32 {
            fleet.replicas[slot as usize].held = 0;
            fleet.refresh(slot);
        }
        fleet
    }

    /// How many are open when it begins and after each departure that follows, up to all.
    fn open_by_departures(len: u64, departures: u32) -> Vec<usize> {
        let mut fleet = fleet_held_back(len);
        fleet.begin_sweep(departures, Nanos::ZERO);
        let mut open = vec![fleet.open.len()];
        while fleet.sweep.is_some() {
            fleet.sweep_on(Nanos::ZERO);
            open.push(fleet.open.len());
        }
        open
    }

    #[test]
    fn it_comes_to_all_before_more_is_learnt() {
        assert_eq!(vec![10], open_by_departures(10, 64));
        assert_eq!(vec![16, 32, 40], open_by_departures(40, 64));
        assert_eq!(vec![50, 100], open_by_departures(100, 2));
        assert_eq!(vec![100], open_by_departures(100, 1));
        assert_eq!(vec![0], open_by_departures(0, 64));
    }

    /// Calls that have come to a replica after its step keep others out from now on.
    #[test]
    fn its_end_leaves_what_is_watched_meanwhile() {
        let mut fleet = fleet_held_back(17);
        fleet.begin_sweep(64, Nanos::ZERO);
        fleet.take(0, Nanos::ZERO);
        fleet.replicas[0].held = 1;
        fleet.refresh(0);
        fleet.watch_long_lived(Nanos::ZERO);
        assert_eq!(Some(LONG_LIVED_LOOK_MAX), fleet.long_lived_at);
        fleet.sweep_on(Nanos::ZERO);
        assert!(fleet.sweep.is_none());
        assert_eq!(Some(LONG_LIVED_LOOK_MAX), fleet.long_lived_at);
    }

    #[test]
    fn a_fleet_that_is_forgotten_on_its_way_ends_it() {
        let mut fleet = fleet_held_back(40);
        fleet.begin_sweep(64, Nanos::ZERO);
        fleet.apply(&[], (Nanos::ZERO, Nanos::ZERO), |_| {});
        fleet.sweep_on(Nanos::ZERO);
        fleet.sweep_on(Nanos::ZERO);
        assert!(fleet.sweep.is_none());
        assert_eq!(0, fleet.open.len());
    }
}
