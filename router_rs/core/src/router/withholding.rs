//! A call rather waits for a better replica that is free soon than goes to a worse one at once.
//!
//! Where replicas work on one call at a time, a call that goes to a slow one is bound to it, and one
//! that waits for a fast one may be done before it. So a slow replica is used only from a number of
//! waiting calls on (Lin and Kumar, "Optimal control of a queueing system with two heterogeneous
//! servers", 1984): when the last of them would wait for a fast one longer than the slow one takes
//! beside it.
//!
//! That is right where calls come at their own pace, and costs answers where each caller waits for
//! an answer before he asks again: there a replica that idles is lost. The router cannot tell the two
//! apart, so it counts what leaving replicas alone may have cost, and stops where that is more than
//! a small part of what was answered.
//!
//! Nobody waits so for replicas that other routers use as well: who knows when they are free.
//!
//! Farther replicas are avoided too, though they are as fast: calls wait for a near one for a part
//! of a call's time.

use super::Locality;
use super::fleet::{Fleet, Query};
use crate::replica::Replica;
use crate::time::Nanos;
use crate::withheld::Withheld;

/// A replica of fewer octaves is not left alone: between those that are nearly as fast, the choice gains
/// little.
const OCTAVES_MIN: u8 = 2;
/// Who waits for a fast replica lengthens the wait of all behind him: so many times his own counts.
const QUEUE_WEIGHT: f64 = 2.0;
/// A call waits for a near replica for up to this part of a call's work.
const NEAR_PATIENCE: f64 = 1.0 / 2.0;

impl Fleet {
    /// The replica in `slot` worked for so long on a call, which was sent when so much was usual.
    #[inline]
    pub(super) fn on_work(&mut self, slot: u32, work: Nanos, usual: f32, now: Nanos) {
        if !self.late.is_on {
            return;
        }
        self.budget.on_answer();
        if self.speeds.on_answer(slot, work, usual) {
            self.compare_speeds(now);
        }
    }

    fn compare_speeds(&mut self, now: Nanos) {
        let Self { replicas, speeds, late, members, .. } = self;
        let fastest = speeds.compare(*members, |slot| replicas[slot as usize].is_member);
        let is_proven = late.exclusive.is_proven();
        for slot in 0..self.replicas.len() as u32 {
            let octaves = if is_proven { self.speeds.octaves(slot, fastest) } else { 0 };
            let replica = &mut self.replicas[slot as usize];
            if replica.octaves != octaves {
                replica.octaves = octaves;
                self.bind(slot, now);
            }
        }
    }

    /// `slot`, which was picked, unless it is slow, and a faster one is expected to be done sooner.
    #[inline]
    pub(super) fn unless_slow(&mut self, slot: u32, query: Query<'_>) -> Option<u32> {
        self.budget.count(query.now);
        let is_fast = self.replicas[slot as usize].octaves < OCTAVES_MIN;
        if is_fast || !query.may_hold || self.pool.is_shared() {
            return Some(slot);
        }
        self.or_faster(slot, query)
    }

    #[cold]
    fn or_faster(&mut self, slot: u32, query: Query<'_>) -> Option<u32> {
        if self.budget.left <= 0.0 {
            return Some(slot);
        }
        let Replica { octaves, in_flight, .. } = self.replicas[slot as usize];
        // In times of a call at a replica that is not slow.
        let takes = |replica: &Replica| (u64::from(replica.in_flight) + 1) << replica.octaves;
        let distance = |replica: &Replica| query.locality.distance(replica.tier);
        let own = distance(&self.replicas[slot as usize]);
        let is_as_near = |other: &&u32| {
            distance(&self.replicas[**other as usize]) <= own && !self.is_tried(**other, query)
        };
        let others = self.open.iter().filter(is_as_near);
        let others = others.map(|other| (takes(&self.replicas[*other as usize]), *other));
        let best = others.min().filter(|(takes, _)| *takes < (u64::from(in_flight) + 1) << octaves);
        if let Some((_, faster)) = best {
            self.withhold(query.now);
            return Some(faster);
        }
        let is_better = |replica: &Replica| replica.octaves < octaves && distance(replica) <= own;
        let rate = self.free_soon(query.now, is_better);
        let beside = f64::from((1_u32 << octaves) - 1);
        if f64::from(query.waiting.max(1)) * QUEUE_WEIGHT > rate * beside {
            return Some(slot);
        }
        let rate = self.withhold(query.now);
        self.hold_for((self.budget.left / rate) as u64, query.now)
    }

    /// `slot`, unless it is farther than replicas of which one is free soon.
    pub(super) fn unless_near(&mut self, slot: u32, query: Query<'_>) -> Option<u32> {
        let Query { locality, now, waiting, .. } = query;
        let is_anywhere = locality == Locality::default() || !query.tried.is_empty();
        let is_proven = self.late.exclusive.is_proven() && !self.pool.is_shared();
        if is_anywhere || !query.may_hold || !is_proven {
            return Some(slot);
        }
        let own = locality.distance(self.replicas[slot as usize].tier);
        let rate = self.free_soon(now, |replica| locality.distance(replica.tier) < own);
        if f64::from(waiting.max(1)) > rate * NEAR_PATIENCE {
            return Some(slot);
        }
        self.hold_for((self.late.exclusive.work_ns() * NEAR_PATIENCE) as u64, now)
    }

    /// How many calls those replicas end in a usual call's time that are busy now. One that is in a
    /// long call is not waited for.
    fn free_soon(&self, now: Nanos, is_better: impl Fn(&Replica) -> bool) -> f64 {
        let is_awaited = |replica: &&Replica| {
            let quiet = replica.quiet(now);
            let is_busy = replica.is_held_back() && replica.is_in();
            is_busy && is_better(replica) && !self.late.exclusive.is_long(quiet)
        };
        let awaited = self.replicas.iter().filter(is_awaited);
        awaited.map(|replica| 1.0 / f64::from(1_u32 << replica.octaves)).sum()
    }

    /// From now on all slow replicas with room are left alone; they could answer so many calls a
    /// nanosecond.
    fn withhold(&mut self, since: Nanos) -> f64 {
        let is_slow = |slot: &&u32| self.replicas[**slot as usize].octaves >= OCTAVES_MIN;
        let (mut rate, mut replicas) = (0.0, 0.0);
        for slot in self.open.iter().filter(is_slow) {
            rate += 1.0 / self.speeds.call_ns(*slot);
            replicas += 1.0;
        }
        self.budget.withheld = Some(Withheld { since, rate, replicas });
        rate
    }

    /// The call waits beside room, for so many nanoseconds at most.
    fn hold_for(&mut self, time_ns: u64, now: Nanos) -> Option<u32> {
        let at = now.saturating_add(Nanos(time_ns.saturating_add(1)));
        self.look_again_at = Some(self.look_again_at.map_or(at, |earlier| earlier.min(at)));
        self.is_holding = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::membership::{ReplicaId, ReplicaSpec, Tier};
    use crate::replica::Load;
    use crate::router::{Assignment, Decision, Locality, Offer, Outcome, Release, Router};
    use crate::router::{RouterConfig, WaiterId};
    use crate::time::Nanos;

    const FAST: ReplicaId = ReplicaId(0);
    const SLOW: ReplicaId = ReplicaId(1);

    fn router(tiers: &[Tier]) -> Router {
        let locality = Locality { prefer_zone: tiers[0] == Tier::Zone, ..Locality::default() };
        let mut router = Router::new(RouterConfig { locality, ..RouterConfig::default() });
        let spec =
            |(tier, id): (&Tier, u64)| ReplicaSpec { id: ReplicaId(id), tier: *tier, capacity: 9 };
        let specs: Vec<ReplicaSpec> = tiers.iter().zip(0..).map(spec).collect();
        router.apply(&specs, Nanos::ZERO, &mut Vec::new());
        router
    }

    fn send(router: &mut Router, now: Nanos) -> Assignment {
        match router.offer(Offer::default(), now) {
            Decision::Send(assignment) => assignment,
            other => panic!("there is room, but {other:?}"),
        }
    }

    fn park(router: &mut Router, now: Nanos) -> WaiterId {
        match router.offer(Offer::default(), now) {
            Decision::Parked(waiter) => waiter,
            other => panic!("it is to wait, but {other:?}"),
        }
    }

    /// An answer of a replica that is 0.1 ms away, and had calls of others if it says so.
    fn alone(took: Nanos, in_flight: u32) -> Outcome {
        let work = Some(took.saturating_sub(Nanos::from_micros(100)));
        Outcome::done(Some(Load {
            in_flight,
            limit: 10,
            processing: work,
            alone: work,
            batch: None,
            cost: None,
        }))
    }

    /// Both replicas answer so many calls, the second one so many times as slowly; each said that it
    /// had so many calls.
    fn learnt(slowness: u64, in_flight: u32) -> (Router, Nanos) {
        let (mut router, mut now) = (router(&[Tier::Any; 2]), Nanos::ZERO);
        for _ in 0..200 {
            let calls = [send(&mut router, now), send(&mut router, now)];
            for call in calls {
                let times = if call.replica == SLOW { slowness } else { 1 };
                let took = Nanos::from_millis(10 * times);
                let at = now.saturating_add(took);
                router.complete(call.ticket, alone(took, in_flight), at, &mut Vec::new());
            }
            now = now.saturating_add(Nanos::from_millis(10 * slowness));
        }
        (router, now)
    }

    fn sent(released: &[Release]) -> Vec<ReplicaId> {
        let replica = |release: &Release| match release {
            Release::Send { assignment, .. } => assignment.replica,
            other => panic!("{other:?}"),
        };
        released.iter().map(replica).collect()
    }

    /// The slow one is known, and as much may be lost as may be saved for that.
    fn with_a_slow_one() -> (Router, Nanos) {
        let (mut router, mut now) = learnt_by_pins();
        let slow = router.pin(SLOW, Offer::default(), now).expect("a member");
        for _ in 0..300 {
            let call = send(&mut router, now);
            now = now.saturating_add(Nanos::from_millis(10));
            router.complete(call.ticket, alone(Nanos::from_millis(10), 1), now, &mut Vec::new());
        }
        router.complete(slow.ticket, Outcome::Cancelled, now, &mut Vec::new());
        (router, now)
    }

    /// Both have answered some calls, whatever the router would have chosen.
    fn learnt_by_pins() -> (Router, Nanos) {
        let (mut router, mut now) = (router(&[Tier::Any; 2]), Nanos::ZERO);
        for _ in 0..64 {
            for (replica, took_ms) in [(FAST, 10), (SLOW, 80)] {
                let call = router.pin(replica, Offer::default(), now).expect("a member");
                let took = Nanos::from_millis(took_ms);
                now = now.saturating_add(took);
                router.complete(call.ticket, alone(took, 1), now, &mut Vec::new());
            }
        }
        (router, now)
    }

    #[test]
    fn a_call_waits_for_the_fast_replica_beside_a_slow_one_that_idles() {
        let (mut router, now) = with_a_slow_one();
        let call = send(&mut router, now);
        assert_eq!(FAST, call.replica);
        park(&mut router, now);
        let now = now.saturating_add(Nanos::from_millis(10));
        let mut released = Vec::new();
        router.complete(call.ticket, alone(Nanos::from_millis(10), 1), now, &mut released);
        assert_eq!(vec![FAST], sent(&released));
    }

    #[test]
    fn the_slow_one_is_used_once_so_many_wait_that_the_last_would_wait_for_longer() {
        let (mut router, now) = with_a_slow_one();
        send(&mut router, now);
        let mut released = Vec::new();
        for _ in 0..3 {
            park(&mut router, now);
            router.tick(now, &mut released);
        }
        assert!(released.is_empty(), "{released:?}");
        park(&mut router, now);
        router.tick(now, &mut released);
        assert_eq!(vec![SLOW], sent(&released));
    }

    /// Two callers that wait for an answer before they ask again could use both replicas all the time.
    #[test]
    fn no_more_than_a_64th_of_the_answers_is_lost_in_a_closed_loop() {
        let (mut router, start) = with_a_slow_one();
        let mut running: Vec<(Nanos, Assignment)> = Vec::new();
        let (mut now, mut answers, mut of_slow) = (start, 0, 0);
        let end = start.saturating_add(Nanos::from_secs(20));
        let took = |replica| Nanos::from_millis(if replica == SLOW { 80 } else { 10 });
        let mut callers = 2;
        while now < end {
            let mut released = Vec::new();
            for _ in 0..std::mem::take(&mut callers) {
                if let Decision::Send(assignment) = router.offer(Offer::default(), now) {
                    running.push((now.saturating_add(took(assignment.replica)), assignment));
                }
            }
            running.sort_by_key(|(at, _)| *at);
            now = router.next_wakeup().into_iter().chain([running[0].0]).min().expect("one runs");
            if running[0].0 <= now {
                let (_, call) = running.remove(0);
                router.complete(call.ticket, alone(took(call.replica), 1), now, &mut released);
                (answers, of_slow) = (answers + 1, of_slow + u32::from(call.replica == SLOW));
                callers = 1;
            } else {
                router.tick(now, &mut released);
            }
            for release in released {
                let Release::Send { assignment, .. } = release else { panic!("{release:?}") };
                running.push((now.saturating_add(took(assignment.replica)), assignment));
            }
        }
        let possible = 20_000 / 10 + 20_000 / 80;
        assert!(answers + possible / 64 + 8 >= possible, "{answers} of {possible}");
        assert!(of_slow < 20_000 / 80, "it is never left alone: {of_slow}");
    }

    #[test]
    fn replicas_that_are_as_fast_or_are_used_by_others_too_are_not_left_alone() {
        for (slowness, in_flight) in [(1, 1), (2, 1), (8, 3)] {
            let (mut router, now) = learnt(slowness, in_flight);
            let replicas = [send(&mut router, now).replica, send(&mut router, now).replica];
            assert_ne!(replicas[0], replicas[1], "{slowness} times");
        }
    }

    #[test]
    fn a_call_waits_for_a_near_replica_unless_others_wait_already() {
        let mut router = router(&[Tier::Zone, Tier::Zone, Tier::Any, Tier::Any]);
        let mut now = Nanos::ZERO;
        for _ in 0..40 {
            let call = send(&mut router, now);
            now = now.saturating_add(Nanos::from_millis(10));
            router.complete(call.ticket, alone(Nanos::from_millis(10), 1), now, &mut Vec::new());
        }
        let near = [send(&mut router, now).replica.0, send(&mut router, now).replica.0];
        assert!(near.iter().all(|id| *id < 2), "{near:?}");
        park(&mut router, now);
        park(&mut router, now);
        let mut released = Vec::new();
        router.tick(now, &mut released);
        assert!(sent(&released).iter().all(|id| id.0 >= 2) && !released.is_empty(), "{released:?}");
    }
}
