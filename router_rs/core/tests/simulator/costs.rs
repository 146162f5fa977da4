//! A family of workloads for replicas that step many requests at once: from a seed, any of what such
//! a deployment may meet.
//!
//! Costs differ by up to a thousand times. Clients tell some, the length of a request shows others,
//! and some nobody can know.

use router_core::SplitMix64;

use super::family::Dice;
use super::phases::Phase;
use super::scenario::{Executes, Scenario, Shape};
use super::steps::Steps;

/// As many calls in the mean of a phase.
const CALLS_MIN: f64 = 1_000.0;
const CALLS_MAX: f64 = 2_500.0;
/// Works that are drawn to find out what replicas can do.
const DRAWN: usize = 4_000;

/// The workload of a seed.
pub(crate) fn costs_workload(seed: u64) -> Scenario {
    let mut dice = Dice(SplitMix64::new(seed));
    let replicas = dice.whole(2, 16);
    let routers = if dice.chance(0.5) { 1 } else { dice.whole(2, 8) };
    let phases = kinds(&mut dice);
    let mean = phases[0].mean_ms();
    let budget = mean * dice.between(8.0, 200.0);
    let step_ms = dice.between(1.0, 50.0);
    let told = if dice.chance(0.3) { 1.0 } else { dice.evenly(0.0, 1.0) };
    let mut scenario = Scenario {
        name: format!("costs {seed}"),
        routers,
        replicas,
        limit: 10_000,
        executes: Executes::Steps,
        tells: false,
        speeds: speeds(&mut dice),
        network_ms: vec![dice.between(0.03, 1.0); 3],
        step_fixed_ms: step_ms,
        warmup_s: 0.0,
        steps: Steps {
            budget,
            running_max: dice.whole(4, 64),
            cost_per_step: mean / dice.between(2.0, 100.0),
            ms_per_cost: step_ms * dice.between(0.05, 3.0) / budget,
            told,
            sized: dice.evenly(0.0, 1.0 - told),
            by_method: dice.chance(0.5),
        },
        ..Scenario::default()
    };
    let mut from_s = 0.0;
    for mut phase in phases {
        let capacity_per_s = capacity_per_s(&scenario, &phase, &mut dice);
        let calls = dice.between(CALLS_MIN, CALLS_MAX);
        phase.from_s = from_s;
        if dice.chance(0.3) {
            let places = (scenario.steps.running_max * replicas) as f64;
            phase.users = dice.between(replicas as f64, places.max(2.0 * replicas as f64)) as usize;
            from_s += calls / capacity_per_s;
        } else {
            phase.rate_per_s = dice.evenly(0.3, 1.05) * capacity_per_s;
            phase.burst = if dice.chance(0.2) { dice.whole(2, 16) } else { 1 };
            from_s += calls / phase.rate_per_s;
        }
        scenario.phases.push(phase);
    }
    scenario.duration_s = from_s;
    scenario
}

/// The kinds of calls in each phase, still without their rates.
fn kinds(dice: &mut Dice) -> Vec<Phase> {
    let count = if dice.chance(0.4) { 1 } else { dice.whole(2, 3) };
    let phase = |dice: &mut Dice| {
        let kinds = dice.whole(1, 3);
        Phase {
            shape: dice.one_of(&[Shape::Constant, Shape::Lognormal, Shape::Heavy, Shape::Heavy]),
            work_ms: (0..kinds).map(|_| dice.between(1.0, 1_000.0)).collect(),
            shares: (0..kinds).map(|_| dice.between(0.02, 1.0)).collect(),
            blocks: (0..kinds).map(|_| dice.between(0.1, 1.0)).collect(),
            ..Phase::default()
        }
    };
    (0..count).map(|_| phase(dice)).collect()
}

fn speeds(dice: &mut Dice) -> Vec<f64> {
    if dice.chance(0.7) {
        return vec![1.0];
    }
    (0..dice.whole(2, 4)).map(|_| dice.between(0.25, 1.0)).collect()
}

/// Calls a second that all replicas can answer together, as places and as the budget allow.
fn capacity_per_s(scenario: &Scenario, phase: &Phase, dice: &mut Dice) -> f64 {
    let steps = &scenario.steps;
    let (mut cost, mut count, mut area) = (0.0, 0.0, 0.0);
    for nth in 0..DRAWN {
        let work = phase.work(nth, phase.from(), phase.from_s + 1.0, &mut dice.0);
        let (of_call, steps_of_call) =
            (steps.cost(work.whole), f64::from(steps.count(work.blocking)));
        cost += of_call / DRAWN as f64;
        count += steps_of_call / DRAWN as f64;
        area += of_call * steps_of_call / DRAWN as f64;
    }
    let step_ms = |used: f64| scenario.step_fixed_ms + used.min(steps.budget) * steps.ms_per_cost;
    let running = steps.running_max as f64;
    let by_places = running / (count * step_ms(running * cost));
    let by_budget = steps.budget / (area * step_ms(steps.budget));
    let speed: f64 = (0..scenario.replicas).map(|index| scenario.speed(index)).sum();
    by_places.min(by_budget) * speed * 1e3
}
