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
        self.late.rush.on_answer();
        let was_kept = alone.is_none() && self.is_kept(slot);
        let replica = &mut self.replicas[slot as usize];
        replica.overlaps = if alone.is_some() { 0 } else { replica.pace.working() };
        (replica.quiet_since, replica.patience) = (now, self.late.exclusive.patience());
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
        let replica = &mut self.replicas[slot as usize];
        replica.overlaps = replica.pace.working();
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
            let patience = self.late.exclusive.patience();
            let kept = self.replicas.iter().filter(|one| one.is_held_back() && one.is_in());
            self.late.eases_at = kept.map(|one| one.eases_at(patience, now)).min();
        }
    }

    /// One more call waits. If more come than late binding is good for, they all go to replicas, from
    /// the next tick on.
    #[inline]
    pub(super) fn watch_rush(&mut self, now: Nanos) {
        let is_kept = self.late.is_on && self.late.exclusive.is_proven();
        if is_kept && self.late.rush.on_wait(self.members) {
            self.late.eases_at = Some(now);
        }
    }

    /// The replica in `slot` has given a call back: if that was its last one, a rush is over.
    #[inline]
    pub(super) fn end_rush_if_idle(&mut self, slot: u32, now: Nanos) {
        if self.late.rush.is_on() && self.replicas[slot as usize].in_flight == 0 {
            self.late.rush.on_idle();
            self.bind_all(now);
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
        let Self { replicas, late, pool, costs, .. } = self;
        let (replica, exclusive) = (&mut replicas[slot as usize], &late.exclusive);
        let is_bound = late.is_on && !self.is_batching && !costs.is_on && !late.rush.is_on();
        let quiet = replica.quiet(now);
        // Beside the calls of a slow one the way there is short.
        let gap_ns = pool.turnaround_ns(replica.tier) / f64::from(1_u32 << replica.octaves);
        let enough = if is_bound { exclusive.enough(gap_ns, quiet) } else { None };
        let eased = replica.eased(exclusive.patience(), now);
        // Beside calls that await something it takes one more, and says again whether it idles. If
        // it took any number while the others take one, all that wait would go there.
        let least = if replica.overlaps > 0 { replica.overlaps.saturating_add(1) } else { 0 };
        let held = enough.map_or(u32::MAX, |enough| enough.saturating_add(eased).max(least));
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
        late_binding_of(replicas, 10)
    }

    /// The same with calls of so many milliseconds.
    fn late_binding_of(replicas: usize, took_ms: u64) -> (Router, Nanos) {
        let mut router = router(replicas);
        let mut now = Nanos::ZERO;
        for _ in 0..100 * replicas {
            let call = send(&mut router, now);
            now = now.saturating_add(Nanos::from_millis(took_ms));
            router.complete(call.ticket, alone(took_ms), now, &mut Vec::new());
        }
        (router, now)
    }

    /// An answer after so long, of a replica that could do nothing else and is 0.1 ms away.
    fn alone(took_ms: u64) -> Outcome {
        let processing = Nanos::from_micros(took_ms * 1_000 - 100);
        let (processing, alone) = (Some(processing), Some(processing));
        Outcome::done(Some(Load {
            in_flight: 0,
            limit: 10,
            processing,
            alone,
            batch: None,
            cost: None,
        }))
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
        let load = Load {
            in_flight: 0,
            limit: 10,
            processing: None,
            alone: None,
            batch: None,
            cost: None,
        };
        let load = Load { processing: Some(Nanos::from_millis(100)), ..load };
        router.complete(first.ticket, Outcome::done(Some(load)), now, &mut released);
        assert_eq!(4, released.len(), "{released:?}");
        assert!(router.measures().kept_wrongly >= Nanos::from_millis(100));
    }

    #[test]
    fn a_replica_that_idles_beside_its_calls_takes_one_more_each_time() {
        let (mut router, now) = late_binding(1);
        let call = send(&mut router, now);
        (0..2).for_each(|_| park(&mut router, now));
        let (mut wanted, mut released) = (Vec::new(), Vec::new());
        for taken in 1..=2 {
            router.wanted_asks(&mut wanted);
            assert_eq!(vec![LeaseRequest { replica: call.replica, when_idle: true }], wanted);
            router.on_lease(call.replica, now, &mut released);
            assert_eq!(taken, released.len(), "{released:?}");
        }
        router.wanted_asks(&mut wanted);
        assert!(wanted.is_empty());
    }

    /// The third one proves that calls await something now; until then the first replica to say so
    /// does not get all that wait.
    #[test]
    fn calls_that_await_are_spread_although_one_replica_is_the_first_to_idle() {
        let (mut router, now) = late_binding(3);
        let first = send(&mut router, now).replica;
        for _ in 0..2 {
            send(&mut router, now);
        }
        (0..9).for_each(|_| park(&mut router, now));
        let mut released = Vec::new();
        for _ in 0..3 {
            router.on_lease(first, now, &mut released);
        }
        assert_eq!(9, released.len(), "{released:?}");
        let stats = router.stats();
        let in_flight: Vec<u32> = stats.replicas.iter().map(|stats| stats.in_flight).collect();
        assert_eq!(vec![4; 3], in_flight);
    }

    /// Short calls after a change of the mix say nothing of how long the one before takes.
    #[test]
    fn a_replica_in_a_long_call_is_not_silent_beside_the_short_calls_of_another() {
        let (mut router, mut now) = late_binding_of(2, 1_000);
        let (long, other) = (send(&mut router, now), send(&mut router, now));
        now = now.saturating_add(Nanos::from_secs(1));
        router.complete(other.ticket, alone(1_000), now, &mut Vec::new());
        for _ in 0..100 {
            let call = send(&mut router, now);
            assert_eq!(other.replica, call.replica);
            now = now.saturating_add(Nanos::from_millis(10));
            router.complete(call.ticket, alone(10), now, &mut Vec::new());
        }
        send(&mut router, now);
        park(&mut router, now);
        let at = router.next_wakeup().expect("somebody looks");
        let mut released = Vec::new();
        router.tick(at, &mut released);
        for release in released {
            let Release::Send { assignment, .. } = release else { panic!("{release:?}") };
            assert_ne!(long.replica, assignment.replica);
        }
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

    /// A router of two replicas in long calls, and calls that came to wait: after one of the first two
    /// was answered too many for late binding. Returns those of them that were sent.
    fn rush() -> (Router, Vec<Assignment>, Nanos) {
        let (mut router, now) = late_binding_of(2, 1_000);
        let (first, second) = (send(&mut router, now), send(&mut router, now));
        (0..9).for_each(|_| park(&mut router, now));
        assert!(router.next_wakeup().is_some_and(|at| at > now), "a burst goes on to wait");
        let mut released = Vec::new();
        router.complete(first.ticket, alone(1_000), now, &mut released);
        assert_eq!(1, released.len(), "{released:?}");
        (0..3).for_each(|_| park(&mut router, now));
        assert_eq!(Some(now), router.next_wakeup());
        router.tick(now, &mut released);
        let assignment = |release: &Release| match release {
            Release::Send { assignment, .. } => *assignment,
            other => panic!("it is sent, but {other:?}"),
        };
        let sent = released.iter().map(assignment).chain([second]).collect();
        (router, sent, now)
    }

    /// The long ones before them may be through only after minutes.
    #[test]
    fn a_rush_of_calls_goes_to_the_replicas_although_few_are_answered() {
        let (_, sent, _) = rush();
        assert_eq!(13, sent.len());
    }

    #[test]
    fn after_a_rush_calls_wait_in_the_router_again() {
        let (mut router, sent, now) = rush();
        for call in sent {
            router.complete(call.ticket, alone(1_000), now, &mut Vec::new());
        }
        send(&mut router, now);
        send(&mut router, now);
        park(&mut router, now);
    }
}
