//! Finished calls worth keeping, for people: each call's details, its route, and its times.
//!
//! A call is judged at its end: failed, asked for by its client, slow, or sampled by its trace.
//! Records wait in a bounded queue until a reader takes them. Other calls cause no allocation and
//! no lock; only a few numbers are noted on the way ([`Journal`]).

mod journal;
mod kept_for;
mod over;
mod record;
mod sampler;

pub(super) use journal::{Journal, Why};
pub use kept_for::KeptFor;
pub(super) use over::Over;
pub use record::{AttemptRecord, CallRecord, TraceRecord, unix_now};

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use router_core::{Nanos, Slowest};
use router_io::BriefMutex;

use sampler::Sampler;

/// The number of records that wait to be taken; beyond it the oldest are dropped. A few seconds of
/// one ingress's records, about 4 MiB.
const WAITING_MAX: usize = 4096;

/// The number of sampled records kept for people who look at calls: the latest. With as many as of
/// the others, each would be kept until its memory has left every cache, which costs the calls that
/// follow.
const LOOKED_AT_MAX: usize = 512;

/// How many calls a second are recorded as failed, and how many as slow. In an overload all
/// refusals look alike, and recording them takes time that is needed elsewhere.
const KEPT_PER_SECOND_MAX: u64 = 1000;

/// How many sampled calls a second are explained. An explanation looks at every replica under the
/// router's lock, and clients decide how many of their calls are sampled.
const EXPLAINED_PER_SECOND_MAX: u64 = 100;

/// See the module. Shared by all calls of a table.
#[derive(Debug)]
pub struct CallRecords {
    sampler: Sampler,
    keeps_all: AtomicBool,
    slow: Slow,
    failures: RateLimit,
    slow_ones: RateLimit,
    explanations: RateLimit,
    waiting: BriefMutex<Waiting>,
    recorded: AtomicU64,
    dropped: AtomicU64,
    without_spans: AtomicU64,
}

/// The records that have not been taken yet, the oldest first in each queue.
#[derive(Debug, Default)]
struct Waiting {
    /// Those recorded only because they are sampled.
    sampled: VecDeque<Arc<CallRecord>>,
    /// In a separate queue, so that a mesh with many traces does not drop its failures sooner.
    others: VecDeque<Arc<CallRecord>>,
    /// All sampled records once more, to create their spans from.
    unsent: VecDeque<Arc<CallRecord>>,
}

/// Decides which calls are slow; the part that each call reads is outside the lock.
#[derive(Debug)]
struct Slow {
    limit: AtomicU64,
    ends_at: AtomicU64,
    slowest: BriefMutex<Slowest>,
}

/// The limit per second.
#[derive(Debug, Default)]
struct RateLimit {
    /// The second, and its count so far: twenty bits.
    second_and_count: AtomicU64,
}

/// Counts of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStats {
    pub recorded: u64,
    /// Records that were not taken in time, or exceeded the limit per second.
    pub dropped: u64,
    pub waiting: u64,
    /// Sampled calls whose spans were not created in time.
    pub without_spans: u64,
}

// === impl CallRecords ===

impl CallRecords {
    /// `slowest`: how many of the slowest recent calls are recorded. `samples_roots`: calls that
    /// come without a trace may begin one.
    pub fn new(sampling_ratio: Option<f64>, slowest: usize, samples_roots: bool) -> Self {
        Self {
            sampler: Sampler::new(sampling_ratio, samples_roots),
            keeps_all: AtomicBool::new(false),
            slow: Slow::new(slowest),
            failures: RateLimit::default(),
            slow_ones: RateLimit::default(),
            explanations: RateLimit::default(),
            waiting: BriefMutex::default(),
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            without_spans: AtomicU64::new(0),
        }
    }

    /// Sets the part of the calls without a trace that is sampled from now on; `None`: no call at
    /// all, whatever its caller does.
    pub fn set_sampling_ratio(&self, ratio: Option<f64>) {
        self.sampler.set_ratio(ratio);
    }

    /// Sets whether every call is recorded from now on.
    pub fn set_keeps_all(&self, keeps_all: bool) {
        self.keeps_all.store(keeps_all, Ordering::Relaxed);
    }

    /// Takes up to `limit`, the oldest first.
    pub fn take(&self, limit: usize) -> Vec<Arc<CallRecord>> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.pop()).take(limit).collect()
    }

    /// Takes up to `limit` sampled ones for their spans, the oldest first; `take` returns them too.
    pub fn take_unsent(&self, limit: usize) -> Vec<Arc<CallRecord>> {
        let mut waiting = self.waiting.lock();
        let count = limit.min(waiting.unsent.len());
        waiting.unsent.drain(..count).collect()
    }

    pub fn stats(&self) -> RecordStats {
        let waiting = self.waiting.lock();
        RecordStats {
            recorded: self.recorded.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            waiting: (waiting.sampled.len() + waiting.others.len()) as u64,
            without_spans: self.without_spans.load(Ordering::Relaxed),
        }
    }

    /// Whether a call is recorded, and why. `slowness` is how long it took to be answered, or to
    /// begin a stream; `anyway`: the reason to record it even if it is ordinary.
    #[inline]
    fn judge(
        &self,
        has_failed: bool,
        slowness: Nanos,
        anyway: Option<KeptFor>,
        now: Nanos,
    ) -> Option<KeptFor> {
        if has_failed {
            if self.failures.take(KEPT_PER_SECOND_MAX, now) {
                return Some(KeptFor::Failed);
            }
            self.dropped.fetch_add(u64::from(anyway.is_none()), Ordering::Relaxed);
        } else if anyway != Some(KeptFor::Asked)
            && self.slow.is_slow(slowness, now)
            && self.slow_ones.take(KEPT_PER_SECOND_MAX, now)
        {
            return Some(KeptFor::Slow);
        }
        anyway.or_else(|| self.keeps_all.load(Ordering::Relaxed).then_some(KeptFor::All))
    }

    fn keep(&self, record: CallRecord) {
        let record = Arc::new(record);
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        let Waiting { sampled, others, unsent } = &mut *waiting;
        // All sampled records must have spans; for people, the latest are enough.
        let spanless =
            if record.is_sampled { push(unsent, Arc::clone(&record), WAITING_MAX) } else { None };
        let (forgotten, dropped) = if record.kept_for == KeptFor::Sampled {
            (push(sampled, record, LOOKED_AT_MAX), None)
        } else {
            (None, push(others, record, WAITING_MAX))
        };
        drop(waiting); // Before what is freed.
        self.without_spans.fetch_add(u64::from(spanless.is_some()), Ordering::Relaxed);
        self.dropped.fetch_add(u64::from(dropped.is_some()), Ordering::Relaxed);
        drop(forgotten);
    }
}

// === impl Waiting ===

impl Waiting {
    /// The one that ended first.
    fn pop(&mut self) -> Option<Arc<CallRecord>> {
        let is_sampled = match (self.sampled.front(), self.others.front()) {
            (Some(sampled), Some(other)) => sampled.end_unix() <= other.end_unix(),
            (sampled, _) => sampled.is_some(),
        };
        if is_sampled { self.sampled.pop_front() } else { self.others.pop_front() }
    }
}

/// Adds a record, and returns the oldest where that makes too many.
fn push(
    waiting: &mut VecDeque<Arc<CallRecord>>,
    record: Arc<CallRecord>,
    count_max: usize,
) -> Option<Arc<CallRecord>> {
    let oldest = if waiting.len() < count_max { None } else { waiting.pop_front() };
    waiting.push_back(record);
    oldest
}

// === impl Slow, RateLimit ===

impl Slow {
    fn new(count: usize) -> Self {
        let slowest = Slowest::new(count);
        Self {
            limit: AtomicU64::new(slowest.limit().0),
            ends_at: AtomicU64::new(slowest.ends_at().0),
            slowest: BriefMutex::new(slowest),
        }
    }

    #[inline]
    fn is_slow(&self, took: Nanos, now: Nanos) -> bool {
        let may_be = took.0 > self.limit.load(Ordering::Relaxed)
            || now.0 >= self.ends_at.load(Ordering::Relaxed);
        may_be && self.add(took, now)
    }

    #[cold]
    fn add(&self, took: Nanos, now: Nanos) -> bool {
        let mut slowest = self.slowest.lock();
        let is_slow = slowest.add(took, now);
        self.limit.store(slowest.limit().0, Ordering::Relaxed);
        self.ends_at.store(slowest.ends_at().0, Ordering::Relaxed);
        is_slow
    }
}

impl RateLimit {
    const COUNT_BITS: u32 = 20;

    fn take(&self, count_max: u64, now: Nanos) -> bool {
        let second = now.0 / Nanos::from_secs(1).0;
        let taken =
            self.second_and_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                let is_same = before >> Self::COUNT_BITS == second;
                let count = if is_same { before & ((1 << Self::COUNT_BITS) - 1) } else { 0 };
                (count < count_max).then_some((second << Self::COUNT_BITS) | (count + 1))
            });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::record::tests::record_of;
    use super::*;

    const NOW: Nanos = Nanos::from_secs(3_000_000);

    #[test]
    fn what_nobody_takes_gives_way_to_what_is_newer() {
        let records = CallRecords::new(None, 0, false);
        for number in 0..WAITING_MAX + 10 {
            records.keep(record_of(&number.to_string()));
        }
        let stats = records.stats();
        let all = (WAITING_MAX + 10) as u64;
        assert_eq!((all, 10, WAITING_MAX as u64), (stats.recorded, stats.dropped, stats.waiting));
        let taken: Vec<String> =
            records.take(2).iter().map(|record| record.request_id.clone()).collect();
        assert_eq!(["10", "11"], taken[..]);
        assert_eq!(WAITING_MAX - 2, records.take(usize::MAX).len());
        assert!(records.take(1).is_empty());
    }

    #[test]
    fn sampled_calls_are_taken_for_their_spans_and_to_be_looked_at() {
        let records = CallRecords::new(Some(1.0), 0, true);
        let ended_at = |id: &str, second: u64| CallRecord {
            start_unix: Nanos::from_secs(second),
            ..record_of(id)
        };
        let sampled = |id: &str, second| CallRecord {
            is_sampled: true,
            kept_for: KeptFor::Sampled,
            ..ended_at(id, second)
        };
        records.keep(sampled("a", 1));
        records.keep(ended_at("b", 2));
        records.keep(sampled("c", 3));
        records.keep(ended_at("d", 4));
        let ids = |taken: Vec<Arc<CallRecord>>| -> String {
            taken.iter().map(|record| record.request_id.as_str()).collect()
        };
        assert_eq!("a", ids(records.take_unsent(1)));
        assert_eq!("abc", ids(records.take(3)));
        assert_eq!("c", ids(records.take_unsent(9)));
        assert_eq!(("d", ""), (&*ids(records.take(3)), &*ids(records.take_unsent(9))));
    }

    #[test]
    fn many_sampled_calls_push_no_failure_out() {
        let records = CallRecords::new(Some(1.0), 0, true);
        // Sampled too, as all are where every call is traced.
        let failed = CallRecord { kept_for: KeptFor::Failed, ..record_of("failed") };
        records.keep(CallRecord { is_sampled: true, ..failed });
        for _ in 0..WAITING_MAX + 10 {
            let kept_for = KeptFor::Sampled;
            records.keep(CallRecord { is_sampled: true, kept_for, ..record_of("sampled") });
        }
        let stats = records.stats();
        assert_eq!((0, 11), (stats.dropped, stats.without_spans));
        let taken = records.take(usize::MAX);
        assert!(taken.iter().any(|record| record.request_id == "failed"));
        assert_eq!(1 + LOOKED_AT_MAX, taken.len());
        assert_eq!(WAITING_MAX, records.take_unsent(usize::MAX).len());
    }

    #[test]
    fn a_call_that_is_kept_anyway_is_kept_as_what_is_rarer() {
        let records = CallRecords::new(Some(1.0), 0, true);
        for anyway in [KeptFor::Sampled, KeptFor::Asked] {
            let judged = |has_failed| records.judge(has_failed, Nanos(1), Some(anyway), NOW);
            assert_eq!(Some(KeptFor::Failed), judged(true));
            assert_eq!(Some(anyway), judged(false));
        }
        let sampled = Some(KeptFor::Sampled);
        let kept = (0..2_000).filter_map(|_| records.judge(true, Nanos(1), sampled, NOW)).count();
        assert_eq!(2_000, kept);
        assert_eq!(0, records.stats().dropped, "what is kept anyway is not lost");
    }

    #[test]
    fn failures_and_slow_calls_are_rate_limited_by_the_second() {
        let records = CallRecords::new(None, 10, false);
        let kept = |now: Nanos| {
            (0..2_000)
                .filter(|_| records.judge(true, Nanos(1), None, now) == Some(KeptFor::Failed))
                .count()
        };
        assert_eq!(1_000, kept(NOW));
        assert_eq!(1_000, records.stats().dropped);
        assert_eq!(0, kept(NOW.saturating_add(Nanos::from_millis(999))));
        assert_eq!(1_000, kept(NOW.saturating_add(Nanos::from_secs(1))));
        assert_eq!(Some(KeptFor::Slow), records.judge(false, Nanos(1), None, NOW));
    }

    #[test]
    fn a_rate_limit_is_that_of_its_second() {
        let limit = RateLimit::default();
        let taken = |now| (0..200).filter(|_| limit.take(100, now)).count();
        assert_eq!((100, 0), (taken(NOW), taken(NOW)));
        assert_eq!(100, taken(NOW.saturating_add(Nanos::from_secs(1))));
    }

    #[test]
    fn ordinary_calls_are_kept_while_all_are() {
        let records = CallRecords::new(None, 1, false);
        assert_eq!(Some(KeptFor::Slow), records.judge(false, Nanos(9), None, NOW));
        assert_eq!(None, records.judge(false, Nanos(9), None, NOW));
        records.set_keeps_all(true);
        assert_eq!(Some(KeptFor::All), records.judge(false, Nanos(9), None, NOW));
        assert_eq!(Some(KeptFor::Slow), records.judge(false, Nanos(10), None, NOW));
    }
}
