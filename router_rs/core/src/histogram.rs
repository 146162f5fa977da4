//! Durations, as counts by fixed bounds.

use crate::time::Nanos;

/// How many bounds there are.
const BOUNDS: usize = 20;

/// Counts of durations by common bounds, so that sums over routers and replicas are sums of counts.
/// Steps of 1, 2.5 and 5 from 50 µs, the time of a call over a socket, to a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Indexed by the first bound that is not below the time; the last counts those above all
    /// bounds.
    counts: [u64; BOUNDS + 1],
    sum: Nanos,
}

impl Histogram {
    /// The upper bounds; each belongs to its bucket.
    pub const BOUNDS: [Nanos; BOUNDS] = [
        Nanos::from_micros(50),
        Nanos::from_micros(100),
        Nanos::from_micros(250),
        Nanos::from_micros(500),
        Nanos::from_millis(1),
        Nanos::from_micros(2_500),
        Nanos::from_millis(5),
        Nanos::from_millis(10),
        Nanos::from_millis(25),
        Nanos::from_millis(50),
        Nanos::from_millis(100),
        Nanos::from_millis(250),
        Nanos::from_millis(500),
        Nanos::from_secs(1),
        Nanos::from_millis(2_500),
        Nanos::from_secs(5),
        Nanos::from_secs(10),
        Nanos::from_secs(20),
        Nanos::from_secs(30),
        Nanos::from_secs(60),
    ];

    /// The index of the count for a time.
    #[inline]
    pub fn bucket(time: Nanos) -> usize {
        Self::BOUNDS.partition_point(|bound| *bound < time)
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, time: Nanos) {
        self.counts[Self::bucket(time)] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// The counts, one more than there are bounds; not cumulative.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all of them.
    pub fn sum(&self) -> Nanos {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow() {
        assert!(Histogram::BOUNDS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_time_is_counted_below_the_first_bound_that_it_does_not_exceed() {
        for (nanos, bucket) in [
            (0, 0),
            (50_000, 0),
            (50_001, 1),
            (1_000_000, 4),
            (1_000_001, 5),
            (60_000_000_000, 19),
            (60_000_000_001, 20),
            (u64::MAX, 20),
        ] {
            let mut histogram = Histogram::default();
            histogram.add(Nanos(nanos));
            assert_eq!(Some(bucket), histogram.counts().iter().position(|count| *count == 1));
            assert_eq!((1, Nanos(nanos)), (histogram.count(), histogram.sum()));
        }
    }

    #[test]
    fn the_sum_never_wraps() {
        let mut histogram = Histogram::default();
        histogram.add(Nanos::MAX);
        histogram.add(Nanos(1));
        assert_eq!((2, Nanos::MAX), (histogram.count(), histogram.sum()));
    }
}
