//! The results of a run, as JSON. `benchmarks/run.py` reads the fields by their names.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::options::{Kind, Loop, Plan};
use crate::sampling::Samples;

/// The facts about a run that its samples do not contain.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts {
    pub window_s: f64,
    /// CPU time of this process inside the window.
    pub cpu_s: Option<f64>,
    pub connections_lost: u64,
}

/// Results of one run. Times are milliseconds where they end in `_ms`, sizes are bytes / 10^6
/// where they end in `_mb_per_s`; messages and sizes are those of answers, without prefixes.
#[derive(Debug, Serialize)]
pub struct Report {
    pub target: String,
    pub path: String,
    pub kind: String,
    #[serde(rename = "loop")]
    pub drive: &'static str,
    pub in_flight: Option<usize>,
    pub offered_per_s: Option<f64>,
    pub connections: usize,
    pub connections_lost: u64,
    /// Length of the measurement.
    pub window_s: f64,
    /// Calls that count, right and wrong ones.
    pub requests: u64,
    /// Calls that ended, warm-up included.
    pub requests_total: u64,
    pub ok: u64,
    /// Wrong ones by name: a gRPC status, `bad answer: …`, `transport: …`, `unanswered`.
    pub errors: BTreeMap<String, u64>,
    /// Right answers a second.
    pub requests_per_s: f64,
    pub messages: u64,
    pub messages_per_s: f64,
    pub received_mb_per_s: f64,
    /// Of right answers, from the instant at which the call was due.
    pub latency_ms: Quantiles,
    /// How late the generator itself started calls (0 in a closed loop).
    pub start_lag_ms: Quantiles,
    /// CPU time of the generator inside the window.
    pub cpu_s: Option<f64>,
    /// The same as a share of one core; near 1 the generator is the bottleneck.
    pub cpu_share: Option<f64>,
}

/// Milliseconds; all zero when nothing was recorded.
#[derive(Debug, Serialize)]
pub struct Quantiles {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

impl Report {
    pub fn new(plan: &Plan, samples: &Samples, facts: &RunFacts) -> Self {
        let per_s = |count: f64| {
            if facts.window_s > 0.0 { count / facts.window_s } else { 0.0 }
        };
        let (drive, in_flight, offered_per_s) = match plan.drive {
            Loop::ClosedFor { in_flight, .. } | Loop::ClosedCount { in_flight, .. } => {
                ("closed", Some(in_flight), None)
            }
            Loop::Open { rate_per_s, .. } => ("open", None, Some(rate_per_s)),
        };
        Self {
            target: plan.target.clone(),
            path: plan.call.uri.path().to_owned(),
            kind: kind_name(plan.call.kind).to_owned(),
            drive,
            in_flight,
            offered_per_s,
            connections: plan.connections,
            connections_lost: facts.connections_lost,
            window_s: facts.window_s,
            requests: samples.calls,
            requests_total: samples.calls_total,
            ok: samples.ok,
            errors: samples.errors.clone(),
            requests_per_s: per_s(samples.ok as f64),
            messages: samples.messages,
            messages_per_s: per_s(samples.messages as f64),
            received_mb_per_s: per_s(samples.received_bytes as f64 / 1e6),
            latency_ms: Quantiles::of(&samples.latency_ns),
            start_lag_ms: Quantiles::of(&samples.start_lag_ns),
            cpu_s: facts.cpu_s,
            cpu_share: facts.cpu_s.map(&per_s),
        }
    }

    /// Calls were made, and each one got the right answer.
    pub fn all_right(&self) -> bool {
        self.ok > 0 && self.ok == self.requests
    }
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            min: histogram.min() as f64 / 1e6,
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max() as f64 / 1e6,
        }
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unary => "unary",
        Kind::ServerStreaming => "server-streaming",
        Kind::ClientStreaming => "client-streaming",
        Kind::Bidi => "bidi",
    }
}
