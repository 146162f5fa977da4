//! The steady state does not allocate: offer, send, complete, and parking once the queue has grown.

use std::hint::black_box;
use std::ops::Range;

use allocation_counter::measure;
use router_core::{
    Decision, Load, Nanos, Offer, Outcome, PolicyKind, Release, ReplicaId, ReplicaSpec, Router,
    RouterConfig, Tier,
};

#[test]
fn the_steady_path_does_not_allocate() {
    let policies = [PolicyKind::P2c, PolicyKind::ConsistentHash];
    policies.into_iter().for_each(check_steady_path);
}

/// Calls of this policy may wait although there is room, so the test only sends and completes them.
#[test]
fn predictions_do_not_allocate() {
    let mut router = router_with_replicas(PolicyKind::Predicted, 64, 4);
    let mut play = |rounds: Range<u64>| {
        for round in rounds {
            send_and_complete_in_turn(&mut router, Offer::default(), round);
        }
    };
    play(0..200);
    assert_eq!(0, measure(|| play(200..1_000)).count_total);
}

#[test]
fn calls_of_known_models_and_sessions_do_not_allocate() {
    for policy in [PolicyKind::P2c, PolicyKind::ConsistentHash, PolicyKind::Predicted] {
        let mut router = router_with_replicas(policy, 64, 4);
        let models = ["m".to_owned()];
        for id in 0..8 {
            router.models(ReplicaId(id), &models, Nanos::ZERO, &mut Vec::new());
        }
        let mut play = |rounds: Range<u64>| {
            for round in rounds {
                let model = if round % 2 == 0 { "m" } else { "" };
                let offer = Offer { model, session: "s", ..Offer::default() };
                send_and_complete_in_turn(&mut router, offer, round);
            }
        };
        play(0..200);
        assert_eq!(0, measure(|| play(200..1_000)).count_total, "{policy:?}");
    }
}

/// Two calls at a time, a millisecond each.
fn send_and_complete_in_turn(router: &mut Router, offer: Offer<'_>, round: u64) {
    let now = Nanos::from_millis(2 * round);
    let tickets = [router.offer(offer, now), router.offer(offer, now)].map(sent);
    let later = now.saturating_add(Nanos::from_millis(1));
    let processing = Some(Nanos::from_micros(900));
    let load =
        Some(Load { in_flight: 1, limit: 4, processing, alone: None, batch: None, cost: None });
    let mut released = Vec::new();
    for ticket in tickets {
        let ticket = ticket.expect("there is room");
        router.complete(ticket, Outcome::done(load), later, &mut released);
    }
    assert!(released.is_empty());
}

fn check_steady_path(policy: PolicyKind) {
    let mut router = router_with_replicas(policy, 64, 4);
    let mut released = Vec::with_capacity(16);
    // The counter itself works, and the first rounds may grow the tables.
    assert_eq!(1, measure(|| drop(black_box(Box::new(1)))).count_total);
    let mut play = |rounds: Range<u64>| {
        for round in rounds {
            send_and_complete(&mut router, 200, round, &mut released);
            park_release_and_refuse(&mut router, round, &mut released);
        }
    };
    play(0..50);
    assert_eq!(0, measure(|| play(50..500)).count_total, "{policy:?}");
    assert_eq!((0, 0), (router.stats().in_flight, router.stats().parked));
}

/// `calls` in flight at once, then over.
fn send_and_complete(router: &mut Router, calls: usize, round: u64, released: &mut Vec<Release>) {
    let now = Nanos::from_secs(round);
    let mut tickets = [None; 200];
    for ticket in &mut tickets[..calls] {
        *ticket = sent(router.offer(Offer::default(), now));
    }
    let load = Some(Load {
        in_flight: 1,
        limit: 4,
        processing: None,
        alone: None,
        batch: None,
        cost: None,
    });
    for ticket in tickets.into_iter().flatten() {
        router.complete(ticket, Outcome::done(load), now, released);
    }
    assert!(released.is_empty());
}

/// All 256 places are taken, eight calls are parked with deadlines, released, refused and sent
/// again. A round lasts a second, so that no replica is still avoided in the next.
fn park_release_and_refuse(router: &mut Router, round: u64, released: &mut Vec<Release>) {
    let now = Nanos::from_secs(round);
    let deadline = Some(now.saturating_add(Nanos::from_secs(1)));
    let mut tickets = [None; 256];
    for ticket in &mut tickets {
        *ticket = sent(router.offer(Offer { deadline, ..Offer::default() }, now));
    }
    for _ in 0..8 {
        assert!(matches!(
            router.offer(Offer { deadline, ..Offer::default() }, now),
            Decision::Parked(_)
        ));
    }
    for ticket in tickets.into_iter().flatten() {
        router.complete(ticket, Outcome::done(None), now, released);
    }
    assert_eq!(8, released.len());
    for release in released.drain(..) {
        finish_after_a_refusal(router, release, now);
    }
}

fn finish_after_a_refusal(router: &mut Router, release: Release, now: Nanos) {
    let Release::Send { assignment, .. } = release else {
        panic!("no deadline has passed");
    };
    let mut released = Vec::new();
    let refused = Outcome::Refused { load: None };
    let ticket = sent(router.reoffer(assignment.ticket, refused, now, &mut released));
    let ticket = ticket.expect("other replicas have room");
    router.complete(ticket, Outcome::done(None), now, &mut released);
    assert!(released.is_empty());
}

fn sent(decision: Decision) -> Option<router_core::Ticket> {
    match decision {
        Decision::Send(assignment) => Some(assignment.ticket),
        Decision::Parked(_) | Decision::Refused(_) => None,
    }
}

fn router_with_replicas(policy: PolicyKind, replicas: u64, capacity: u32) -> Router {
    let mut router = Router::new(RouterConfig {
        queue_len_max: 100,
        refusals_max: 3,
        backoff_initial: Nanos::from_millis(25),
        backoff_max: Nanos::from_millis(500),
        model_wait_max: Nanos::from_secs(1),
        promise_max: Nanos::from_secs(10),
        policy,
        seed: 1,
        ..RouterConfig::default()
    });
    let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity };
    let specs: Vec<ReplicaSpec> = (0..replicas).map(spec).collect();
    let mut released = Vec::new();
    router.apply(&specs, Nanos::ZERO, &mut released);
    router
}
