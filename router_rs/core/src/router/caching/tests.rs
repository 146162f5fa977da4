//! Where calls with keys go, and how long they wait.

use std::collections::BTreeSet;

use super::*;
use crate::membership::{ReplicaId, ReplicaSpec, Tier};
use crate::replica::Load;
use crate::router::{Assignment, CacheChange, Release, RouterConfig, WaiterId};

const HIT: Nanos = Nanos::from_millis(5);
const MISS: Nanos = Nanos::from_millis(50);

fn specs(replicas: u64, capacity: u32) -> Vec<ReplicaSpec> {
    let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity };
    (0..replicas).map(spec).collect()
}

fn router(replicas: u64, capacity: u32) -> Router {
    let mut router = Router::new(RouterConfig::default());
    router.apply(&specs(replicas, capacity), Nanos::ZERO, &mut Vec::new());
    router
}

fn offer(router: &mut Router, keys: &[u64], now: Nanos) -> Decision {
    router.offer(Offer { cache_keys: keys, ..Offer::default() }, now)
}

fn send(router: &mut Router, keys: &[u64], now: Nanos) -> Assignment {
    match offer(router, keys, now) {
        Decision::Send(assignment) => assignment,
        other => panic!("it is to be sent, but {other:?}"),
    }
}

fn park(router: &mut Router, keys: &[u64], now: Nanos) -> WaiterId {
    match offer(router, keys, now) {
        Decision::Parked(waiter) => waiter,
        other => panic!("it is to wait, but {other:?}"),
    }
}

fn complete(router: &mut Router, call: Assignment, took: Nanos, now: Nanos) -> Vec<Release> {
    let load = Load {
        in_flight: 0,
        limit: 9,
        processing: Some(took),
        alone: None,
        batch: None,
        cost: None,
    };
    let mut released = Vec::new();
    router.complete(call.ticket, Outcome::done(Some(load)), now, &mut released);
    released
}

fn report(router: &mut Router, replica: u64, keys: &[u64]) {
    let stored = |key: &u64| CacheChange::Stored { key: *key, parent: 0 };
    let changes: Vec<CacheChange> = keys.iter().map(stored).collect();
    router.caches(ReplicaId(replica), (true, &changes), Nanos::ZERO, &mut Vec::new());
}

/// A router that has learnt what a hit saves, of replicas that take so many calls, all at once. The
/// first of them has the entry 7.
fn learnt(replicas: u64, capacity: u32) -> (Router, Nanos) {
    let mut router = router(replicas, capacity);
    report(&mut router, 0, &[7]);
    let mut now = Nanos::ZERO;
    for round in 0..64 {
        // Where there is room, two hits at once show that the second does not wait for the first.
        for (key, takes, at_once) in [(7, HIT, capacity.min(2)), (1_000 + round, MISS, 1)] {
            let calls: Vec<_> = (0..at_once).map(|_| send(&mut router, &[key], now)).collect();
            now = now.saturating_add(takes);
            for call in calls {
                complete(&mut router, call, takes, now);
            }
        }
    }
    (router, now)
}

fn sent(released: &[Release]) -> Vec<(WaiterId, ReplicaId)> {
    let sent = |release: &Release| match release {
        Release::Send { waiter, assignment } => (*waiter, assignment.replica),
        other => panic!("it is to be sent, but {other:?}"),
    };
    released.iter().map(sent).collect()
}

#[test]
fn a_call_goes_to_where_its_entries_are_reported() {
    let mut router = router(4, 10);
    for (replica, key) in [(2, 20), (3, 30)] {
        report(&mut router, replica, &[key]);
    }
    for (replica, key) in [(3, 30), (2, 20), (3, 30)] {
        let call = send(&mut router, &[key], Nanos::ZERO);
        assert_eq!(ReplicaId(replica), call.replica);
        complete(&mut router, call, HIT, Nanos(1));
    }
    let stats = router.stats();
    assert_eq!((3, 0, 2), (stats.cache_hits, stats.cache_misses, stats.cache_keys));
    assert_eq!(1, router.cached_by(ReplicaId(2)));
}

#[test]
fn the_longest_prefix_wins() {
    let (mut router, now) = learnt(3, 10);
    for (replica, blocks) in [(0, 1), (1, 3), (2, 2)] {
        let chain: Vec<CacheChange> =
            (1..=blocks).map(|key| CacheChange::Stored { key, parent: key - 1 }).collect();
        router.caches(ReplicaId(replica), (true, &chain), now, &mut Vec::new());
    }
    assert_eq!(ReplicaId(1), send(&mut router, &[1, 2, 3, 4], now).replica);
}

/// Without promises the calls of a burst would each make another replica store the same.
#[test]
fn a_burst_for_a_new_entry_goes_to_one_replica() {
    let (mut router, now) = learnt(6, 100);
    let calls: Vec<Assignment> = (0..20).map(|_| send(&mut router, &[99], now)).collect();
    assert!(calls.iter().all(|call| call.replica == calls[0].replica), "{calls:?}");
    // Until the replica would have said so.
    let call = send(&mut router, &[99], now.saturating_add(Nanos::from_secs(9)));
    assert_eq!(calls[0].replica, call.replica);
}

/// Such as the beginning that all prompts share, where replicas store whole prompts.
#[test]
fn a_key_that_no_replica_ever_stores_does_not_hold_calls_at_one() {
    let (mut router, mut now) = learnt(2, 100);
    let mut calls = [0; 2];
    for key in 0..600 {
        let call = send(&mut router, &[99, 5_000 + key], now);
        calls[call.replica.0 as usize] += 1;
        now = now.saturating_add(MISS);
        complete(&mut router, call, MISS, now);
    }
    assert!(calls.iter().all(|calls| *calls >= 150), "{calls:?}");
}

#[test]
fn calls_spread_again_when_a_replica_has_removed_all() {
    let (mut router, now) = learnt(4, 100);
    router.caches(ReplicaId(0), (true, &[]), now, &mut Vec::new());
    assert_eq!(0, router.cached_by(ReplicaId(0)));
    let replicas: BTreeSet<ReplicaId> =
        (0..64).map(|key| send(&mut router, &[5_000 + key], now).replica).collect();
    assert_eq!(4, replicas.len());
}

#[test]
fn before_anything_is_learnt_one_call_more_is_borne_and_no_crowd() {
    let mut router = router(4, 100);
    report(&mut router, 1, &[7]);
    let calls: Vec<Assignment> = (0..40).map(|_| send(&mut router, &[7], Nanos::ZERO)).collect();
    let at_home = calls.iter().filter(|call| call.replica == ReplicaId(1)).count();
    assert_eq!(ReplicaId(1), calls[0].replica);
    assert!((10..=16).contains(&at_home), "{at_home} of 40");
}

/// Replicas that work on one call after the other and do not say on which: were a call counted among
/// those before it, it would be taken for half as long as it is.
#[test]
fn a_call_does_not_wait_for_itself() {
    let mut router = router(1, 10);
    report(&mut router, 0, &[7]);
    let mut now = Nanos::ZERO;
    for round in 0..500_u64 {
        let at_once = (0..=round % 3).map(|place| {
            let (key, takes) =
                if (round + place) % 2 == 0 { (7, HIT) } else { (1_000 + 3 * round + place, MISS) };
            (send(&mut router, &[key], now), takes)
        });
        let at_once: Vec<(Assignment, Nanos)> = at_once.collect();
        let sent_at = now;
        for (call, takes) in at_once {
            now = now.saturating_add(takes);
            complete(&mut router, call, now.saturating_sub(sent_at), now);
        }
    }
    for (missing, takes) in [(0, HIT), (1, MISS)] {
        let call_ms = router.caches.savings.call_ns(missing).expect("it has learnt") / 1e6;
        let takes_ms = takes.0 as f64 / 1e6;
        assert!((call_ms - takes_ms).abs() < 3.0, "{call_ms} ms instead of {takes_ms}");
    }
}

/// As where an answer's first message comes sooner, and its end does not.
#[test]
fn a_call_goes_to_its_entry_although_nothing_shows_what_it_gains() {
    let mut router = router(4, 10);
    report(&mut router, 2, &[7]);
    let mut now = Nanos::ZERO;
    for round in 0..200 {
        for key in [7, 1_000 + round] {
            let call = send(&mut router, &[key], now);
            assert!(key != 7 || call.replica == ReplicaId(2), "round {round}");
            now = now.saturating_add(HIT);
            complete(&mut router, call, HIT, now);
        }
    }
}

#[test]
fn a_call_waits_for_its_entry_as_long_as_a_hit_saves() {
    let (mut router, now) = learnt(2, 1);
    let busy = send(&mut router, &[7], now);
    let waiter = park(&mut router, &[7], now);
    let released = complete(&mut router, busy, HIT, now.saturating_add(HIT));
    assert_eq!(vec![(waiter, ReplicaId(0))], sent(&released));

    let (mut router, now) = learnt(2, 1);
    send(&mut router, &[7], now);
    let waiter = park(&mut router, &[7], now);
    let until = router.next_wakeup().expect("it does not wait for ever");
    let waits_ms = until.saturating_sub(now).0 as f64 / 1e6;
    assert!((40.0..50.0).contains(&waits_ms), "{waits_ms} ms, where a hit saves 45");
    let mut released = Vec::new();
    router.tick(until, &mut released);
    assert_eq!(vec![(waiter, ReplicaId(1))], sent(&released));
}

#[test]
fn nobody_waits_for_a_replica_that_has_left_or_is_left_alone() {
    for is_silent in [false, true] {
        let (mut router, now) = learnt(2, 1);
        send(&mut router, &[7], now);
        let waiter = park(&mut router, &[7], now);
        let mut released = Vec::new();
        if is_silent {
            router.silent(ReplicaId(0), now, &mut released);
        } else {
            router.apply(&specs(2, 1)[1..], now, &mut released);
        }
        assert_eq!(vec![(waiter, ReplicaId(1))], sent(&released));
    }
}

#[test]
fn a_full_queue_is_no_reason_to_refuse_a_call_that_would_wait_beside_room() {
    let (mut router, now) = learnt(2, 1);
    let config = RouterConfig { queue_len_max: 0, ..RouterConfig::default() };
    router.configure(config, now, &mut Vec::new());
    send(&mut router, &[7], now);
    assert_eq!(ReplicaId(1), send(&mut router, &[7], now).replica);
}

#[test]
fn a_caller_that_leaves_while_it_waits_leaves_nothing() {
    let (mut router, now) = learnt(2, 1);
    let busy = send(&mut router, &[7], now);
    let waiter = park(&mut router, &[7], now);
    router.abandon(waiter, now);
    assert!(complete(&mut router, busy, HIT, now.saturating_add(HIT)).is_empty());
    let stats = router.stats();
    assert_eq!((0, 0, 0), (stats.in_flight, stats.parked, router.caches.waiting_len()));
}

#[test]
fn a_model_and_an_order_of_the_caller_go_before_keys() {
    let mut router = router(3, 10);
    report(&mut router, 0, &[7]);
    router.models(ReplicaId(1), &["m".to_owned()], Nanos::ZERO, &mut Vec::new());
    let with = Offer { cache_keys: &[7], ..Offer::default() };
    let by_model = router.offer(Offer { model: "m", ..with }, Nanos::ZERO);
    let ranked = [ReplicaId(2)];
    let by_order = router.offer(Offer { ranked: &ranked, ..with }, Nanos::ZERO);
    for (replica, decision) in [(1, by_model), (2, by_order)] {
        let Decision::Send(assignment) = decision else { panic!("{decision:?}") };
        assert_eq!(ReplicaId(replica), assignment.replica);
    }
    assert_eq!(2, router.stats().cache_misses);
}

#[test]
fn known_entries_are_found_without_memory_from_the_heap() {
    let (mut router, mut now) = learnt(4, 10);
    let mut play = |rounds: u64| {
        for _ in 0..rounds {
            let call = send(&mut router, &[7, 1_001], now);
            now = now.saturating_add(HIT);
            complete(&mut router, call, HIT, now);
        }
    };
    play(100);
    let counted = allocation_counter::measure(|| play(100));
    assert_eq!(0, counted.count_total);
}
