//! What scenarios cannot say: misuse, odd clocks, and the seam for policies.

use super::*;
use crate::policy::{Candidates, PolicyKind};
use crate::replica::Tier;
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
