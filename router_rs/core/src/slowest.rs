//! Determines which calls are among the slowest recently.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Nanos;

/// Recently means this interval and the one before. Arbitrary: long enough to compare a few calls a
/// second, short enough that an incident is soon forgotten.
const INTERVAL: Nanos = Nanos::from_secs(300);

/// Finds the calls that are among the slowest of an interval.
///
/// The very first calls all count. Each later interval begins with half of the limit with which the
/// last one ended, so that it does not fill up with ordinary calls, and adapts when all calls
/// become faster.
#[derive(Debug)]
pub struct Slowest {
    count: usize,
    /// Those of this interval; at most `count`.
    times: BinaryHeap<Reverse<Nanos>>,
    /// The time that a call must exceed while there are fewer.
    floor: Nanos,
    ends_at: Nanos,
}

impl Slowest {
    /// Finds up to `count` of them.
    pub fn new(count: usize) -> Self {
        Self { count, times: BinaryHeap::new(), floor: Nanos::ZERO, ends_at: Nanos::MAX }
    }

    /// The time that a call must exceed to be one of them; the longest time if none may.
    pub fn limit(&self) -> Nanos {
        match self.times.peek() {
            _ if self.count == 0 => Nanos::MAX,
            Some(Reverse(least)) if self.times.len() == self.count => *least,
            _ => self.floor,
        }
    }

    /// When the limit must be checked again, however long calls take.
    pub fn ends_at(&self) -> Nanos {
        self.ends_at
    }

    /// A call that took this long has ended; returns whether it is one of them.
    pub fn add(&mut self, took: Nanos, now: Nanos) -> bool {
        if self.ends_at == Nanos::MAX {
            self.ends_at = now.saturating_add(INTERVAL);
        }
        if now >= self.ends_at {
            self.floor = Nanos(self.limit().0 / 2);
            self.times.clear();
            self.ends_at = now.saturating_add(INTERVAL);
        }
        if took <= self.limit() {
            return false;
        }
        if self.times.len() == self.count {
            self.times.pop();
        }
        self.times.push(Reverse(took));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1_000);

    fn added(slowest: &mut Slowest, times: impl IntoIterator<Item = u64>) -> usize {
        times.into_iter().filter(|took| slowest.add(Nanos(*took), NOW)).count()
    }

    #[test]
    fn the_first_are_among_them_and_then_only_slower_ones() {
        let mut slowest = Slowest::new(3);
        assert_eq!(3, added(&mut slowest, [5, 1, 9]));
        assert_eq!(Nanos(1), slowest.limit());
        assert_eq!(0, added(&mut slowest, [1, 0, 1]));
        assert_eq!(1, added(&mut slowest, [6, 5]), "5 is there already");
        assert_eq!(Nanos(5), slowest.limit());
    }

    #[test]
    fn the_slowest_of_many_are_found_and_few_others() {
        let mut slowest = Slowest::new(100);
        let mut numbers = crate::rng::SplitMix64::new(7);
        let times: Vec<u64> = (0..100_000).map(|_| numbers.next_u64()).collect();
        let mut sorted = times.clone();
        sorted.sort_unstable_by_key(|took| Reverse(*took));
        let found: Vec<u64> =
            times.into_iter().filter(|took| slowest.add(Nanos(*took), NOW)).collect();
        assert!(sorted[..100].iter().all(|took| found.contains(took)));
        // A hundred, and another hundred for each factor of e in the number of calls.
        assert!(found.len() < 1_000, "{}", found.len());
    }

    #[test]
    fn what_was_slow_once_is_forgotten() {
        let mut slowest = Slowest::new(2);
        slowest.add(Nanos(1_000), NOW);
        slowest.add(Nanos(1_000), NOW);
        let mut now = NOW;
        let mut intervals = 0;
        while !slowest.add(Nanos(100), now) {
            now = slowest.ends_at();
            intervals += 1;
        }
        assert_eq!(4, intervals);
        assert_eq!(Nanos(62), slowest.limit());
    }

    #[test]
    fn of_none_there_are_none() {
        let mut slowest = Slowest::new(0);
        assert_eq!((0, Nanos::MAX), (added(&mut slowest, [u64::MAX, 1]), slowest.limit()));
    }
}
