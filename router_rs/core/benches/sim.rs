//! Plays the scenario files with every rule: `cargo bench -p pyserve-router-core --bench sim`.
//!
//! Prints one JSON object a line for each scenario; `make sim` makes the table of them.
//! `-- --seeds N` plays the seeds 1 to N, `-- --only WORD` the scenarios whose names have it.
#![allow(clippy::print_stdout)] // the figures are the purpose

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::fmt::Write;
use std::thread;

use router_core::PolicyKind;
use simulator::{
    BARS, Bar, End, Executes, Field, Figure, Limit, Log, Rule, Scenario, mean, median, quantile,
    run,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let seeds = after("--seeds").map_or(20, |text| text.parse().expect("a number of seeds"));
    let only = after("--only").unwrap_or_default();
    for bar in BARS.iter().filter(|bar| bar.scenario.contains(&only)) {
        println!("{}", report(bar, seeds));
    }
}

/// One JSON object: the figures of every rule, and what the bar says of every policy.
fn report(bar: &Bar, seeds: u64) -> String {
    let scenario = Scenario::read(bar.scenario);
    let rules = rules(&scenario);
    let mut rows = vec![String::new(); rules.len()];
    let mut bars = vec![String::new(); PolicyKind::ALL.len()];
    let half = rows.len() / 2;
    let (first, second) = rows.split_at_mut(half);
    let play = |rows: &mut [String], rules: &[Rule]| {
        for (row, rule) in rows.iter_mut().zip(rules) {
            *row = row_of(&scenario, *rule, seeds);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(first, &rules[..half]));
        play(second, &rules[half..]);
    });
    let (first, second) = bars.split_at_mut(PolicyKind::ALL.len() / 2);
    let measure = |bars: &mut [String], policies: &[PolicyKind]| {
        for (text, policy) in bars.iter_mut().zip(policies) {
            *text = bar_of(bar, *policy, seeds);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| measure(first, &PolicyKind::ALL[..PolicyKind::ALL.len() / 2]));
        measure(second, &PolicyKind::ALL[PolicyKind::ALL.len() / 2..]);
    });
    let (rows, bars) = (rows.join(","), bars.concat());
    let bars = bars.trim_end_matches(',');
    format!(r#"{{"scenario":"{}","seeds":{seeds},"rules":[{rows}],"bars":[{bars}]}}"#, bar.scenario)
}

fn rules(scenario: &Scenario) -> Vec<Rule> {
    let mut rules: Vec<Rule> = PolicyKind::ALL.into_iter().map(Rule::Router).collect();
    rules.extend(Field::ALL.map(Rule::Field));
    rules.push(Rule::Seeds);
    // It knows who is free and not who fails, and it takes a stream for work.
    if scenario.failing == 0 && scenario.executes != Executes::Workers {
        rules.push(Rule::Central);
    }
    if scenario.models > 0 {
        rules.push(Rule::Blind(PolicyKind::P2c));
    }
    if scenario.sessions > 0 {
        rules.push(Rule::PureHash);
    }
    rules
}

/// Medians over the seeds.
fn row_of(scenario: &Scenario, rule: Rule, seeds: u64) -> String {
    let mut columns: Vec<(&str, Vec<f64>)> = Vec::new();
    for seed in 1..=seeds {
        let log = run(scenario, rule, seed);
        let values = values(scenario, &log);
        columns.resize_with(values.len(), || ("", Vec::new()));
        for ((name, column), (of, value)) in columns.iter_mut().zip(values) {
            *name = of;
            column.push(value);
        }
    }
    let mut row = format!(r#"{{"rule":"{}""#, rule.name());
    for (name, column) in columns {
        write!(row, r#","{name}":{:.4}"#, median(&column)).expect("a string takes all");
    }
    row + "}"
}

fn values(scenario: &Scenario, log: &Log) -> Vec<(&'static str, f64)> {
    let latencies = log.latencies_ms();
    let calls = log.calls().count() as f64;
    let percent = |ends: &[End]| {
        100.0 * log.calls().filter(|record| ends.contains(&record.end)).count() as f64 / calls
    };
    let mut shares = log.shares(scenario.replicas);
    shares.sort_unstable_by(f64::total_cmp);
    let mut values = vec![
        ("mean_ms", mean(&latencies)),
        ("p50_ms", quantile(&latencies, 500)),
        ("p99_ms", quantile(&latencies, 990)),
        ("p999_ms", quantile(&latencies, 999)),
        ("goodput_per_s", log.goodput_per_s()),
        ("refused_percent", percent(&[End::QueueFull, End::Late])),
        ("failed_percent", percent(&[End::Failed])),
        ("share_least_percent", 100.0 * shares[0]),
        ("share_most_percent", 100.0 * shares[shares.len() - 1]),
        ("in_flight_most_over_mean", log.imbalance()),
        ("attempts_per_call", log.sends.len() as f64 / log.records.len() as f64),
    ];
    if scenario.models + scenario.sessions > 0 {
        values.push(("hit_percent", 100.0 * log.hit_share()));
    }
    if scenario.batch_size_max > 0 {
        values.push(("batch_mean", log.batch_mean()));
    }
    if scenario.users > 0 {
        let used = log.utilisations(scenario);
        values.push(("utilisation_p25", quantile(&used, 250)));
        values.push(("utilisation_p50", quantile(&used, 500)));
        values.push(("utilisation_p75", quantile(&used, 750)));
    }
    values
}

/// What the bar says of one policy; each object with a comma after it.
fn bar_of(bar: &Bar, policy: PolicyKind, seeds: u64) -> String {
    let mut text = String::new();
    for (figure, values) in bar.over(policy, 1..=seeds) {
        let (least, most) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
        let (kind, limit) = match figure.limit {
            Limit::AtMost(limit) => ("at_most", limit),
            Limit::AtLeast(limit) => ("at_least", limit),
        };
        let Figure { name, value, .. } = figure;
        let (rule, holds) = (Rule::Router(policy).name(), figure.holds());
        write!(
            text,
            r#"{{"rule":"{rule}","figure":"{name}","median":{value:.4},"least":{least:.4},"most":{most:.4},"{kind}":{limit},"holds":{holds}}},"#,
        )
        .expect("a string takes all");
    }
    text
}
