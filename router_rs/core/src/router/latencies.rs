//! How long the calls of a deployment take: what 95 % of them stay below.

use crate::time::Nanos;

/// Fewer answers say nothing about the slowest twentieth.
const ANSWERS_MIN: u32 = 40;

/// Counts are halved at so many, so that the last few thousand answers decide.
const ANSWERS_MAX: u32 = 4_096;

/// The number of answers after which the limit is computed again.
const REFRESH: u32 = 64;

/// Of two to the power of so many parts of each doubling: limits are exact to an eighth.
const PARTS_LOG2: u32 = 3;

/// How long calls take: counts by the logarithm of the time.
#[derive(Debug)]
pub(super) struct Latencies {
    counts: Vec<u32>,
    total: u32,
    fresh: u32,
    /// 95 % of the answers took less.
    pub(super) late_after: Option<Nanos>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; 64 << PARTS_LOG2], total: 0, fresh: 0, late_after: None }
    }
}

impl Latencies {
    pub(super) fn add(&mut self, took: Nanos) {
        self.counts[bucket(took)] += 1;
        self.total += 1;
        self.fresh += 1;
        if self.total >= ANSWERS_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        if self.total >= ANSWERS_MIN && (self.fresh >= REFRESH || self.late_after.is_none()) {
            self.fresh = 0;
            self.late_after = Some(self.percentile(95));
        }
    }

    fn percentile(&self, percent: u64) -> Nanos {
        let wanted = (u64::from(self.total) * percent).div_ceil(100);
        let mut seen = 0;
        let is_reached = |count: &u32| {
            seen += u64::from(*count);
            seen >= wanted
        };
        self.counts.iter().position(is_reached).map_or(Nanos::MAX, upper_end)
    }
}

/// The index of the count for a time.
fn bucket(took: Nanos) -> usize {
    let nanos = took.0.max(1 << PARTS_LOG2);
    let doublings = nanos.ilog2();
    let part = (nanos >> (doublings - PARTS_LOG2)) & ((1 << PARTS_LOG2) - 1);
    ((doublings << PARTS_LOG2) as usize) | part as usize
}

/// The shortest time that is longer than those of the bucket.
fn upper_end(bucket: usize) -> Nanos {
    let doublings = (bucket >> PARTS_LOG2) as u32;
    let part = (bucket & ((1 << PARTS_LOG2) - 1)) as u64;
    let end = (u128::from((1 << PARTS_LOG2) + part) + 1) << doublings >> PARTS_LOG2;
    Nanos(u64::try_from(end).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_above_its_times_and_not_far_above() {
        for nanos in [8, 9, 15, 16, 17, 1_000, 123_456_789, u64::MAX / 3] {
            let end = upper_end(bucket(Nanos(nanos))).0;
            assert!(nanos < end && end - nanos <= nanos / 8 + 1, "{nanos} {end}");
        }
        assert_eq!(Nanos::MAX, upper_end(bucket(Nanos::MAX)));
    }

    #[test]
    fn the_slowest_twentieth_is_late() {
        let mut latencies = Latencies::default();
        let mut add = |millis, times| {
            for _ in 0..times {
                latencies.add(Nanos::from_millis(millis));
            }
            latencies.late_after.map(Nanos::as_millis)
        };
        assert_eq!(None, add(10, ANSWERS_MIN - 1));
        assert!(matches!(add(10, 1), Some(10..=11)));
        assert!(matches!(add(10, 910), Some(10..=11)));
        assert!(matches!(add(1_000, 40), Some(10..=11)));
        assert!(matches!(add(1_000, 200), Some(1_000..=1_125)));
        // Older answers count less and less.
        assert!(matches!(add(20, 3 * ANSWERS_MAX), Some(20..=22)));
    }
}
