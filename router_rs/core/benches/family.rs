//! Runs workloads of the family: `cargo bench -p pyserve-router-core --bench family`.
//!
//! `-- --count N` of them. `--costs` plays the family for replicas that step many requests at once,
//! whose rival chooses by the number of calls. `--first SEED` is the seed of the first one (by default the time),
//! `--policy NAME` is judged against `--rival NAME`. `--control` judges the rival against itself with
//! other calls, so that what seems broken is chance. `--show SEED` prints a workload, and
//! `--minimise` prints for each broken one the simplest that is also broken. Exit code 1 if one is
//! broken. Each has a dozen claims at 95 %, so a few in a thousand seem broken by chance: one counts
//! as broken if it is so again with other random numbers.
// Figures, and a fresh seed.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use router_core::PolicyKind;
use simulator::{
    Executes, Rule, Scenario, Verdict, costs_workload, judge_apart, median, minimised, workload,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let number = |name: &str| after(name).map(|text| text.parse::<u64>().expect("a number"));
    let by_cost = arguments.iter().any(|argument| argument == "--costs");
    let make = if by_cost { costs_workload } else { workload };
    if let Some(seed) = number("--show") {
        return println!("{}", make(seed));
    }
    // In milliseconds, so that the next run begins beyond the seeds of this one.
    let fresh =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let first = number("--first").unwrap_or_else(fresh);
    let count = number("--count").unwrap_or(200);
    let policy = |name: &str, default| {
        after(name).map_or(default, |name| {
            let is_it = |policy: &PolicyKind| format!("{policy:?}").eq_ignore_ascii_case(&name);
            PolicyKind::ALL.into_iter().find(is_it).expect("the name of a policy")
        })
    };
    let rival = policy("--rival", PolicyKind::Least);
    let rival = if by_cost { Rule::Counting(rival) } else { Rule::Router(rival) };
    let is_control = arguments.iter().any(|argument| argument == "--control");
    let rule = Rule::Router(policy("--policy", PolicyKind::LateBinding));
    let rules = Rules { rule: if is_control { rival } else { rule }, rival, is_control };
    let must_minimise = arguments.iter().any(|argument| argument == "--minimise");
    println!(
        "{} beside {} in the workloads {first} to {}",
        rules.rule.name(),
        rules.rival.name(),
        first + count - 1
    );
    let found = play(make, rules, first, count);
    if !report(rules, &found, must_minimise) {
        std::process::exit(1);
    }
}

/// Added to a seed: beyond the seeds of all other workloads.
const OTHER_NUMBERS: u64 = 1 << 48;

/// Added to the seed of a control's rival.
const OTHER_CALLS: u64 = 1 << 50;

#[derive(Clone, Copy)]
struct Rules {
    rule: Rule,
    rival: Rule,
    is_control: bool,
}

impl Rules {
    fn judge(self, scenario: &Scenario, seed: u64) -> Verdict {
        let apart = if self.is_control { OTHER_CALLS } else { 0 };
        judge_apart(scenario, (self.rule, self.rival), seed, apart)
    }
}

struct Found {
    seed: u64,
    scenario: Scenario,
    verdict: Verdict,
    /// It seemed broken once, and was not with other random numbers.
    is_chance: bool,
}

fn play(make: fn(u64) -> Scenario, rules: Rules, first: u64, count: u64) -> Vec<Found> {
    let next = AtomicU64::new(first);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let scenario = make(seed);
                    let played = panic::catch_unwind(|| judge_surely(&scenario, rules, seed));
                    let (verdict, is_chance) =
                        played.unwrap_or_else(|_| (Verdict::of_a_panic(), false));
                    let found = Found { seed, scenario, verdict, is_chance };
                    sender.send(found).expect("it is received");
                }
            });
        }
        drop(sender);
    });
    let mut found: Vec<Found> = receiver.iter().collect();
    found.sort_by_key(|one| one.seed);
    found
}

/// Judges a workload, and once more with other random numbers if it seems broken.
fn judge_surely(scenario: &Scenario, rules: Rules, seed: u64) -> (Verdict, bool) {
    let mut verdict = rules.judge(scenario, seed);
    if verdict.broken.is_empty() {
        return (verdict, false);
    }
    let again = rules.judge(scenario, seed.wrapping_add(OTHER_NUMBERS));
    let is_chance = again.broken.is_empty();
    if is_chance {
        verdict.broken.clear();
    }
    (verdict, is_chance)
}

/// Returns whether none is broken.
fn report(rules: Rules, found: &[Found], must_minimise: bool) -> bool {
    let broken: Vec<&Found> = found.iter().filter(|one| !one.verdict.broken.is_empty()).collect();
    for Found { seed, scenario, verdict, .. } in &broken {
        let Scenario { executes, replicas, routers, limit, .. } = scenario;
        println!("{seed}: {executes:?}, {replicas} replicas, {routers} routers, limit {limit}");
        for claim in verdict.broken.iter().take(4) {
            println!("    {claim}");
        }
        if must_minimise {
            println!("{}", minimised(scenario, (rules.rule, rules.rival), *seed));
        }
    }
    let whole = |of: fn(&Verdict) -> f64, which: &dyn Fn(&Found) -> bool| {
        let values: Vec<f64> =
            found.iter().filter(|one| which(one)).map(|one| of(&one.verdict)).collect();
        if values.is_empty() { 1.0 } else { median(&values) }
    };
    let is_hard =
        |one: &Found| one.scenario.speeds.len() > 1 || (one.scenario.executes == Executes::Serial);
    println!("{} of {} broken", broken.len(), found.len());
    let by_chance: Vec<u64> =
        found.iter().filter(|one| one.is_chance).map(|one| one.seed).collect();
    println!("broken only once: {by_chance:?}");
    let seeds: usize = found.iter().map(|one| one.verdict.seeds).sum();
    println!("seeds a workload: {:.2}", seeds as f64 / found.len() as f64);
    for (name, which) in
        [("all", &(|_: &Found| true) as &dyn Fn(&Found) -> bool), ("unequal or serial", &is_hard)]
    {
        println!(
            "{name}: median of mean {:.3}, p99 {:.3}, answers {:.3}",
            whole(|verdict| verdict.mean_ratio, which),
            whole(|verdict| verdict.p99_ratio, which),
            whole(|verdict| verdict.answers_ratio, which),
        );
    }
    broken.is_empty()
}
