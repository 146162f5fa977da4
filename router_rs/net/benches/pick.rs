//! The cost of one decision: `cargo bench -p pyserve-router-net`.
//!
//! A line of JSON for each policy: medians of offer and complete, alone with 2, 8 and 64 replicas,
//! and of lock + offer + unlock from four threads with 64. `cache_line` is how long the machine
//! itself takes to bring a cache line to another core: each hand-over of the lock waits for some,
//! and where processors are virtual and are moved it changes from second to second. Without
//! `--bench` (as `cargo test` runs it) it makes one short pass, to prove that it works.
//! `make bench NAME=routing` keeps the figures.
#![allow(clippy::print_stdout)] // the table is the purpose
#![allow(clippy::disallowed_types)] // a benchmark reads the clock

mod rounds;

use std::hint::{self, black_box};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Instant;

use rounds::{percentiles_json, policies};
use router_core::{
    Decision, Nanos, Offer, Outcome, PolicyKind, ReplicaId, ReplicaSpec, Router, RouterConfig,
    Ticket, Tier,
};
use router_net::BriefMutex;

/// Calls in flight at each replica while it is measured.
const DEPTH: usize = 4;
const THREADS: usize = 4;
const ROUNDS: usize = 9;
/// Enough for a median; less than a millisecond.
const LINE_TURNS: usize = 1_000;
/// The time between two batches of calls; any value will do.
const SERVICE: Nanos = Nanos::from_micros(10);

fn main() {
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let (samples, calls) = if is_measuring { (30, 20_000) } else { (2, 100) };
    for policy in policies() {
        let alone = [2, 8, 64].map(|replicas| {
            let (offer, complete) = alone(policy, replicas, samples, calls);
            format!("\"{replicas}\": {{\"offer\": {offer:.1}, \"complete\": {complete:.1}}}")
        });
        let locked = locked_json(policy, samples * calls / 4);
        let alone = alone.join(", ");
        println!(
            "{{\"policy\": \"{policy:?}\", \"ns_by_replicas\": {{{alone}}}, \"locked_ns\": {{{locked}}}}}"
        );
    }
}

/// Median ns of `offer` and of `complete`, each timed over batches that fit the fleet.
fn alone(policy: PolicyKind, replicas: u64, samples: usize, calls: usize) -> (f64, f64) {
    let mut router = router_with_replicas(policy, replicas);
    let mut released = Vec::new();
    let mut now = Nanos::ZERO;
    let mut held: Vec<Ticket> =
        (0..replicas as usize * DEPTH).map(|_| offer(&mut router, now)).collect();
    let mut medians = (Vec::new(), Vec::new());
    let batch = 64;
    for _ in 0..samples {
        let (mut offering, mut completing) = (0, 0);
        for _ in 0..calls / batch {
            now = now.saturating_add(SERVICE);
            let start = Instant::now();
            for _ in 0..batch {
                held.push(black_box(offer(&mut router, now)));
            }
            let middle = Instant::now();
            for ticket in held.drain(..batch) {
                let outcome = Outcome::done(None);
                router.complete(ticket, outcome, now, &mut released);
            }
            completing += middle.elapsed().as_nanos();
            offering += (middle - start).as_nanos();
        }
        let timed = (calls / batch).max(1) * batch;
        medians.0.push(offering as f64 / timed as f64);
        medians.1.push(completing as f64 / timed as f64);
    }
    (median(medians.0), median(medians.1))
}

/// Medians of several rounds, since one in which the machine stops a thread with the lock in its
/// hands says little, and the spread of the rarest.
fn locked_json(policy: PolicyKind, calls: usize) -> String {
    let mut lines_ns = Vec::new();
    let rounds: Vec<Vec<u64>> = (0..ROUNDS)
        .map(|_| {
            lines_ns.push(line_ns(LINE_TURNS));
            let mut latencies = contended(policy, 64, calls / ROUNDS);
            latencies.sort_unstable();
            latencies
        })
        .collect();
    lines_ns.sort_unstable_by(f64::total_cmp);
    let (line, most) = (lines_ns[ROUNDS / 2], lines_ns[ROUNDS - 1]);
    let line = format!("\"cache_line\": {line:.0}, \"cache_line_most\": {most:.0}");
    format!("{}, {line}", percentiles_json(&rounds))
}

/// How long a word takes from one core to another: half of a round trip. Takes the median, since
/// both threads may begin on one core, and take turns there until they are moved.
fn line_ns(turns: usize) -> f64 {
    let word = AtomicUsize::new(0);
    let turn_ns = |turn: usize| {
        let begun = Instant::now();
        pass_on(&word, 2 * turn);
        begun.elapsed().as_nanos() as f64 / 2.0
    };
    thread::scope(|scope| {
        scope.spawn(|| (0..turns).for_each(|turn| pass_on(&word, 2 * turn + 1)));
        median((0..turns).map(turn_ns).collect())
    })
}

fn pass_on(word: &AtomicUsize, expected: usize) {
    let mut looks = 0_u32;
    while word.load(Acquire) != expected {
        looks += 1;
        // The other thread may have no core of its own.
        if looks.is_multiple_of(10_000) { thread::yield_now() } else { hint::spin_loop() }
    }
    word.store(expected + 1, Release);
}

/// Nanoseconds of each locked `offer`, clock reads included.
fn contended(policy: PolicyKind, replicas: u64, calls: usize) -> Vec<u64> {
    let router = BriefMutex::new(router_with_replicas(policy, replicas));
    let start_together = Barrier::new(THREADS);
    let begun = Instant::now();
    let run = || {
        start_together.wait();
        contended_thread(&router, begun, calls)
    };
    let mut latencies = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        for worker in workers {
            latencies.extend(worker.join().expect("a measuring thread does not panic"));
        }
    });
    latencies
}

fn contended_thread(router: &BriefMutex<Router>, begun: Instant, calls: usize) -> Vec<u64> {
    let mut released = Vec::new();
    let mut latencies = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        let now = Nanos((start - begun).as_nanos() as u64);
        let ticket = offer(&mut router.lock(), now);
        latencies.push(start.elapsed().as_nanos() as u64);
        let outcome = Outcome::done(None);
        let now = Nanos(begun.elapsed().as_nanos() as u64);
        router.lock().complete(ticket, outcome, now, &mut released);
    }
    latencies
}

fn offer(router: &mut Router, now: Nanos) -> Ticket {
    match router.offer(Offer { deadline: Some(Nanos::MAX), ..Offer::default() }, now) {
        Decision::Send(assignment) => assignment.ticket,
        other => panic!("there is room, but the router says {other:?}"),
    }
}

fn router_with_replicas(policy: PolicyKind, replicas: u64) -> Router {
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
    let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 1_000 };
    let specs: Vec<ReplicaSpec> = (0..replicas).map(spec).collect();
    router.apply(&specs, Nanos::ZERO, &mut Vec::new());
    router
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
