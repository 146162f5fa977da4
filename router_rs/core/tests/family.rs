// The output includes the seed, which is a fresh one.
#![allow(clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)]

//! Compares the default policy with `least`, which never holds a call back, in new workloads at
//! each run. `SEED=n` repeats one; `make bench NAME=routing-family` runs thousands.

mod simulator;

use std::time::{SystemTime, UNIX_EPOCH};

use router_core::PolicyKind;
use simulator::{Rule, Scenario, costs_workload, judge, workload};

const COUNT: u64 = 24;
/// Of this many workloads one may fail by chance: a workload has some twenty claims, each judged by
/// a 95 % interval after a first suspicion.
const BROKEN_MAX: usize = 3;
/// For replicas that step, of which some workloads are worse (`results/routing-family-costs.txt`).
const COSTS_COUNT: u64 = 6;
const COSTS_BROKEN_MAX: usize = 3;

#[test]
fn the_default_never_costs_what_it_saves() {
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (first, count) = match std::env::var("SEED") {
        Ok(text) => (text.parse().expect("a number"), 1),
        Err(_) => (fresh(), COUNT),
    };
    eprintln!("the workloads {first} to {}; SEED=n repeats one", first + count - 1);
    let rules = (Rule::Router(PolicyKind::LateBinding), Rule::Router(PolicyKind::Least));
    let broken: Vec<String> = (first..first + count)
        .filter_map(|seed| {
            let scenario = workload(seed);
            let verdict = judge(&scenario, rules, seed);
            let claims = verdict.broken.join("\n");
            (!claims.is_empty()).then(|| format!("SEED={seed}\n{claims}\n{scenario}"))
        })
        .collect();
    assert!(broken.len() < BROKEN_MAX.min(count as usize), "{}", broken.join("\n"));
}

/// Where replicas say what their requests cost, choosing by that is as good as choosing by numbers.
#[test]
fn costs_decide_as_well_as_numbers() {
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (first, count) = match std::env::var("SEED") {
        Ok(text) => (text.parse().expect("a number"), 1),
        Err(_) => (fresh(), COSTS_COUNT),
    };
    eprintln!("the workloads {first} to {}; SEED=n repeats one", first + count - 1);
    let rules = (Rule::Router(PolicyKind::LateBinding), Rule::Counting(PolicyKind::Least));
    let broken: Vec<String> = (first..first + count)
        .filter_map(|seed| {
            let scenario = costs_workload(seed);
            let verdict = judge(&scenario, rules, seed);
            let claims = verdict.broken.join("\n");
            (!claims.is_empty()).then(|| format!("SEED={seed}\n{claims}\n{scenario}"))
        })
        .collect();
    assert!(broken.len() < COSTS_BROKEN_MAX.min(count as usize), "{}", broken.join("\n"));
}

/// The scenario printed by a failed run can be run again.
#[test]
fn a_workload_is_what_its_text_says() {
    let both = (1..200).map(workload).chain((1..200).map(costs_workload));
    for scenario in both {
        let again =
            Scenario { name: scenario.name.clone(), ..Scenario::parse(&scenario.to_string()) };
        assert_eq!(scenario.to_string(), again.to_string());
        assert_eq!(format!("{scenario:?}"), format!("{again:?}"));
    }
}

/// The former default rule limits replicas to a few calls after some changes of the mix.
#[test]
fn the_family_finds_a_rule_that_locks_itself_out() {
    let rules = (Rule::Router(PolicyKind::Predicted), Rule::Router(PolicyKind::Least));
    let finds = |seed: &u64| !judge(&workload(*seed), rules, *seed).broken.is_empty();
    let found = (1..=20).filter(finds).count();
    assert!(found >= 3, "{found} of 20");
}
