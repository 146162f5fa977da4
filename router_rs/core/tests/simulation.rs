#![allow(clippy::print_stderr)] // the seed belongs to the output of a failed test

//! The shipping router and gate in simulated time: Poisson calls, replicas that take as long as
//! they take, a network with a delay, cancels, deadlines, a crash. `SEED=n` runs another world.

mod simulator;

use router_core::{Candidates, Nanos, P2c, Policy, SplitMix64};
use simulator::{End, Executes, Log, Record, Scenario, mean, run_policy};

/// The baseline for p2c.
#[derive(Debug)]
struct Random;

impl Policy for Random {
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        rng.below(candidates.len() as u32) as usize
    }
}

#[test]
fn two_choices_keep_the_longest_queue_far_shorter_than_a_random_choice() {
    let scenario = one_router_before_serial_replicas();
    let run = |policy| run_policy(&scenario, policy, seed());
    let p2c = run(|| Box::new(P2c));
    let random = run(|| Box::new(Random));
    assert_eq!(p2c.records.len(), p2c.count(End::Done));
    assert_eq!(p2c.records.len(), random.count(End::Done));
    // Theory at a load of 0.9: random queues are geometric, of which the longest of 16 over this
    // time exceeds 50; with two choices queues beyond ten are as good as never seen.
    assert!(
        p2c.gate_max * 3 <= random.gate_max,
        "longest queue: p2c {}, random {}",
        p2c.gate_max,
        random.gate_max
    );
    let (p2c, random) = (mean(&p2c.latencies_ms()), mean(&random.latencies_ms()));
    assert!(p2c * 2.0 <= random, "mean response: p2c {p2c} ms, random {random} ms");
}

#[test]
fn every_call_ends_once_through_refusals_cancels_deadlines_and_a_crash() {
    let log = run_p2c(&two_routers_that_share_gated_replicas(), seed());
    assert_eq!(4, log.gate_max, "the gates fill up and never overflow");
    for end in [End::Cancelled, End::Late, End::Failed] {
        assert!(log.count(end) > 0, "the world is too quiet to prove anything: no {end:?}");
    }
    assert!(log.refusals > 0, "the world is too quiet to prove anything: no refusal");
    // At 90 % load nearly all calls that were not cancelled, timed out or lost in the crash get
    // their answer.
    let done = log.count(End::Done);
    assert!(done * 100 >= log.records.len() * 75, "{done} of {} done", log.records.len());
    assert_eq!(0, log.count(End::QueueFull));
}

#[test]
fn one_seed_gives_one_history() {
    let run = |seed| run_p2c(&two_routers_that_share_gated_replicas(), seed).records;
    let seed = seed();
    assert!(run(seed) == run(seed));
    assert!(run(seed) != run(seed + 1));
}

#[test]
fn a_freed_place_is_used_at_once_so_full_replicas_stay_busy() {
    let scenario = Scenario { load: 1.3, ..one_router_before_gated_replicas() };
    let log = run_p2c(&scenario, seed());
    assert_eq!(log.records.len(), log.count(End::Done) + log.count(End::QueueFull));
    let goodput = log.goodput_per_s() / scenario.capacity_per_s();
    // The only idle time is the round trip: 0.2 ms beside calls of 10 ms.
    assert!(goodput >= 0.95, "the places were busy {goodput} of the time");
}

#[test]
fn replicas_that_all_fail_get_little_more_than_the_calls() {
    let scenario = Scenario {
        replicas: 10,
        load: 0.7,
        failing: 10,
        attempts_max: 3,
        fails_from_s: 2.0,
        fails_until_s: 12.0,
        duration_s: 20.0,
        ..Scenario::default()
    };
    let (from, until) = (Nanos::from_secs(2), Nanos::from_secs(12));
    let log = run_p2c(&scenario, seed());
    let offered = |record: &&Record| (from..until).contains(&record.offered_at);
    let failing = log.records.iter().filter(offered).count();
    let attempts = log.sends.iter().filter(|(at, _)| (from..until).contains(at)).count();
    // Some more attempts: the budget saved during quiet times before.
    let most = failing * 12 / 10 + 20;
    assert!(attempts <= most, "{attempts} attempts of {failing} calls");
    assert!(attempts * 10 >= failing * 11, "{attempts} attempts: nobody tries again");
    // Calls offered just before the end finished after it.
    let late = log.records.iter().filter(|record| record.offered_at >= until);
    assert!(late.clone().count() > 1_000);
    assert!(late.clone().all(|record| record.end == End::Done), "all is well again");
}

fn run_p2c(scenario: &Scenario, seed: u64) -> Log {
    run_policy(scenario, || Box::new(P2c), seed)
}

fn one_router_before_serial_replicas() -> Scenario {
    Scenario {
        limit: 0,
        shape: simulator::Shape::Exponential,
        duration_s: 15.0,
        ..Scenario::default()
    }
}

fn one_router_before_gated_replicas() -> Scenario {
    Scenario {
        replicas: 4,
        limit: 4,
        executes: Executes::Parallel,
        queue_len_max: 100,
        ..one_router_before_serial_replicas()
    }
}

fn two_routers_that_share_gated_replicas() -> Scenario {
    Scenario {
        routers: 2,
        cancelled_percent: 5.0,
        deadline_ms: 20.0,
        deadline_percent: 33.0,
        crash_at_s: 8.0,
        queue_len_max: 1_000,
        ..one_router_before_gated_replicas()
    }
}

/// From the variable `SEED`, otherwise a fixed one.
fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("SEED={text}: {error}")),
        Err(_) => 1,
    };
    eprintln!("SEED={seed} repeats this");
    seed
}

#[test]
fn places_that_other_routers_free_are_soon_used() {
    let scenario = Scenario {
        routers: 4,
        replicas: 2,
        limit: 1,
        load: 0.8,
        duration_s: 60.0,
        ..one_router_before_serial_replicas()
    };
    let shared = run_p2c(&scenario, seed());
    let alone = run_p2c(&Scenario { routers: 1, ..scenario }, seed());
    assert!(shared.refusals > 100, "the routers hardly met: {} refusals", shared.refusals);
    let (shared, alone) = (mean(&shared.latencies_ms()), mean(&alone.latencies_ms()));
    assert!(shared <= alone * 1.3, "mean response: four routers {shared} ms, one {alone} ms");
}
