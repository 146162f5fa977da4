//! What scenarios cannot say: misuse, odd clocks, and the seam for policies.

use super::*;
use crate::membership::Tier;
use crate::policy::{Candidates, PolicyKind};
use crate::rng::SplitMix64;

const DONE: Outcome = Outcome::done(None);

fn config() -> RouterConfig {
    RouterConfig {
        queue_len_max: 10,
        refusals_max: 3,
        backoff_initial: Nanos::from_millis(25),
        backoff_max: Nanos::from_millis(500),
        model_wait_max: Nanos::from_secs(1),
        promise_max: Nanos::from_secs(10),
        policy: PolicyKind::P2c,
        seed: 1,
        ..RouterConfig::default()
    }
}

fn with_replicas(mut router: Router, capacities: &[u32]) -> Router {
    let specs: Vec<ReplicaSpec> = (1..)
        .zip(capacities)
        .map(|(id, capacity)| ReplicaSpec {
            id: ReplicaId(id),
            tier: Tier::Any,
            capacity: *capacity,
        })
        .collect();
    router.apply(&specs, Nanos::ZERO, &mut Vec::new());
    router
}

fn send(router: &mut Router, now: Nanos) -> Assignment {
    match router.offer(Offer::default(), now) {
        Decision::Send(assignment) => assignment,
        other => panic!("expected room, got {other:?}"),
    }
}

fn park(router: &mut Router, deadline: Option<Nanos>, now: Nanos) -> WaiterId {
    match router.offer(Offer { deadline, ..Offer::default() }, now) {
        Decision::Parked(waiter) => waiter,
        other => panic!("expected no room, got {other:?}"),
    }
}

/// A ticket is for one use: the second is asserted in debug builds, else counted, and frees nothing.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "is unknown or was completed before"))]
fn a_ticket_completed_twice_is_a_defect_that_frees_nothing() {
    let mut router = with_replicas(Router::new(config()), &[2]);
    let first = send(&mut router, Nanos::ZERO);
    router.complete(first.ticket, DONE, Nanos::ZERO, &mut Vec::new());
    // The place of the first in the table is that of the second now.
    send(&mut router, Nanos::ZERO);
    router.complete(first.ticket, DONE, Nanos::ZERO, &mut Vec::new());
    let stats = router.stats();
    assert_eq!((1, 1, 1), (stats.in_flight, stats.completed, stats.stale_tickets));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "is unknown or was completed before"))]
fn a_ticket_ends_with_its_reoffer() {
    let mut router = with_replicas(Router::new(config()), &[1, 1]);
    let first = send(&mut router, Nanos::ZERO);
    let refused = Outcome::Refused { load: None };
    let second = router.reoffer(first.ticket, refused, Nanos::ZERO, &mut Vec::new());
    assert!(matches!(second, Decision::Send(assignment) if assignment.ticket != first.ticket));
    let third = router.reoffer(first.ticket, refused, Nanos::ZERO, &mut Vec::new());
    assert_eq!(Decision::Refused(Refusal::Expired), third);
    let stats = router.stats();
    assert_eq!((1, 1, 1), (stats.in_flight, stats.refusals, stats.stale_tickets));
}

/// Two threads may meet: one releases the waiter while the other learns that the caller is gone.
#[test]
fn abandoning_a_released_waiter_changes_nothing() {
    let mut router = with_replicas(Router::new(config()), &[1]);
    let running = send(&mut router, Nanos::ZERO);
    let waiter = park(&mut router, None, Nanos::ZERO);
    let mut released = Vec::new();
    router.complete(running.ticket, DONE, Nanos::ZERO, &mut released);
    router.abandon(waiter, Nanos::ZERO);
    let stats = router.stats();
    assert_eq!((1, 0, 1), (stats.in_flight, stats.abandoned, stats.stale_waiters));
    let [Release::Send { waiter: named, assignment }] = released[..] else {
        panic!("expected one release, got {released:?}");
    };
    assert_eq!(waiter, named);
    router.complete(assignment.ticket, Outcome::Cancelled, Nanos::ZERO, &mut released);
    assert_eq!(0, router.stats().in_flight);
}

/// Threads read the clock before they take the lock, so time may seem to step back.
#[test]
fn time_that_steps_back_delays_but_breaks_nothing() {
    let mut router = with_replicas(Router::new(config()), &[1]);
    let running = send(&mut router, Nanos::from_millis(10));
    let waiter = park(&mut router, Some(Nanos::from_millis(20)), Nanos::from_millis(11));
    let mut released = Vec::new();
    router.tick(Nanos::from_millis(5), &mut released);
    assert_eq!((true, Some(Nanos::from_millis(20))), (released.is_empty(), router.next_wakeup()));
    router.tick(Nanos::from_millis(20), &mut released);
    assert_eq!(vec![Release::Expired { waiter }], released);
    router.complete(running.ticket, DONE, Nanos::from_millis(9), &mut released);
    assert_eq!((0, 0), (router.stats().in_flight, router.stats().parked));
}

/// Takes the candidate with the highest id: a policy that p2c cannot be mistaken for.
#[derive(Debug)]
struct Highest;

impl Policy for Highest {
    fn pick(&mut self, candidates: Candidates<'_>, _rng: &mut SplitMix64) -> usize {
        let id = |index: &usize| candidates.get(*index).id;
        (0..candidates.len()).max_by_key(id).expect("a policy is asked only with candidates")
    }
}

#[test]
fn a_policy_decides_among_those_with_room_and_nothing_else() {
    let router = Router::with_policy(config(), Box::new(Highest));
    let mut router = with_replicas(router, &[1, 1, 2, 0]);
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(send(&mut router, Nanos::ZERO).replica.0);
    }
    assert_eq!(vec![3, 3, 2, 1], replicas);
    park(&mut router, None, Nanos::ZERO);
}

#[test]
fn of_two_entries_for_one_replica_the_later_counts() {
    let mut router = Router::new(config());
    let spec = |capacity| ReplicaSpec { id: ReplicaId(1), tier: Tier::Node, capacity };
    router.apply(&[spec(5), spec(1)], Nanos::ZERO, &mut Vec::new());
    send(&mut router, Nanos::ZERO);
    park(&mut router, None, Nanos::ZERO);
    assert_eq!(1, router.stats().replicas.len());
}

// === where calls go ===

/// Replicas with these tiers and room for `capacity` calls each, ids from 1.
fn near_and_far(router: Router, tiers: &[Tier], capacity: u32) -> Router {
    let mut router = router;
    let spec = |(id, tier): (u64, &Tier)| ReplicaSpec { id: ReplicaId(id), tier: *tier, capacity };
    let specs: Vec<ReplicaSpec> = (1..).zip(tiers).map(spec).collect();
    router.apply(&specs, Nanos::ZERO, &mut Vec::new());
    router
}

/// Where `count` such calls go; none of them ends.
fn places(router: &mut Router, offer: Offer<'_>, count: usize) -> Vec<u64> {
    let mut place = |_| match router.offer(offer, Nanos::ZERO) {
        Decision::Send(assignment) => assignment.replica.0,
        other => panic!("expected room, got {other:?}"),
    };
    (0..count).map(&mut place).collect()
}

#[test]
fn the_nearest_tier_that_has_room_comes_first() {
    let check = |expected: &[u64], locality: Locality, of_call: Option<Locality>| {
        for policy in [PolicyKind::P2c, PolicyKind::Least, PolicyKind::RoundRobin] {
            let config = RouterConfig { policy, locality, ..config() };
            let tiers = [Tier::Any, Tier::Zone, Tier::Node];
            let mut router = near_and_far(Router::new(config), &tiers, 2);
            let offer = Offer { locality: of_call, ..Offer::default() };
            let mut went = places(&mut router, offer, 6);
            went[..expected.len()].sort_unstable();
            assert_eq!(expected, &went[..expected.len()], "{policy:?} {locality:?} {of_call:?}");
        }
    };
    let (node, zone) = (Locality { prefer_node: true, prefer_zone: false }, Locality::default());
    let both = Locality { prefer_node: true, prefer_zone: true };
    let zone = Locality { prefer_zone: true, ..zone };
    check(&[3, 3], node, None);
    check(&[2, 2, 3, 3], zone, None);
    check(&[3, 3], both, None);
    check(&[1, 1, 2, 2, 3, 3], Locality::default(), None);
    check(&[3, 3], Locality::default(), Some(node));
    check(&[1, 1, 2, 2, 3, 3], both, Some(Locality::default()));
    let mut router = near_and_far(Router::new(config()), &[Tier::Any, Tier::Zone, Tier::Node], 1);
    let offer = Offer { locality: Some(both), ..Offer::default() };
    assert_eq!(vec![3, 2, 1], places(&mut router, offer, 3), "then the next tier");
}

#[test]
fn what_the_caller_ranks_comes_first_then_what_the_policy_says() {
    let mut router = with_replicas(Router::new(config()), &[1, 2, 1]);
    let ranked = [ReplicaId(9), ReplicaId(3), ReplicaId(2)];
    let offer = Offer { ranked: &ranked, ..Offer::default() };
    assert_eq!(vec![3, 2, 2, 1], places(&mut router, offer, 4));
}

#[test]
fn a_parked_call_keeps_its_callers_order() {
    let mut router = with_replicas(Router::new(config()), &[1, 1, 1, 1]);
    let running: Vec<Assignment> = (0..4).map(|_| send(&mut router, Nanos::ZERO)).collect();
    let ranked = [ReplicaId(4), ReplicaId(2)];
    let offer = Offer { ranked: &ranked, ..Offer::default() };
    assert!(matches!(router.offer(offer, Nanos::ZERO), Decision::Parked(_)));
    // The fleet is replaced by one in which all have room.
    let mut released = Vec::new();
    let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 2 };
    router.apply(&[1, 2, 3, 4].map(spec), Nanos::ZERO, &mut released);
    let [Release::Send { assignment, .. }] = released[..] else {
        panic!("expected one release, got {released:?}");
    };
    assert_eq!(ReplicaId(4), assignment.replica);
    for assignment in running.into_iter().chain([assignment]) {
        router.complete(assignment.ticket, DONE, Nanos::ZERO, &mut released);
    }
}

#[test]
fn a_session_keeps_its_replica() {
    let config = RouterConfig { policy: PolicyKind::ConsistentHash, ..config() };
    let mut router = with_replicas(Router::new(config), &[9; 8]);
    let offer = Offer { session: "anna", ..Offer::default() };
    let together = places(&mut router, offer, 3);
    let home = together[0];
    assert!(together.iter().all(|place| *place == home), "{together:?}");
    let mut others = Vec::new();
    for round in 0..20 {
        let Decision::Send(assignment) = router.offer(offer, Nanos(round)) else {
            panic!("there is room");
        };
        others.push(assignment.replica.0);
        router.complete(assignment.ticket, DONE, Nanos(round), &mut Vec::new());
    }
    // With so few calls the fourth is above the bound, and has one place to go to.
    assert!(others.iter().all(|place| *place == others[0] && *place != home), "{others:?}");
}

#[test]
fn a_changed_bound_counts_from_the_next_call_on() {
    let bounded =
        |load_bound| RouterConfig { policy: PolicyKind::ConsistentHash, load_bound, ..config() };
    let mut router = with_replicas(Router::new(bounded(4.0)), &[9; 8]);
    let offer = Offer { session: "anna", ..Offer::default() };
    let together = places(&mut router, offer, 3);
    assert!(together.iter().all(|place| *place == together[0]), "{together:?}");
    router.configure(bounded(1.25), Nanos::ZERO, &mut Vec::new());
    assert_ne!(together[0], places(&mut router, offer, 1)[0]);
}

/// Calls per mille that the second replica gets at `at`, when it joined the first at 0.
fn share_of_new(policy: PolicyKind, at: Nanos) -> u64 {
    let config = RouterConfig { policy, slow_start: Nanos::from_secs(10), ..config() };
    let mut router = with_replicas(with_replicas(Router::new(config), &[9]), &[9, 9]);
    let mut count = 0;
    for _ in 0..2_000 {
        let assignment = send(&mut router, at);
        count += u64::from(assignment.replica == ReplicaId(2));
        router.complete(assignment.ticket, DONE, at, &mut Vec::new());
    }
    count / 2
}

#[test]
fn the_share_of_a_new_replica_grows_with_time() {
    for policy in [PolicyKind::P2c, PolicyKind::Least] {
        let shares = [0, 5, 10].map(|at_s| share_of_new(policy, Nanos::from_secs(at_s)));
        // Half of its warmth: with both idle, a fair coin decides when it comes into question.
        for (share, expected) in shares.into_iter().zip([51_u64, 250, 500]) {
            assert!(share.abs_diff(expected) < 40, "{policy:?}: {shares:?}");
        }
    }
}

#[test]
fn new_settings_count_from_now_and_keep_the_calls() {
    let config = RouterConfig { queue_len_max: 1, ..config() };
    let mut router = with_replicas(Router::new(config), &[1, 1]);
    let running = [send(&mut router, Nanos::ZERO), send(&mut router, Nanos::ZERO)];
    let waiter = park(&mut router, None, Nanos::ZERO);
    let refused = Decision::Refused(Refusal::QueueFull { limit: 1 });
    assert_eq!(refused, router.offer(Offer::default(), Nanos::ZERO));
    let wider = RouterConfig { queue_len_max: 2, policy: PolicyKind::RoundRobin, ..config };
    let mut released = Vec::new();
    router.configure(wider, Nanos::ZERO, &mut released);
    park(&mut router, None, Nanos::ZERO);
    router.complete(running[0].ticket, DONE, Nanos::ZERO, &mut released);
    let [Release::Send { waiter: named, assignment }] = released[..] else {
        panic!("expected one release, got {released:?}");
    };
    assert_eq!((waiter, running[0].replica), (named, assignment.replica));
    released.clear();
    for ticket in [running[1].ticket, assignment.ticket] {
        router.complete(ticket, DONE, Nanos::ZERO, &mut released);
    }
    let [Release::Send { assignment, .. }] = released[..] else {
        panic!("expected one release, got {released:?}");
    };
    router.complete(assignment.ticket, DONE, Nanos::ZERO, &mut released);
    let turns: Vec<u64> = (0..2).map(|_| send(&mut router, Nanos::ZERO).replica.0).collect();
    assert_eq!(3, turns.iter().sum::<u64>(), "one after the other: {turns:?}");
}

// === who waits ===

/// Who is sent, by index, when one place after the other is given back.
fn order_of(offers: &[Offer<'_>]) -> Vec<usize> {
    let mut router = with_replicas(Router::new(config()), &[1]);
    let mut running = send(&mut router, Nanos::ZERO);
    let waiters: Vec<WaiterId> = offers
        .iter()
        .map(|offer| match router.offer(*offer, Nanos::ZERO) {
            Decision::Parked(waiter) => waiter,
            other => panic!("expected no room, got {other:?}"),
        })
        .collect();
    let mut order = Vec::new();
    for _ in offers {
        let mut released = Vec::new();
        router.complete(running.ticket, DONE, Nanos::from_millis(1), &mut released);
        let [Release::Send { waiter, assignment }] = released[..] else {
            panic!("expected one release, got {released:?}");
        };
        order.extend(waiters.iter().position(|parked| *parked == waiter));
        running = assignment;
    }
    order
}

#[test]
fn priority_comes_first_and_callers_take_turns() {
    let of = |caller, priority| Offer { priority, caller, ..Offer::default() };
    assert_eq!(vec![1, 2, 0], order_of(&[of(0, -1), of(0, 3), of(0, 0)]));
    // One caller has three calls waiting when the other comes with two.
    assert_eq!(vec![0, 3, 1, 4, 2], order_of(&[of(7, 0), of(7, 0), of(7, 0), of(8, 0), of(8, 0)]));
    assert_eq!(vec![0, 1, 2, 3], order_of(&[of(0, 0), of(0, 0), of(0, 0), of(8, 0)]));
}

#[test]
fn the_predicted_wait_follows_from_the_departures_so_far() {
    let mut router = with_replicas(Router::new(config()), &[1, 1]);
    assert_eq!(Some(Nanos::ZERO), router.predicted_wait());
    let mut running = [send(&mut router, Nanos::ZERO), send(&mut router, Nanos::ZERO)];
    assert_eq!(None, router.predicted_wait());
    let now = at_five_milliseconds_a_call(&mut router, &mut running);
    for ahead in 0..3 {
        let wait = router.predicted_wait().expect("calls have ended");
        let expected = Nanos::from_millis(5 * (ahead + 1));
        let near = wait.0.abs_diff(expected.0) < expected.0 / 5;
        assert!(near, "{ahead} ahead: expected {expected}, got {wait}");
        park(&mut router, None, now);
    }
}

#[test]
fn who_would_be_too_late_is_refused_at_once() {
    // In 400 ms 80 calls end. After a late call, at most half of that is admitted.
    for (has_been_late, expected) in [(false, 64..=96), (true, 32..=48)] {
        let config = RouterConfig { queue_len_max: 100, ..config() };
        let mut router = with_replicas(Router::new(config), &[1, 1]);
        let mut running = [send(&mut router, Nanos::ZERO), send(&mut router, Nanos::ZERO)];
        let now = at_five_milliseconds_a_call(&mut router, &mut running);
        if has_been_late {
            park(&mut router, Some(now), Nanos::from_millis(499));
            router.tick(now, &mut Vec::new());
            assert_eq!(1, router.stats().expired);
        }
        let due =
            |left: Nanos| Offer { deadline: Some(now.saturating_add(left)), ..Offer::default() };
        let left = Nanos::from_millis(400);
        let decisions: Vec<Decision> = (0..100).map(|_| router.offer(due(left), now)).collect();
        let parked =
            decisions.iter().take_while(|decision| matches!(decision, Decision::Parked(_))).count();
        assert!(expected.contains(&parked), "{parked} of {expected:?}, late: {has_been_late}");
        let Decision::Refused(Refusal::TooLate { wait, left: seen }) = decisions[parked] else {
            panic!("neither parked nor too late: {:?}", decisions[parked]);
        };
        assert_eq!((left, !has_been_late), (seen, wait > left), "{wait}");
        assert_eq!((100 - parked) as u64, router.stats().refused_by_queue);
        // Who is more urgent goes before them, and who is in no hurry may wait.
        for left_ms in [50, 2_000] {
            let decision = router.offer(due(Nanos::from_millis(left_ms)), now);
            assert!(matches!(decision, Decision::Parked(_)), "{decision:?}");
        }
    }
}

/// Two replicas, ten milliseconds a call: one ends every five. Both are busy at the end.
fn at_five_milliseconds_a_call(router: &mut Router, running: &mut [Assignment; 2]) -> Nanos {
    for round in 1..=50 {
        let now = Nanos::from_millis(10 * round);
        for assignment in &mut *running {
            router.complete(assignment.ticket, DONE, now, &mut Vec::new());
        }
        *running = [send(router, now), send(router, now)];
    }
    Nanos::from_millis(500)
}

/// One stream, and calls of 10 ms one after the other: the idle replica beside it is not thought to
/// be as slow, and the one that has it still gets its part.
#[test]
fn a_stream_keeps_calls_from_neither_its_replica_nor_the_other() {
    let config = RouterConfig { policy: PolicyKind::Predicted, ..config() };
    let mut router = with_replicas(Router::new(config), &[10, 10]);
    let stream = send(&mut router, Nanos::ZERO);
    let (mut now, mut beside) = (Nanos::ZERO, 0_u32);
    for _ in 0..2_000 {
        let call = send(&mut router, now);
        now = now.saturating_add(Nanos::from_millis(10));
        router.complete(call.ticket, DONE, now, &mut Vec::new());
        beside += u32::from(call.replica == stream.replica);
    }
    assert!((200..=1_000).contains(&beside), "{beside} of 2000 beside the stream");
    router.complete(stream.ticket, DONE, now, &mut Vec::new());
    assert_eq!(0, router.stats().in_flight);
}

/// A router of two replicas with a place each, of which the second is known to be slow.
fn with_a_slow_one(queue_len_max: u32) -> (Router, Nanos) {
    let config = RouterConfig { policy: PolicyKind::Predicted, queue_len_max, ..config() };
    let mut router = with_replicas(Router::new(config), &[1, 1]);
    let mut now = Nanos::ZERO;
    for _ in 0..40 {
        for (id, takes_ms) in [(1, 10), (1, 10), (2, 200)] {
            let call = router.pin(ReplicaId(id), Offer::default(), now).expect("a member");
            now = now.saturating_add(Nanos::from_millis(takes_ms));
            router.complete(call.ticket, DONE, now, &mut Vec::new());
        }
    }
    assert_eq!(ReplicaId(1), send(&mut router, now).replica);
    (router, now)
}

/// Beside a replica that is known to be slow: who waits for the other one takes the only place of the
/// queue, and the next call is refused although a place is free.
#[test]
fn nobody_waits_beside_room_for_the_place_of_the_next_call() {
    for (queue_len_max, is_sent) in [(0, true), (1, true), (10, false)] {
        let (mut router, now) = with_a_slow_one(queue_len_max);
        let decision = router.offer(Offer::default(), now);
        assert_eq!(is_sent, matches!(decision, Decision::Send(_)), "{queue_len_max} {decision:?}");
    }
}

#[test]
fn a_place_is_wanted_by_more_calls_than_there_is_room_for() {
    let (mut router, now) = with_a_slow_one(10);
    assert!(!router.wants_places());
    for is_wanted in [false, true, true] {
        let decision = router.offer(Offer::default(), now);
        assert!(matches!(decision, Decision::Parked(_)), "{decision:?}");
        assert_eq!(is_wanted, router.wants_places());
    }
}

/// The one that goes out keeps the others out, maybe for long: somebody has to look.
#[test]
fn calls_that_wait_behind_one_that_was_released_are_looked_at() {
    let config = RouterConfig { policy: PolicyKind::Predicted, ..config() };
    let mut router = with_replicas(Router::new(config), &[10]);
    router.fleet.replicas[0].held = 1;
    let first = send(&mut router, Nanos::ZERO);
    park(&mut router, None, Nanos::ZERO);
    park(&mut router, None, Nanos::ZERO);
    // As after a sweep that found nobody kept out.
    router.fleet.long_lived_at = None;
    assert_eq!(None, router.next_wakeup());
    let mut released = Vec::new();
    router.complete(first.ticket, Outcome::Cancelled, Nanos::ZERO, &mut released);
    assert!(matches!(released[..], [Release::Send { .. }]), "{released:?}");
    assert!(router.next_wakeup().is_some());
}
