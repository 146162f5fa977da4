//! The calls that a seed gives, the same for every system.

use router_core::{Cost, Nanos, SplitMix64};

use super::phases::{Phase, Work};
use super::scenario::{Executes, Scenario, Shape, millis, seconds};
use super::steps::amount;

/// One call, as its caller knows it; `work` only the world knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) router: usize,
    /// At speed 1.
    pub(crate) work: Nanos,
    /// The part of it that holds an event loop.
    pub(crate) blocking: Nanos,
    /// One of the scenario's long calls.
    pub(crate) is_long: bool,
    pub(crate) deadline: Option<Nanos>,
    /// When its caller leaves.
    pub(crate) leaves_at: Option<Nanos>,
    /// The model or the session, if the scenario has any.
    pub(crate) key: Option<u32>,
    /// What its client says that it costs.
    pub(crate) told: Option<Cost>,
    pub(crate) request_bytes: u64,
    /// Its method, by number.
    pub(crate) method: usize,
}

/// Draws calls in the order in which they are offered.
#[derive(Debug)]
pub(crate) struct Traffic {
    scenario: Scenario,
    arrivals: SplitMix64,
    works: SplitMix64,
    /// Of the keys, in per one, added up.
    popularity: Vec<f64>,
    drawn: usize,
}

impl Traffic {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut streams = SplitMix64::new(seed);
        Self {
            arrivals: SplitMix64::new(streams.next_u64()),
            works: SplitMix64::new(streams.next_u64()),
            popularity: popularity(scenario.models.max(scenario.sessions), scenario.zipf),
            drawn: 0,
            scenario: scenario.clone(),
        }
    }

    /// The time to the next call of an open loop.
    pub(crate) fn pause(&mut self, now: Nanos) -> Nanos {
        if let Some(phase) = self.scenario.phase(now) {
            let gaps = phase.burst as f64 / phase.rate_per_s;
            return millis(exponential(&mut self.arrivals) * gaps * 1e3);
        }
        let Scenario { load, jump_at_s, jump_load, .. } = self.scenario;
        let has_jumped = jump_at_s > 0.0 && now >= seconds(jump_at_s);
        let load = if has_jumped { jump_load } else { load };
        let per_ms = load * self.scenario.capacity_per_s() / 1e3;
        millis(exponential(&mut self.arrivals) / per_ms)
    }

    pub(crate) fn call(&mut self, now: Nanos) -> Wants {
        let is_long = self.scenario.long_percent > 0.0
            && uniform(&mut self.works) * 100.0 < self.scenario.long_percent;
        let Work { whole: work, blocking, kind } = self.work(is_long, now);
        let Self { scenario, works: rng, .. } = self;
        let has_deadline = scenario.deadline_ms > 0.0;
        let has_deadline = has_deadline && uniform(rng) * 100.0 < scenario.deadline_percent;
        let deadline = has_deadline.then(|| now.saturating_add(millis(scenario.deadline_ms)));
        let leaves = scenario.cancelled_percent > 0.0;
        let leaves = leaves && uniform(rng) * 100.0 < scenario.cancelled_percent;
        let leaves_at =
            leaves.then(|| now.saturating_add(millis(exponential(rng) * scenario.work_ms)));
        let key = (!self.popularity.is_empty()).then(|| {
            let drawn = uniform(rng);
            self.popularity.partition_point(|sum| *sum < drawn) as u32
        });
        let (told, request_bytes) = self.signs(work);
        let method = if self.scenario.steps.by_method { kind } else { 0 };
        self.drawn += 1;
        let router = self.drawn % self.scenario.routers;
        Wants {
            router,
            work,
            blocking,
            is_long,
            deadline,
            leaves_at,
            key,
            told,
            request_bytes,
            method,
        }
    }

    /// What shows what a call costs: its client's word, its length or nothing.
    fn signs(&mut self, work: Nanos) -> (Option<Cost>, u64) {
        if self.scenario.executes != Executes::Steps {
            return (None, 0);
        }
        let steps = &self.scenario.steps;
        let (cost, drawn) = (steps.cost(work), uniform(&mut self.works));
        let noise = (normal(&mut self.works) / 4.0).exp();
        let bytes = (cost * 64.0 * noise) as u64;
        if drawn < steps.told {
            return (Some(amount(cost)), bytes);
        }
        if drawn < steps.told + steps.sized {
            return (None, bytes);
        }
        (None, (64.0 * 1e4_f64.powf(uniform(&mut self.works))) as u64)
    }

    fn work(&mut self, is_long: bool, now: Nanos) -> Work {
        let Self { scenario, works, drawn, .. } = self;
        if let Some(phase) = scenario.phase(now) {
            return phase.work(*drawn, now, scenario.end_of(phase), works);
        }
        let whole = millis(if is_long { self.long_ms() } else { self.work_ms() });
        Work { whole, blocking: whole, kind: 0 }
    }

    fn long_ms(&mut self) -> f64 {
        let (least, most) = (self.scenario.long_ms[0], self.scenario.long_ms[1]);
        least * (most / least).powf(uniform(&mut self.works))
    }

    fn work_ms(&mut self) -> f64 {
        let Scenario { shape, work_ms: mean, work_sigma: sigma, work_max_ms, .. } = self.scenario;
        let drawn = match shape {
            Shape::Lognormal => {
                mean * (sigma * normal(&mut self.works) - sigma * sigma / 2.0).exp()
            }
            _ => draw(shape, mean, &mut self.works),
        };
        drawn.min(work_max_ms)
    }
}

/// A value with this mean; of the lognormal shape with a deviation of its logarithm of 1.
pub(super) fn draw(shape: Shape, mean: f64, rng: &mut SplitMix64) -> f64 {
    match shape {
        Shape::Constant => mean,
        Shape::Exponential => exponential(rng) * mean,
        Shape::Lognormal => mean * (normal(rng) - 0.5).exp(),
        Shape::Heavy => mean * pareto(rng),
    }
}

/// With mean 1: the exponent is 1.6, and no value is above a hundred.
fn pareto(rng: &mut SplitMix64) -> f64 {
    const EXPONENT: f64 = 1.6;
    const MAX: f64 = 100.0;
    let least = (EXPONENT - 1.0) / EXPONENT;
    // Of a bounded one the mean is less by what lies beyond.
    let most = MAX / least;
    let bounded = (1.0 - most.powf(1.0 - EXPONENT)) / (1.0 - most.powf(-EXPONENT));
    let below = 1.0 - uniform(rng) * (1.0 - most.powf(-EXPONENT));
    least * below.powf(-1.0 / EXPONENT) / bounded
}

impl Scenario {
    /// The phase at `now`; `None` where there are none.
    pub(super) fn phase(&self, now: Nanos) -> Option<&Phase> {
        let begun = self.phases.iter().take_while(|phase| phase.from() <= now);
        begun.last().or(self.phases.first())
    }

    pub(super) fn end_of(&self, phase: &Phase) -> f64 {
        let later = self.phases.iter().find(|other| other.from_s > phase.from_s);
        later.map_or(self.duration_s, |next| next.from_s)
    }
}

/// Zipf's law: key `i` is as popular as `1 / (i + 1)^exponent`.
fn popularity(keys: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).collect();
    let whole: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let mut sums: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight / whole;
            sum
        })
        .collect();
    // The last one gets the rounding error.
    if let Some(last) = sums.last_mut() {
        *last = 1.0;
    }
    sums
}

/// In `0..1`, with 53 random bits.
pub(crate) fn uniform(rng: &mut SplitMix64) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// With mean 1.
pub(crate) fn exponential(rng: &mut SplitMix64) -> f64 {
    -(1.0 - uniform(rng)).ln()
}

/// With mean 0 and deviation 1 (Box and Muller 1958).
fn normal(rng: &mut SplitMix64) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos()
}
