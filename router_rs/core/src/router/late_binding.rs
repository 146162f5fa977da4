//! Calls that would only wait inside a replica wait in the router, where they go to whichever
//! replica is free first.
//!
//! Replicas that work on one call at a time say so ([`Exclusive`](crate::exclusive::Exclusive)). As
//! long as nearly all of the deployment's calls are of that kind, a replica gets no more of them than
//! keep it busy. It gets more as soon as it says that it idles, and after a while without an answer.

use super::fleet::Fleet;
use crate::time::Nanos;

impl Fleet {
    /// The replica in `slot` could take calls that are kept from it.
    #[inline]
    pub(super) fn is_kept(&self, slot: u32) -> bool {
        let replica = &self.replicas[slot as usize];
        replica.is_held_back() && replica.spare() > 0
    }

    /// A call that was there for `took` is answered by the replica in `slot`. Returns whether it was
    /// wrong to keep calls from that replica meanwhile.
    #[inline]
    pub(super) fn on_word(
        &mut self,
        slot: u32,
        took: Nanos,
        alone: Option<Nanos>,
        now: Nanos,
    ) -> bool {
        if !self.late.is_on {
            return false;
        }
        let was_proven = self.late.exclusive.is_proven();
        self.late.exclusive.on_answer(took, alone);
        let was_kept = alone.is_none() && self.is_kept(slot);
        let replica = &mut self.replicas[slot as usize];
        replica.may_overlap = alone.is_none();
        replica.quiet_since = now;
        if self.late.exclusive.is_proven() == was_proven {
            self.bind(slot, now);
        } else {
            self.bind_all(now);
        }
        was_kept
    }

    /// The replica in `slot` has a place for one more call; if calls were kept from it, it idles.
    pub(super) fn on_idle(&mut self, slot: u32, now: Nanos) {
        if !self.late.is_on || !self.is_kept(slot) {
            return;
        }
        self.late.exclusive.on_idle();
        self.replicas[slot as usize].may_overlap = true;
        if self.late.exclusive.is_proven() {
            self.bind(slot, now);
        } else {
            self.bind_all(now);
        }
    }

    /// Calls wait: looks when a replica that is silent takes one more.
    #[inline]
    pub(super) fn watch_silence(&mut self, now: Nanos) {
        if self.late.is_on && self.late.eases_at.is_none() && self.late.exclusive.is_proven() {
            let kept = self.replicas.iter().filter(|one| one.is_held_back() && one.is_in());
            self.late.eases_at =
                kept.map(|one| self.late.exclusive.eases_at(one.quiet_since, now)).min();
        }
    }

    /// Lets replicas that are silent take one more.
    #[inline]
    pub(super) fn ease(&mut self, now: Nanos) {
        if self.late.eases_at.is_some_and(|at| at <= now) {
            self.bind_all(now);
        }
    }

    /// A call is about to be placed: a replica that is in a long call by now gets none in reserve.
    #[inline]
    pub(super) fn close_behind_long_calls(&mut self, now: Nanos) {
        if !self.late.is_on || !self.late.exclusive.is_proven() {
            return;
        }
        let mut position = 0;
        while let Some(slot) = self.open.get(position).copied() {
            let replica = &self.replicas[slot as usize];
            let quiet = replica.quiet(now);
            if replica.in_flight > 0 && self.late.exclusive.is_long(quiet) {
                self.bind(slot, now);
            }
            // One that was closed has left its place to another.
            position += usize::from(self.open.get(position) == Some(&slot));
        }
    }

    /// Checks again, for each replica with room, what keeps calls from it.
    #[cold]
    pub(super) fn keep_again(&mut self, now: Nanos) {
        if self.late.is_on {
            self.bind_all(now);
        } else {
            self.hold_back(now);
        }
    }

    /// Binds all replicas again: the evidence has changed, or time has passed for silent ones.
    #[cold]
    pub(super) fn bind_all(&mut self, now: Nanos) {
        self.late.eases_at = None;
        if !self.late.exclusive.is_proven() {
            // The measured speeds hold only for work on one call at a time.
            self.replicas.iter_mut().for_each(|replica| replica.octaves = 0);
        }
        for slot in 0..self.replicas.len() as u32 {
            self.bind(slot, now);
        }
    }

    /// Lets the replica in `slot` have as many calls as keep it busy, or any number.
    #[inline]
    pub(super) fn bind(&mut self, slot: u32, now: Nanos) {
        let Self { replicas, late, pool, .. } = self;
        let (replica, exclusive) = (&mut replicas[slot as usize], &late.exclusive);
        let is_bound = late.is_on && !self.is_batching && !replica.may_overlap;
        let quiet = replica.quiet(now);
        // Beside the calls of a slow one the way there is short.
        let gap_ns = pool.turnaround_ns(replica.tier) / f64::from(1_u32 << replica.octaves);
        let enough = if is_bound { exclusive.enough(gap_ns, quiet) } else { None };
        let held = enough.map_or(u32::MAX, |enough| enough.saturating_add(exclusive.eased(quiet)));
        if replica.held != held {
            replica.held = held;
            self.refresh(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::membership::{ReplicaId, ReplicaSpec, Tier};
    use crate::replica::Load;
    use crate::router::{
        Assignment, Decision, LeaseRequest, Offer, Outcome, Release, Router, RouterConfig,
    };
    use crate::time::Nanos;

    fn router(replicas: usize) -> Router {
        let mut router = Router::new(RouterConfig::default());
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 10 };
        let specs: Vec<ReplicaSpec> = (0..replicas as u64).map(spec).collect();
        router.apply(&specs, Nanos::ZERO, &mut Vec::new());
        router
    }

    fn send(router: &mut Router, now: Nanos) -> Assignment {
        match router.offer(Offer::default(), now) {
            Decision::Send(assignment) => assignment,
            other => panic!("there is room, but {other:?}"),
        }
    }

    fn park(router: &mut Router, now: Nanos) {
        let decision = router.offer(Offer::default(), now);
        assert!(matches!(decision, Decision::Parked(_)), "it is to wait, but {decision:?}");
    }

    /// A router that binds late, of so many replicas that say that they work on one call at a time.
    fn late_binding(replicas: usize) -> (Router, Nanos) {
        let mut router = router(replicas);
        let mut now = Nanos::ZERO;
        for _ in 0..20 * replicas {
            let call = send(&mut router, now);
            now = now.saturating_add(Nanos::from_millis(10));
            router.complete(call.ticket, alone(10), now, &mut Vec::new());
        }
        (router, now)
    }

    /// An answer after so long, of a replica that could do nothing else and is 0.1 ms away.
    fn alone(took_ms: u64) -> Outcome {
        let processing = Nanos::from_micros(took_ms * 1_000 - 100);
        let (processing, alone) = (Some(processing), Some(processing));
        Outcome::done(Some(Load { in_flight: 0, limit: 10, processing, alone, batch: None }))
    }

    #[test]
    fn calls_wait_for_the_first_replica_that_is_free_where_each_works_on_one() {
        let (mut router, now) = late_binding(2);
        let (first, second) = (send(&mut router, now), send(&mut router, now));
        assert_ne!(first.replica, second.replica);
        park(&mut router, now);
        let mut released = Vec::new();
        router.complete(second.ticket, alone(10), now, &mut released);
        let [Release::Send { assignment, .. }] = released[..] else { panic!("{released:?}") };
        assert_eq!(second.replica, assignment.replica);
    }

    /// A call that awaits reports at its end that the replica had room for others beside it.
    #[test]
    fn one_long_call_that_awaits_ends_late_binding_for_all() {
        let (mut router, now) = late_binding(2);
        let (first, _) = (send(&mut router, now), send(&mut router, now));
        for _ in 0..4 {
            park(&mut router, now);
        }
        let mut released = Vec::new();
        let now = now.saturating_add(Nanos::from_millis(100));
        let load = Load { in_flight: 0, limit: 10, processing: None, alone: None, batch: None };
        let load = Load { processing: Some(Nanos::from_millis(100)), ..load };
        router.complete(first.ticket, Outcome::done(Some(load)), now, &mut released);
        assert_eq!(4, released.len(), "{released:?}");
        assert!(router.measures().kept_wrongly >= Nanos::from_millis(100));
    }

    #[test]
    fn a_replica_that_idles_beside_its_call_takes_more_at_once() {
        let (mut router, now) = late_binding(1);
        let call = send(&mut router, now);
        park(&mut router, now);
        park(&mut router, now);
        let mut wanted = Vec::new();
        router.wanted_asks(&mut wanted);
        assert_eq!(vec![LeaseRequest { replica: call.replica, when_idle: true }], wanted);
        let mut released = Vec::new();
        assert!(!router.on_lease(call.replica, now, &mut released), "all that wait have gone");
        assert_eq!(2, released.len(), "{released:?}");
        router.wanted_asks(&mut wanted);
        assert!(wanted.is_empty());
    }

    #[test]
    fn a_replica_that_says_nothing_for_long_takes_another_call() {
        let (mut router, now) = late_binding(1);
        send(&mut router, now);
        park(&mut router, now);
        let at = router.next_wakeup().expect("somebody looks");
        assert!(at.saturating_sub(now) > Nanos::from_millis(100), "{at}");
        let mut released = Vec::new();
        router.tick(at, &mut released);
        assert!(matches!(released[..], [Release::Send { .. }]), "{released:?}");
    }
}
