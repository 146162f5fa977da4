//! The events of a run, and its figures.

use router_core::Nanos;

use super::executor::Counts;
use super::scenario::Scenario;

/// How a call ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    /// The last attempt failed.
    Failed,
    QueueFull,
    /// It would have been, or was, too late.
    Late,
    /// The caller left.
    Cancelled,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) offered_at: Nanos,
    pub(crate) ended_at: Nanos,
    pub(crate) end: End,
    pub(crate) attempts: u32,
    /// Where it was last, if it was sent.
    pub(crate) replica: Option<u64>,
    pub(crate) is_long: bool,
}

/// The events in order of time; see [`Log::calls`] for the calls that the figures cover.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) warm_at: Nanos,
    pub(crate) over_at: Nanos,
    pub(crate) records: Vec<Record>,
    /// When which replica was sent a call.
    pub(crate) sends: Vec<(Nanos, u64)>,
    /// When which replica gave an answer other than a refusal of its gate.
    pub(crate) answers: Vec<(Nanos, u64)>,
    pub(crate) refusals: u64,
    /// By replica, from `warm_at` to the last offer: the integral of its calls over time.
    pub(crate) call_seconds: Vec<f64>,
    pub(crate) counts: Vec<Counts>,
    /// The most calls inside one gate.
    pub(crate) gate_max: u32,
    /// The most calls that one router had at one replica.
    pub(crate) in_flight_max: u32,
}

// === impl Log ===

impl Log {
    /// The calls that were offered from the end of the warm-up on.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.offered_at >= self.warm_at)
    }

    /// Calls with this end, warm-up included.
    pub(crate) fn count(&self, end: End) -> usize {
        self.records.iter().filter(|record| record.end == end).count()
    }

    /// Milliseconds from offer to answer, in order of size.
    pub(crate) fn latencies_ms(&self) -> Vec<f64> {
        self.latencies_ms_between(self.warm_at, Nanos::MAX)
    }

    /// Of the calls that were offered in this time.
    pub(crate) fn latencies_ms_between(&self, from: Nanos, until: Nanos) -> Vec<f64> {
        let is_in = |record: &&Record| (from..until).contains(&record.offered_at);
        let done = self.records.iter().filter(is_in).filter(|record| record.end == End::Done);
        let mut latencies: Vec<f64> = done.map(Record::took_ms).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        latencies
    }

    /// Milliseconds from offer to answer of the calls that are not long, in order of size.
    pub(crate) fn short_latencies_ms(&self) -> Vec<f64> {
        let is_short = |record: &&Record| record.end == End::Done && !record.is_long;
        let mut latencies: Vec<f64> = self.calls().filter(is_short).map(Record::took_ms).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        latencies
    }

    /// Answers a second of the calls after the warm-up, in the time in which they were offered.
    pub(crate) fn goodput_per_s(&self) -> f64 {
        let calls: Vec<&Record> = self.calls().collect();
        let done = calls.iter().filter(|record| record.end == End::Done).count();
        let last = calls.last().map_or(self.warm_at, |record| record.offered_at);
        done as f64 / as_seconds(last.saturating_sub(self.warm_at))
    }

    /// The part of the sends from `from` until `until` that `replica` got.
    pub(crate) fn share(&self, replica: u64, from: Nanos, until: Nanos) -> f64 {
        let in_time = self.sends.iter().filter(|(at, _)| (from..until).contains(at));
        let (mut all, mut there) = (0_u32, 0_u32);
        for (_, to) in in_time {
            all += 1;
            there += u32::from(*to == replica);
        }
        f64::from(there) / f64::from(all.max(1))
    }

    /// The part of the sends after the warm-up that each replica got.
    pub(crate) fn shares(&self, replicas: usize) -> Vec<f64> {
        let share = |replica| self.share(replica, self.warm_at, Nanos::MAX);
        (0..replicas as u64).map(share).collect()
    }

    /// Variance over mean of the calls that a replica is sent in a window, the mean over the
    /// replicas: 1 when each call goes anywhere at random, more when routers run after each other.
    pub(crate) fn dispersion(&self, replicas: usize, window: Nanos) -> f64 {
        let until = self.records.last().map_or(Nanos::ZERO, |record| record.offered_at);
        let windows = (until.saturating_sub(self.warm_at).0 / window.0) as usize;
        let mut counts = vec![vec![0.0_f64; windows]; replicas];
        for (at, replica) in &self.sends {
            let index = at.checked_sub(self.warm_at).map(|since| (since.0 / window.0) as usize);
            if let Some(index) = index.filter(|index| *index < windows) {
                counts[*replica as usize][index] += 1.0;
            }
        }
        mean(&counts.iter().map(|counts| variance(counts) / mean(counts)).collect::<Vec<f64>>())
    }

    /// The most calls that a replica had on average, over the mean of all.
    pub(crate) fn imbalance(&self) -> f64 {
        self.call_seconds.iter().copied().fold(0.0, f64::max) / mean(&self.call_seconds)
    }

    /// The part of the calls with a key that found it kept.
    pub(crate) fn hit_share(&self) -> f64 {
        let hits: u64 = self.counts.iter().map(|counts| counts.hits).sum();
        let misses: u64 = self.counts.iter().map(|counts| counts.misses).sum();
        hits as f64 / (hits + misses).max(1) as f64
    }

    /// How much of their limit the replicas used on average, in order of size.
    pub(crate) fn utilisations(&self, scenario: &Scenario) -> Vec<f64> {
        let possible = (scenario.duration_s - scenario.warmup_s) * f64::from(scenario.limit);
        let mut used: Vec<f64> = self.call_seconds.iter().map(|used| used / possible).collect();
        used.sort_unstable_by(f64::total_cmp);
        used
    }

    /// Calls of a step; 0 without batches.
    pub(crate) fn batch_mean(&self) -> f64 {
        let steps: u64 = self.counts.iter().map(|counts| counts.steps).sum();
        let stepped: u64 = self.counts.iter().map(|counts| counts.stepped).sum();
        stepped as f64 / steps.max(1) as f64
    }
}

impl Record {
    pub(crate) fn took_ms(&self) -> f64 {
        self.ended_at.saturating_sub(self.offered_at).0 as f64 / 1e6
    }
}

/// The value below which `of_1000` of 1 000 are, of values in order; 0 of none.
pub(crate) fn quantile(sorted: &[f64], of_1000: usize) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) * of_1000 / 1_000).copied().unwrap_or(0.0)
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let middle = mean(values);
    mean(&values.iter().map(|value| (value - middle).powi(2)).collect::<Vec<f64>>())
}

pub(crate) fn as_seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
