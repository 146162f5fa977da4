//! Bounds the total cost of repeated calls.

use crate::rng::SplitMix64;
use crate::time::Nanos;

/// The budget looks back so many seconds.
const WINDOW_S: usize = 10;

/// Repetitions in a window that are allowed however few calls there are: a mesh with one call a
/// second may repeat each of them, and ten repetitions harm nobody.
const REPETITIONS_MIN: u64 = 10;

/// A pause is up to so many percent longer or shorter (gRPC A6), so that calls which failed
/// together do not come again together.
const JITTER_PERCENT: u32 = 20;

/// How often calls may be repeated: in the last ten seconds, repetitions are at most the share of
/// calls that is configured, or [`REPETITIONS_MIN`] if that is more.
///
/// So replicas that all fail get little more work than the calls themselves, however many attempts
/// each call has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryBudget {
    second: u64,
    calls: Sums,
    repetitions: Sums,
}

/// Counts of the last seconds, and their sum.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    seconds: [u64; WINDOW_S],
    sum: u64,
}

/// The router's state for calls that are sent more than once.
#[derive(Debug)]
pub(super) struct Repetitions {
    pub(super) budget: RetryBudget,
    rng: SplitMix64,
}

impl Repetitions {
    pub(super) fn new(seed: u64) -> Self {
        // Not the generator of the picks: a retry changes no later choice.
        Self { budget: RetryBudget::default(), rng: SplitMix64::new(seed ^ 0x5EED) }
    }

    pub(super) fn jitter(&mut self, pause: Nanos) -> Nanos {
        let percent = 100 - JITTER_PERCENT + self.rng.below(2 * JITTER_PERCENT + 1);
        Nanos(pause.0 / 100).saturating_mul(u64::from(percent))
    }
}

impl RetryBudget {
    #[inline]
    pub(super) fn on_call(&mut self, now: Nanos) {
        let place = self.move_on(now);
        self.calls.add(place);
    }

    /// Takes one repetition, if there is one left.
    pub(super) fn take(&mut self, percent: u8, now: Nanos) -> bool {
        let place = self.move_on(now);
        let share = self.calls.sum.saturating_mul(u64::from(percent)) / 100;
        let is_left = percent > 0 && self.repetitions.sum < share.max(REPETITIONS_MIN);
        if is_left {
            self.repetitions.add(place);
        }
        is_left
    }

    /// Forgets what is too old; time that steps back stays in the last second.
    #[inline]
    fn move_on(&mut self, now: Nanos) -> usize {
        let second = now.0 / Nanos::from_secs(1).0;
        if second > self.second {
            let passed = second - self.second;
            for step in 1..=passed.min(WINDOW_S as u64) {
                let place = ((self.second + step) % WINDOW_S as u64) as usize;
                self.calls.clear(place);
                self.repetitions.clear(place);
            }
            self.second = second;
        }
        (self.second % WINDOW_S as u64) as usize
    }
}

impl Sums {
    #[inline]
    fn add(&mut self, place: usize) {
        self.seconds[place] += 1;
        self.sum += 1;
    }

    fn clear(&mut self, place: usize) {
        self.sum -= std::mem::take(&mut self.seconds[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &mut RetryBudget, now: Nanos) -> usize {
        (0..1_000).take_while(|_| budget.take(20, now)).count()
    }

    #[test]
    fn the_budget_is_a_share_of_the_calls_of_the_last_ten_seconds() {
        let mut budget = RetryBudget::default();
        for _ in 0..500 {
            budget.on_call(Nanos::ZERO);
        }
        let at = |seconds| Nanos::from_secs(seconds);
        assert_eq!(100, taken(&mut budget, at(1)));
        assert_eq!(0, taken(&mut budget, at(9)));
        // The calls are forgotten, the repetitions of the second after are not.
        assert_eq!(0, taken(&mut budget, at(10)));
        assert_eq!(10, taken(&mut budget, at(11)));
        assert_eq!(0, taken(&mut budget, at(5)));
        assert_eq!(10, taken(&mut budget, at(1_000)));
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        let mut budget = RetryBudget::default();
        budget.on_call(Nanos::ZERO);
        assert!(!budget.take(0, Nanos::ZERO));
    }

    #[test]
    fn pauses_differ_by_a_fifth_at_most() {
        let mut repetitions = Repetitions::new(1);
        let pauses: Vec<u64> =
            (0..1_000).map(|_| repetitions.jitter(Nanos::from_millis(100)).as_millis()).collect();
        assert_eq!((Some(&80), Some(&120)), (pauses.iter().min(), pauses.iter().max()));
    }
}
