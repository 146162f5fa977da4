//! What must hold, by scenario: ratios between runs of the same calls.

use router_core::{Nanos, PolicyKind};

use super::log::{Log, mean, quantile};
use super::scenario::{Scenario, seconds};
use super::system::Rule;
use super::world::run;

/// One scenario and what a policy must reach in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// The file in `tests/scenarios`.
    pub(crate) scenario: &'static str,
    /// The figures of one seed.
    pub(crate) measure: fn(&Scenario, PolicyKind, u64) -> Vec<Figure>,
}

/// One number that a bar is about; the median over the seeds has to keep the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) const BARS: [Bar; 3] = [
    Bar { scenario: "l1_equal_replicas", measure: equal_replicas },
    Bar { scenario: "l2_unequal_replicas", measure: unequal_replicas },
    Bar { scenario: "l3_slow_replica", measure: slow_replica },
];

// === the bars ===

fn equal_replicas(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let central = run(scenario, Rule::Central, seed).latencies_ms();
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_most("mean / mean of a central queue", mean(&ours) / mean(&central), 1.15),
        at_most("p99 / p99 of p2c", p99(&ours) / p99(&p2c), 0.75),
    ]
}

fn unequal_replicas(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_most("p99 / p99 of p2c", p99(&ours) / p99(&p2c), 0.6),
        at_most("p50 / p50 of p2c", quantile(&ours, 500) / quantile(&p2c, 500), 1.0),
    ]
}

fn slow_replica(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let healthy = Scenario { slow_until_s: 0.0, ..scenario.clone() };
    let ours = run(scenario, Rule::Router(policy), seed);
    let healthy = run(&healthy, Rule::Router(policy), seed);
    let (from, until) = (seconds(scenario.slow_from_s), seconds(scenario.slow_until_s));
    let tail = |log: &Log| quantile(&log.latencies_ms_between(from, until), 999);
    let back = until.saturating_add(Nanos::from_secs(10));
    let fair = 1.0 / scenario.replicas as f64;
    let slow_share = ours.share(0, from.saturating_add(Nanos::from_secs(1)), until);
    vec![
        at_most("share while slow, after a second", slow_share, 0.01),
        at_most("p99.9 / p99.9 without", tail(&ours) / tail(&healthy), 1.5),
        at_least("share 10 s later / fair share", ours.share(0, back, Nanos::MAX) / fair, 0.8),
    ]
}

// === small things ===

fn p99(latencies: &[f64]) -> f64 {
    quantile(latencies, 990)
}

fn at_most(name: &'static str, value: f64, limit: f64) -> Figure {
    Figure { name, value, limit: Limit::AtMost(limit) }
}

fn at_least(name: &'static str, value: f64, limit: f64) -> Figure {
    Figure { name, value, limit: Limit::AtLeast(limit) }
}

impl Bar {
    /// The figures of several seeds, each with its values in the order of the seeds.
    pub(crate) fn over(
        &self,
        policy: PolicyKind,
        seeds: impl Iterator<Item = u64>,
    ) -> Vec<(Figure, Vec<f64>)> {
        let scenario = Scenario::read(self.scenario);
        let mut all: Vec<(Figure, Vec<f64>)> = Vec::new();
        for seed in seeds {
            let figures = (self.measure)(&scenario, policy, seed);
            all.resize_with(figures.len(), || (figures[0], Vec::new()));
            for ((figure, values), of_seed) in all.iter_mut().zip(figures) {
                *figure = Figure { value: 0.0, ..of_seed };
                values.push(of_seed.value);
            }
        }
        for (figure, values) in &mut all {
            figure.value = median(values);
        }
        all
    }
}

impl Figure {
    pub(crate) fn holds(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.value <= limit,
            Limit::AtLeast(limit) => self.value >= limit,
        }
    }
}

/// The middle one in order of size.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
