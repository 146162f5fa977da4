//! What must hold, by scenario: ratios between runs of the same calls.

use std::collections::BTreeSet;

use router_core::{Nanos, PolicyKind};

use super::field::Field;
use super::log::{End, Log, Record, mean, quantile};
use super::oracle::shared_cache_hits;
use super::scenario::{Executes, Scenario, seconds};
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

pub(crate) const BARS: [Bar; 31] = [
    Bar { scenario: "l1_equal_replicas", measure: equal_replicas },
    Bar { scenario: "l2_unequal_replicas", measure: unequal_replicas },
    Bar { scenario: "l3_slow_replica", measure: slow_replica },
    Bar { scenario: "l4_failing_replica", measure: failing_replica },
    Bar { scenario: "l5_overload", measure: overload },
    Bar { scenario: "l5_long_queue", measure: long_queue },
    Bar { scenario: "l5_short_queue", measure: short_queue },
    Bar { scenario: "l6_models", measure: models },
    Bar { scenario: "l6_models_cold", measure: cold_models },
    Bar { scenario: "l6_models_hot", measure: hot_models },
    Bar { scenario: "l7_prefixes", measure: prefixes },
    Bar { scenario: "l7_prefixes_full", measure: waiting_prefixes },
    Bar { scenario: "l7_prefixes_loop", measure: looping_prefixes },
    Bar { scenario: "l7_prefixes_serial", measure: serial_prefixes },
    Bar { scenario: "caches", measure: caches },
    Bar { scenario: "caches_alike", measure: caches_alike },
    Bar { scenario: "caches_serial", measure: caches_serial },
    Bar { scenario: "caches_four_routers", measure: caches_of_four_routers },
    Bar { scenario: "prefixes_unknown", measure: unknown_prefixes },
    Bar { scenario: "l8_batches", measure: batches },
    Bar { scenario: "l10_near_replicas", measure: near_replicas },
    Bar { scenario: "l10_near_overloaded", measure: near_overloaded },
    Bar { scenario: "l10_near_jump", measure: near_jump },
    Bar { scenario: "l11_four_routers", measure: four_routers },
    Bar { scenario: "mixed_streams", measure: mixed_streams },
    Bar { scenario: "mixed_lengths", measure: mixed_lengths },
    Bar { scenario: "equal_shares", measure: equal_shares },
    Bar { scenario: "equal_shares_joined", measure: equal_shares },
    Bar { scenario: "closed_loop_8", measure: closed_loop },
    Bar { scenario: "closed_loop_32", measure: closed_loop },
    Bar { scenario: "six_replicas", measure: six_replicas },
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

fn failing_replica(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let from = seconds(scenario.fails_from_s);
    let failed = ours.answers.iter().filter(|(at, replica)| *at >= from && *replica == 0);
    // A replica avoided before the twentieth answer gets no further call.
    let known_at = failed.map(|(at, _)| *at).nth(19).unwrap_or(from);
    let calls = ours.calls().count() as f64;
    let done = ours.calls().filter(|record| record.end == End::Done).count() as f64;
    vec![
        at_most("share after 20 answers", ours.share(0, known_at, Nanos::MAX), 0.02),
        at_least("calls that succeed", done / calls, 0.999),
        at_most("attempts / calls", ours.sends.len() as f64 / ours.records.len() as f64, 1.2),
    ]
}

fn overload(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let busy = Scenario { load: 0.9, ..scenario.clone() };
    let busy = run(&busy, Rule::Router(policy), seed).latencies_ms();
    let refused = ours.calls().filter(|record| record.end != End::Done);
    let refused: Vec<f64> = refused.map(Record::took_ms).collect();
    vec![
        at_least("goodput / capacity", ours.goodput_per_s() / scenario.capacity_per_s(), 0.95),
        at_most("p99 / p99 at a load of 0.9", p99(&ours.latencies_ms()) / p99(&busy), 2.0),
        at_most("median ms to a refusal", median(&refused), 5.0),
    ]
}

fn long_queue(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let refused = ours.calls().filter(|record| record.end == End::QueueFull);
    let refused: Vec<f64> = refused.map(Record::took_ms).collect();
    let late = ours.count(End::Late) as f64 / ours.records.len() as f64;
    vec![
        at_least("goodput / capacity", ours.goodput_per_s() / scenario.capacity_per_s(), 0.9),
        at_most("calls that are late", late, 0.01),
        at_most("p99 / deadline", p99(&ours.latencies_ms()) / scenario.deadline_ms, 0.95),
        at_most("median ms to a refusal", median(&refused), 5.0),
    ]
}

fn short_queue(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let goodput = |policy, limit, queue_len_max| {
        let scenario = Scenario { limit, queue_len_max, ..scenario.clone() };
        run(&scenario, Rule::Router(policy), seed).goodput_per_s()
    };
    let ratio = |limit, queue_len_max| {
        goodput(policy, limit, queue_len_max) / goodput(PolicyKind::P2c, limit, queue_len_max)
    };
    vec![
        at_least("goodput / that of p2c, no queue, one call each", ratio(1, 0), 0.97),
        at_least("the same, a queue of one, one call each", ratio(1, 1), 0.97),
        at_least("the same, no queue, four calls each", ratio(4, 0), 0.97),
        at_least("the same, a queue of one, four calls each", ratio(4, 1), 0.97),
    ]
}

fn models(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let p2c = run(scenario, Rule::Blind(PolicyKind::P2c), seed);
    let loads = |log: &Log| 1.0 - log.hit_share();
    vec![
        at_most("loads / loads of p2c", loads(&ours) / loads(&p2c), 0.2),
        at_most("most / mean in flight", ours.imbalance(), 1.25),
    ]
}

fn cold_models(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let seeds_rule = run(scenario, Rule::Seeds, seed);
    let loads = |log: &Log| 1.0 - log.hit_share();
    vec![at_most("loads / loads of the seeds' rule", loads(&ours) / loads(&seeds_rule), 0.5)]
}

fn hot_models(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let p2c = run(scenario, Rule::Blind(PolicyKind::P2c), seed);
    let seeds_rule = run(scenario, Rule::Seeds, seed);
    let loads = |log: &Log| 1.0 - log.hit_share();
    let (ours_ms, seeds_ms) = (ours.latencies_ms(), seeds_rule.latencies_ms());
    vec![
        at_most("mean / mean of the seeds' rule", mean(&ours_ms) / mean(&seeds_ms), 1.0),
        at_most("loads / loads of p2c", loads(&ours) / loads(&p2c), 0.01),
    ]
}

fn prefixes(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let hashed = run(scenario, Rule::PureHash, seed);
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_least("hits / hits of pure hashing", ours.hit_share() / hashed.hit_share(), 0.9),
        at_most("most / mean in flight", ours.imbalance(), 1.25),
        at_most("p99 / p99 of p2c", p99(&ours.latencies_ms()) / p99(&p2c), 0.5),
    ]
}

fn waiting_prefixes(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let hashed = run(scenario, Rule::PureHash, seed);
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_least("hits / hits of pure hashing", ours.hit_share() / hashed.hit_share(), 0.7),
        at_most("p99 / p99 of p2c", p99(&ours.latencies_ms()) / p99(&p2c), 0.1),
    ]
}

fn looping_prefixes(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let hashed = run(&without_bound(scenario), Rule::Router(PolicyKind::ConsistentHash), seed);
    vec![
        at_least("hits / hits without a bound", ours.hit_share() / hashed.hit_share(), 1.0),
        at_least("calls a second / those without", rate(&ours) / rate(&hashed), 1.0),
        at_most("most / mean in flight", ours.imbalance(), 1.25),
    ]
}

fn serial_prefixes(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let hashed = run(&without_bound(scenario), Rule::Router(PolicyKind::ConsistentHash), seed);
    vec![
        at_least("calls a second / those without a bound", rate(&ours) / rate(&hashed), 1.1),
        at_most("most / mean in flight", ours.imbalance(), 1.25),
    ]
}

/// Sessions stay where they belong, whatever happens there.
fn without_bound(scenario: &Scenario) -> Scenario {
    Scenario { load_bound: 1_000.0, ..scenario.clone() }
}

fn rate(log: &Log) -> f64 {
    log.goodput_per_s()
}

/// What replicas report, against sessions that are hashed, and against one cache for all.
fn caches(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    cache_figures(scenario, policy, seed, (0.95, 1.0))
}

fn caches_alike(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    cache_figures(scenario, policy, seed, (0.95, 2.0))
}

/// Some entries are popular enough to be worth a second copy, which one cache for all has not.
fn caches_serial(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    cache_figures(scenario, policy, seed, (0.9, 1.0))
}

/// Each knows of the others' calls by what replicas report, a tenth of a second later.
fn caches_of_four_routers(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    cache_figures(scenario, policy, seed, (0.95, 0.95))
}

fn cache_figures(
    scenario: &Scenario,
    policy: PolicyKind,
    seed: u64,
    (hits_min, rate_min): (f64, f64),
) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let by_session = Scenario { tells_keys: false, ..scenario.clone() };
    let hashed = run(&by_session, Rule::Router(PolicyKind::ConsistentHash), seed);
    let shared = shared_cache_hits(scenario, seed, &ours);
    vec![
        at_least("hits / hits of one shared cache", ours.hit_share() / shared, hits_min),
        at_least("calls a second / those of hashing", rate(&ours) / rate(&hashed), rate_min),
    ]
}

fn unknown_prefixes(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_most("mean / mean of p2c", mean(&ours) / mean(&p2c), 1.25),
        at_most("p99 / p99 of p2c", p99(&ours) / p99(&p2c), 1.25),
    ]
}

fn batches(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed);
    let tail = |log: &Log| p99(&log.latencies_ms());
    vec![
        at_least("mean batch / that of p2c", ours.batch_mean() / p2c.batch_mean(), 1.5),
        at_most("p99 / p99 of p2c", tail(&ours) / tail(&p2c), 1.1),
    ]
}

fn near_replicas(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let near: f64 = ours.shares(scenario.on_node).iter().sum();
    vec![at_least("share of the near ones", near, 0.95)]
}

fn near_overloaded(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let anywhere = Scenario { prefer_near: false, ..scenario.clone() };
    let anywhere = run(&anywhere, Rule::Router(policy), seed).latencies_ms();
    vec![at_most("p99 / p99 without preference", p99(&ours) / p99(&anywhere), 1.1)]
}

fn near_jump(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let anywhere = Scenario { prefer_near: false, ..scenario.clone() };
    let anywhere = run(&anywhere, Rule::Router(policy), seed).latencies_ms();
    vec![at_most("p99 / p99 without preference", p99(&ours) / p99(&anywhere), 1.5)]
}

/// Over 300 calls, at several loads, of replicas that work on one call or on many at once.
fn equal_shares(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    const CALLS: f64 = 300.0;
    let mut extremes = (f64::INFINITY, 0.0_f64);
    for (executes, places) in [(Executes::Serial, 1.0), (Executes::Parallel, 100.0)] {
        for load in [0.1, 0.3, 0.5] {
            // So many calls on average at each replica, of a hundred that it may have.
            let mut scenario =
                Scenario { executes, limit: 100, load: load / places, ..scenario.clone() };
            let calls_per_s = scenario.load * scenario.capacity_per_s();
            scenario.duration_s = scenario.warmup_s + CALLS / calls_per_s;
            let shares = run(&scenario, Rule::Router(policy), seed).shares(scenario.replicas);
            for share in shares {
                let of_fair = share * scenario.replicas as f64;
                extremes = (extremes.0.min(of_fair), extremes.1.max(of_fair));
            }
        }
    }
    vec![
        at_least("least share / fair share", extremes.0, 0.7),
        at_most("most share / fair share", extremes.1, 1.3),
    ]
}

fn four_routers(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let one = Scenario { routers: 1, report_age_ms: 0.0, ..scenario.clone() };
    let one = run(&one, Rule::Router(policy), seed).latencies_ms();
    let dispersion = ours.dispersion(scenario.replicas, Nanos::from_millis(200));
    vec![
        at_most("p99 / p99 of one router", p99(&ours.latencies_ms()) / p99(&one), 1.3),
        // A random choice has 1; a higher value means herding.
        at_most("variance / mean of calls in 200 ms", dispersion, 1.0),
    ]
}

fn mixed_streams(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let tail = |log: &Log| p99(&log.short_latencies_ms());
    let tail_of = |policy| tail(&run(scenario, Rule::Router(policy), seed));
    let mut shares = ours.shares(scenario.replicas);
    shares.sort_unstable_by(f64::total_cmp);
    let fair = 1.0 / scenario.replicas as f64;
    vec![
        at_most("p99 of short calls / that of p2c", tail(&ours) / tail_of(PolicyKind::P2c), 1.15),
        at_most("the same / that of least", tail(&ours) / tail_of(PolicyKind::Least), 1.15),
        at_least("least share / fair share", shares[0] / fair, 0.5),
        at_most("most share / fair share", shares[shares.len() - 1] / fair, 1.5),
        // Nearly all that are in flight are streams.
        at_most("most / mean in flight", ours.imbalance(), 1.5),
    ]
}

fn mixed_lengths(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let p2c = run(scenario, Rule::Router(PolicyKind::P2c), seed).latencies_ms();
    vec![
        at_most("mean / mean of p2c", mean(&ours) / mean(&p2c), 1.0),
        at_most("p99 / p99 of p2c", p99(&ours) / p99(&p2c), 1.0),
    ]
}

fn closed_loop(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed);
    let seeds_rule = run(scenario, Rule::Seeds, seed);
    let slower = |of_1000| {
        let of = |log: &Log| quantile(&log.latencies_ms(), of_1000);
        of(&ours) / of(&seeds_rule)
    };
    vec![
        at_least("p25 of utilisation", quantile(&ours.utilisations(scenario), 250), 0.99),
        at_most("p50 / p50 of the seeds' rule", slower(500), 1.0),
        at_most("p99 / p99 of the seeds' rule", slower(990), 1.0),
    ]
}

fn six_replicas(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Vec<Figure> {
    let ours = run(scenario, Rule::Router(policy), seed).latencies_ms();
    let tail_of = |rule| p99(&run(scenario, rule, seed).latencies_ms());
    vec![
        at_most("p99 / p99 of least", p99(&ours) / tail_of(Rule::Router(PolicyKind::Least)), 0.6),
        at_most("p99 / p99 of peak-EWMA", p99(&ours) / tail_of(Rule::Field(Field::PeakEwma)), 1.0),
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
            // Tables have a line for each.
            let names: BTreeSet<_> = figures.iter().map(|figure| figure.name).collect();
            assert_eq!(figures.len(), names.len(), "{} names a figure twice", self.scenario);
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
