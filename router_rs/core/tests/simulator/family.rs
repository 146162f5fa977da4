//! A family of workloads: from a seed, any of what a deployment may meet.
//!
//! Nothing here is a case that somebody thought of: number and kind of replicas, mixes of calls and
//! their changes, loops, limits and faults are drawn, most of them evenly by their logarithm.

use router_core::SplitMix64;

use super::phases::Phase;
use super::scenario::{Executes, Scenario, Shape};
use super::traffic::uniform;

/// As many calls in the mean of a phase.
const CALLS_MIN: f64 = 600.0;
const CALLS_MAX: f64 = 1_500.0;
/// For calls that await: more of them at once add no work for a replica.
const PARALLEL_MAX: u32 = 16;
const USERS_MAX: f64 = 256.0;

/// The workload of a seed.
pub(crate) fn workload(seed: u64) -> Scenario {
    let mut dice = Dice(SplitMix64::new(seed));
    let mut scenario = places(&mut dice);
    scenario.name = format!("workload {seed}");
    scenario.warmup_s = 0.0;
    scenario.phases = phases(&scenario, &mut dice);
    let last = scenario.phases.last().expect("there is one");
    scenario.duration_s = last.from_s + length_s(&scenario, last, &mut dice);
    faults(&mut scenario, &mut dice);
    scenario
}

fn places(dice: &mut Dice) -> Scenario {
    let replicas = dice.whole(1, 64);
    let routers = if dice.chance(0.6) { 1 } else { dice.whole(2, 8) };
    let executes = dice.one_of(&[
        Executes::Serial,
        Executes::Serial,
        Executes::Parallel,
        Executes::Workers,
        Executes::Shared,
        Executes::Batches,
    ]);
    let limit = dice.whole(1, 1_000) as u32;
    let one_way = dice.between(0.03, 1.0);
    let size = dice.whole(2, 64);
    let step_ms = dice.between(1.0, 100.0);
    Scenario {
        routers,
        replicas,
        limit,
        executes,
        tells: executes == Executes::Serial && dice.chance(0.75),
        workers: dice.whole(1, limit.min(32) as usize),
        speeds: speeds(replicas, dice),
        network_ms: vec![one_way; 3],
        batch_size_max: if executes == Executes::Batches { size } else { 0 },
        batch_window_ms: if dice.chance(0.5) { step_ms * dice.between(0.01, 0.5) } else { 0.0 },
        step_fixed_ms: step_ms,
        step_per_call_ms: step_ms * dice.between(0.001, 0.3),
        step_takes_work: dice.chance(0.5),
        ..Scenario::default()
    }
}

/// Equal ones as often as not.
fn speeds(replicas: usize, dice: &mut Dice) -> Vec<f64> {
    if dice.chance(0.5) {
        return vec![1.0];
    }
    let kinds = dice.whole(2, 6).min(replicas.max(2));
    (0..kinds).map(|_| dice.between(0.1, 1.0)).collect()
}

// === calls ===

fn phases(scenario: &Scenario, dice: &mut Dice) -> Vec<Phase> {
    let count = if dice.chance(0.3) { 1 } else { dice.whole(2, 4) };
    let mut phases: Vec<Phase> = Vec::new();
    for _ in 0..count {
        let from_s = phases.last().map_or(0.0, |last| last.from_s + length_s(scenario, last, dice));
        phases.push(phase(scenario, from_s, dice));
    }
    phases
}

fn phase(scenario: &Scenario, from_s: f64, dice: &mut Dice) -> Phase {
    let kinds = if dice.chance(0.5) { 1 } else { dice.whole(2, 3) };
    let longest = if scenario.executes == Executes::Batches { 300.0 } else { 10_000.0 };
    let mut phase = Phase {
        from_s,
        shape: dice.one_of(&[Shape::Constant, Shape::Exponential, Shape::Lognormal, Shape::Heavy]),
        work_ms: (0..kinds).map(|_| dice.between(1.0, longest)).collect(),
        shares: (0..kinds).map(|_| dice.between(0.05, 1.0)).collect(),
        in_turns: kinds > 1 && dice.chance(0.4),
        blocks: (0..kinds).map(|_| blocks(dice)).collect(),
        drifts_to: if dice.chance(0.2) { dice.between(0.1, 10.0) } else { 1.0 },
        ..Phase::default()
    };
    let capacity_per_s = capacity_per_s(scenario, &phase);
    if dice.chance(0.5) {
        let places = places_at_once(scenario, &phase);
        phase.users = dice.between(1.0, (2.0 * places).clamp(2.0, USERS_MAX)).round() as usize;
    } else {
        phase.rate_per_s = dice.evenly(0.05, 1.2) * capacity_per_s;
        phase.burst = if dice.chance(0.2) { dice.whole(2, 16) } else { 1 };
    }
    phase
}

/// Of an event loop: most calls hold it all the time, or hardly.
fn blocks(dice: &mut Dice) -> f64 {
    match dice.0.below(4) {
        0 | 1 => 1.0,
        2 => 0.0,
        _ => dice.between(0.01, 1.0),
    }
}

/// Calls that all replicas can work on at once.
fn places_at_once(scenario: &Scenario, phase: &Phase) -> f64 {
    let each = match scenario.executes {
        Executes::Serial => {
            let held = phase.mean_of(|kind| phase.work_ms[kind] * phase.blocks[kind]);
            let whole = phase.mean_ms();
            (whole / held.max(whole / f64::from(PARALLEL_MAX))).min(scenario.limit.into())
        }
        Executes::Shared => 1.0,
        Executes::Steps => scenario.steps.running_max as f64,
        Executes::Parallel => f64::from(scenario.limit.min(PARALLEL_MAX)),
        Executes::Workers => scenario.workers as f64,
        Executes::Batches => f64::from(scenario.limit.min(scenario.batch_size_max as u32)),
    };
    each * scenario.replicas as f64
}

fn capacity_per_s(scenario: &Scenario, phase: &Phase) -> f64 {
    let count = scenario.replicas;
    let speed = (0..count).map(|index| scenario.speed(index)).sum::<f64>() / count as f64;
    let work_ms = match scenario.executes {
        Executes::Batches => {
            let each = places_at_once(scenario, phase) / count as f64;
            let work_ms = if scenario.step_takes_work { phase.mean_ms() * 2.0 } else { 0.0 };
            scenario.step_fixed_ms + each * scenario.step_per_call_ms + work_ms
        }
        _ => phase.mean_ms() * phase.drifts_to.max(1.0),
    };
    places_at_once(scenario, phase) * speed / work_ms * 1e3
}

fn length_s(scenario: &Scenario, phase: &Phase, dice: &mut Dice) -> f64 {
    let calls = dice.between(CALLS_MIN, CALLS_MAX);
    if phase.users == 0 {
        return calls / phase.rate_per_s;
    }
    let used = (phase.users as f64 / places_at_once(scenario, phase)).min(1.0);
    calls / (capacity_per_s(scenario, phase) * used)
}

// === what happens ===

fn faults(scenario: &mut Scenario, dice: &mut Dice) {
    let moment = |dice: &mut Dice, scenario: &Scenario| dice.evenly(0.1, 0.9) * scenario.duration_s;
    if dice.chance(0.2) {
        let (one, other) = (moment(dice, scenario), moment(dice, scenario));
        scenario.slow_factor = dice.between(2.0, 20.0);
        (scenario.slow_from_s, scenario.slow_until_s) = (one.min(other), one.max(other));
        scenario.slow_replicas = dice.whole(1, scenario.replicas);
    }
    if scenario.replicas > 1 && dice.chance(0.1) {
        scenario.crash_at_s = moment(dice, scenario);
    }
    if dice.chance(0.2) {
        scenario.cold_ms = scenario.phases[0].mean_ms() * dice.between(1.0, 50.0);
    }
}

/// Draws from a seed.
pub(super) struct Dice(pub(super) SplitMix64);

impl Dice {
    pub(super) fn chance(&mut self, of_one: f64) -> bool {
        uniform(&mut self.0) < of_one
    }

    pub(super) fn evenly(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * uniform(&mut self.0)
    }

    /// Evenly by the logarithm, with three digits.
    pub(super) fn between(&mut self, least: f64, most: f64) -> f64 {
        let drawn = least * (most / least).powf(uniform(&mut self.0));
        let unit = 10_f64.powf(drawn.log10().floor() - 2.0);
        (drawn / unit).round() * unit
    }

    pub(super) fn whole(&mut self, least: usize, most: usize) -> usize {
        let (least, most) = (least as f64, most as f64 + 1.0);
        (least * (most / least).powf(uniform(&mut self.0))).floor().min(most - 1.0) as usize
    }

    pub(super) fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.0.below(these.len() as u32) as usize]
    }
}
