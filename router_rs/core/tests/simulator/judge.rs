//! Whether a rule is as good as a rival in one workload, chance aside.
//!
//! Both get the same calls at the same times with the same work. A claim, such as "as many answers in
//! this phase", is judged by the differences of as many seeds as it takes: it is broken if a 95 %
//! interval of the mean difference leaves no doubt, so that noise is neither an excuse nor a fault.

use router_core::Nanos;

use super::log::{End, Log, mean, quantile};
use super::scenario::{Scenario, millis, seconds};
use super::system::Rule;
use super::world::run;

/// The part of the rival's answers that must come in a phase, and in each window of it.
const ANSWERS_MIN: f64 = 0.97;
const WINDOW_ANSWERS_MIN: f64 = 0.9;
/// So many times the rival's time is the most.
const TIME_MAX: f64 = 1.1;
/// So long after a change nothing is asked: no replica has said anything of the new calls yet.
const SETTLES: Nanos = Nanos::from_millis(200);
/// A window has at least a second, and at least so many answers of a rival.
const WINDOW: Nanos = Nanos::from_secs(1);
const WINDOW_ANSWERS: f64 = 200.0;
/// After so many seeds without a doubt it holds; after more it is decided by the interval.
const SEEDS_MIN: usize = 3;
const SEEDS: [usize; 3] = [8, 16, 32];

/// One figure of a workload beside a rival's: what is over a bar, in its unit, by seed.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: String,
    /// Of each seed: how far the rule is from breaking the bar. The mean must not be below 0.
    spare: Vec<f64>,
    ours: Vec<f64>,
    rivals: Vec<f64>,
}

/// The result for one workload.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) seeds: usize,
    /// The claims that do not hold, in words.
    pub(crate) broken: Vec<String>,
    /// Over the rival's: the worst phase of each.
    pub(crate) mean_ratio: f64,
    pub(crate) p99_ratio: f64,
    pub(crate) answers_ratio: f64,
}

impl Verdict {
    /// A checker of the simulator, or an assertion of the router, has ended the run.
    pub(crate) fn of_a_panic() -> Self {
        let broken = vec!["the run panicked, see above".to_owned()];
        Self { seeds: 0, broken, mean_ratio: 1.0, p99_ratio: 1.0, answers_ratio: 1.0 }
    }
}

/// Plays the workload under a rule and its rival with as many seeds as it takes to tell.
pub(crate) fn judge(scenario: &Scenario, rules: (Rule, Rule), first_seed: u64) -> Verdict {
    judge_apart(scenario, rules, first_seed, 0)
}

/// The same, where the rival gets calls of other random numbers: their seed is larger by `apart`.
/// With the same rule twice it tells how much of what seems broken is chance.
pub(crate) fn judge_apart(
    scenario: &Scenario,
    rules: (Rule, Rule),
    first_seed: u64,
    apart: u64,
) -> Verdict {
    let mut claims: Vec<Claim> = Vec::new();
    let mut seeds = 0;
    for enough in [SEEDS_MIN].into_iter().chain(SEEDS) {
        while seeds < enough {
            let seed = first_seed.wrapping_add(seeds as u64);
            add_seed(&mut claims, scenario, rules, (seed, seed.wrapping_add(apart)));
            seeds += 1;
        }
        if claims.iter().all(|claim| mean(&claim.spare) >= 0.0) {
            break;
        }
        if seeds > SEEDS_MIN && claims.iter().any(Claim::is_broken) {
            break;
        }
    }
    let broken = claims.iter().filter(|claim| seeds > SEEDS_MIN && claim.is_broken());
    Verdict {
        seeds,
        broken: broken.map(Claim::in_words).collect(),
        mean_ratio: worst(&claims, "mean"),
        p99_ratio: worst(&claims, "p99"),
        answers_ratio: best(&claims, "answers"),
    }
}

fn ratios<'a>(claims: &'a [Claim], name: &'a str) -> impl Iterator<Item = f64> + 'a {
    let of = claims.iter().filter(move |claim| claim.name.contains(name));
    of.map(|claim| mean(&claim.ours) / mean(&claim.rivals).max(1e-9))
}

fn worst(claims: &[Claim], name: &str) -> f64 {
    ratios(claims, name).fold(0.0, f64::max)
}

fn best(claims: &[Claim], name: &str) -> f64 {
    ratios(claims, name).fold(f64::INFINITY, f64::min)
}

fn add_seed(
    claims: &mut Vec<Claim>,
    scenario: &Scenario,
    (rule, rival): (Rule, Rule),
    seeds: (u64, u64),
) {
    let ours = run(scenario, rule, seeds.0);
    let log = run(scenario, rival, seeds.1);
    for (index, phase) in scenario.phases.iter().enumerate() {
        let (from, until) = (phase.from(), seconds(scenario.end_of(phase)));
        let part = Part { ours: &ours, rival: &log, from, until };
        for (name, bar, ours, rivals) in part.figures() {
            let is_more_better = bar < 1.0;
            let spare = if is_more_better { ours - bar * rivals } else { bar * rivals - ours };
            claim(claims, format!("phase {index}, {name}, bar {bar}")).add(spare, ours, rivals);
        }
    }
}

/// The claim of this name, of which the first seeds may have had none: windows differ by one.
fn claim(claims: &mut Vec<Claim>, name: String) -> &mut Claim {
    let place = claims.iter().position(|claim| claim.name == name).unwrap_or_else(|| {
        claims.push(Claim { name, spare: vec![], ours: vec![], rivals: vec![] });
        claims.len() - 1
    });
    &mut claims[place]
}

/// One phase of two runs.
struct Part<'a> {
    ours: &'a Log,
    rival: &'a Log,
    from: Nanos,
    until: Nanos,
}

impl Part<'_> {
    fn figures(&self) -> Vec<(String, f64, f64, f64)> {
        let mut figures = Vec::new();
        let settled = self.from.saturating_add(SETTLES);
        let answers =
            |from, until| (answers(self.ours, from, until), answers(self.rival, from, until));
        let (ours, rivals) = answers(settled, self.until);
        // Of both: who looks only where the rival has many finds those seeds in which it was lucky.
        let most = ours.max(rivals);
        if most >= WINDOW_ANSWERS {
            figures.push(("answers".to_owned(), ANSWERS_MIN, ours, rivals));
            let length = self.until.saturating_sub(settled);
            let window = (length.0 as f64 * WINDOW_ANSWERS / most).max(WINDOW.0 as f64);
            // Of equal length, none shorter than that.
            let count = (length.0 as f64 / window).floor().max(1.0);
            for index in 0..count as u64 {
                let edge = |index: u64| {
                    settled.saturating_add(millis(length.0 as f64 / 1e6 * index as f64 / count))
                };
                let (ours, rivals) = answers(edge(index), edge(index + 1));
                let name = format!("window {index}");
                figures.push((name, WINDOW_ANSWERS_MIN, ours, rivals));
            }
        }
        let (ours, rivals) = (self.times(self.ours), self.times(self.rival));
        let most = ours.len().max(rivals.len()) as f64;
        if most >= WINDOW_ANSWERS && !ours.is_empty() && !rivals.is_empty() {
            figures.push(("mean".to_owned(), TIME_MAX, mean(&ours), mean(&rivals)));
            let p99 = |times: &[f64]| quantile(times, 990);
            figures.push(("p99".to_owned(), TIME_MAX, p99(&ours), p99(&rivals)));
        }
        figures
    }

    fn times(&self, log: &Log) -> Vec<f64> {
        log.latencies_ms_between(self.from.saturating_add(SETTLES), self.until)
    }
}

fn answers(log: &Log, from: Nanos, until: Nanos) -> f64 {
    let is_in = |at: Nanos| (from..until).contains(&at);
    let done = log.records.iter().filter(|record| record.end == End::Done);
    done.filter(|record| is_in(record.ended_at)).count() as f64
}

impl Claim {
    fn add(&mut self, spare: f64, ours: f64, rivals: f64) {
        self.spare.push(spare);
        self.ours.push(ours);
        self.rivals.push(rivals);
    }

    /// The whole of an interval of 95 % is below 0.
    fn is_broken(&self) -> bool {
        let count = self.spare.len() as f64;
        if count < SEEDS[0] as f64 {
            return false;
        }
        let middle = mean(&self.spare);
        let squares: f64 = self.spare.iter().map(|spare| (spare - middle).powi(2)).sum();
        // Student's factor of 97.5 %, to a hundredth from 8 seeds on.
        let student = 1.96 + 2.4 / (count - 1.0) + 2.8 / (count - 1.0).powi(2);
        middle + student * (squares / (count - 1.0) / count).sqrt() < 0.0
    }

    fn in_words(&self) -> String {
        let (ours, rivals) = (mean(&self.ours), mean(&self.rivals));
        format!("{}: {ours:.2} beside {rivals:.2}, {:.3} ×", self.name, ours / rivals.max(1e-9))
    }
}

/// The simplest workload that still breaks a claim.
pub(crate) fn minimised(scenario: &Scenario, rules: (Rule, Rule), first_seed: u64) -> Scenario {
    let mut least = scenario.clone();
    let breaks = |scenario: &Scenario| !judge(scenario, rules, first_seed).broken.is_empty();
    loop {
        let Some(simpler) = simpler(&least).into_iter().find(&breaks) else { return least };
        least = simpler;
    }
}

/// Each with one thing less.
fn simpler(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = scenario.clone();
        change(&mut changed);
        if changed.to_string() != scenario.to_string() {
            all.push(changed);
        }
    };
    with(&|world| world.crash_at_s = 0.0);
    with(&|world| world.cold_ms = 0.0);
    with(&|world| {
        (world.slow_factor, world.slow_from_s, world.slow_until_s) = (1.0, 0.0, 0.0);
        world.slow_replicas = 1;
    });
    with(&|world| world.speeds = vec![1.0]);
    with(&|world| world.routers = 1);
    with(&|world| world.replicas = (world.replicas / 2).max(1));
    with(&|world| {
        if world.phases.len() > 1 {
            world.duration_s = world.phases.pop().map_or(world.duration_s, |last| last.from_s);
        }
    });
    with(&|world| {
        if world.phases.len() > 1 {
            let gone = world.phases[1].from_s;
            world.phases.remove(0);
            world.duration_s -= gone;
            world.slow_from_s = (world.slow_from_s - gone).max(0.0);
            world.slow_until_s = (world.slow_until_s - gone).max(0.0);
            world.crash_at_s = (world.crash_at_s - gone).max(0.0);
            world.phases.iter_mut().for_each(|phase| phase.from_s -= gone);
        }
    });
    for index in 0..scenario.phases.len() {
        with(&|world| world.phases[index].drifts_to = 1.0);
        with(&|world| world.phases[index].burst = 1);
        with(&|world| {
            let phase = &mut world.phases[index];
            phase.work_ms.truncate(1);
            phase.shares.truncate(1);
            phase.blocks.truncate(1);
            phase.in_turns = false;
        });
    }
    all
}
