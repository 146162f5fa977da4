//! Calls that started and are sent again, and what all repetitions together may cost.

use super::{Decision, Outcome, Refusal, Release, ReleaseCause, Router, State, Ticket, WaiterId};
use crate::rng::SplitMix64;
use crate::time::Nanos;

/// How often a call that may be repeated is sent, and how much that may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// How often one call is sent at most; 1: calls that started are not sent again.
    pub attempts_max: u8,
    /// Repetitions (and hedges) in percent of the calls offered, 0 to 100; 0: none at all.
    pub budget_percent: u8,
}

impl Default for RetryConfig {
    /// Off; with the usual budget of a fifth when it is switched on (Finagle, Linkerd).
    fn default() -> Self {
        Self { attempts_max: 1, budget_percent: 20 }
    }
}

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
pub(super) struct Budget {
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

/// What a router keeps for calls that are sent more than once.
#[derive(Debug)]
pub(super) struct Repetitions {
    pub(super) budget: Budget,
    rng: SplitMix64,
}

impl Repetitions {
    pub(super) fn new(seed: u64) -> Self {
        // Not the generator of the picks: a retry changes no later choice.
        Self { budget: Budget::default(), rng: SplitMix64::new(seed ^ 0x5EED) }
    }

    fn jitter(&mut self, pause: Nanos) -> Nanos {
        let percent = 100 - JITTER_PERCENT + self.rng.below(2 * JITTER_PERCENT + 1);
        Nanos(pause.0 / 100).saturating_mul(u64::from(percent))
    }
}

impl Budget {
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

impl Router {
    /// Sends a call that started, and that is safe to repeat, once more.
    ///
    /// Frees its place. The call pauses for `pushback`, as the replica wants it, or else for the
    /// backoff that belongs to its attempt, with jitter; then it goes to a replica that it has not
    /// tried, if one has room. [`Refusal::Spent`] when its attempts or the budget are spent, its
    /// deadline would pass before, or as many calls wait as may: the call is over then, with this
    /// outcome. The ticket ends here in any case.
    ///
    /// An unknown ticket is treated as in [`Router::reoffer`].
    pub fn retry(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        pushback: Option<Nanos>,
        now: Nanos,
        released: &mut Vec<Release>,
    ) -> Decision {
        let Some((index, slot)) = self.find_sent(ticket) else {
            return Decision::Refused(Refusal::Expired);
        };
        let pause = pushback.unwrap_or_else(|| self.pause(index));
        let until = now.saturating_add(pause);
        if !self.may_retry(index, until, now) {
            self.totals.retries_refused += 1;
            self.complete(ticket, outcome, now, released);
            return Decision::Refused(Refusal::Spent);
        }
        self.totals.retries += 1;
        self.calls.rename(index);
        let replica = self.fleet.id(slot);
        self.settle(now, released);
        self.end(index, slot, outcome, now);
        let call = self.calls.at_mut(index);
        call.repeats += 1;
        call.tried.push(replica);
        call.state = State::Parked;
        call.waits_since = now;
        self.callers.enter(call.caller);
        self.queue.pause(index, call.turn, call.deadline, until);
        self.release(ReleaseCause::Completion, now, released);
        Decision::Parked(WaiterId(self.calls.key_at(index)))
    }

    fn may_retry(&mut self, index: u32, until: Nanos, now: Nanos) -> bool {
        let RetryConfig { attempts_max, budget_percent } = self.config.retries;
        let call = self.calls.at_mut(index);
        let has_attempts = call.repeats < attempts_max.saturating_sub(1);
        let is_in_time = call.deadline.is_none_or(|deadline| until < deadline);
        has_attempts
            && is_in_time
            && !self.is_queue_full()
            && self.repetitions.budget.take(budget_percent, now)
    }

    /// How long the call waits before its next attempt.
    fn pause(&mut self, index: u32) -> Nanos {
        let pause = self.backoff_rule().wait(self.calls.at_mut(index).repeats);
        self.repetitions.jitter(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &mut Budget, now: Nanos) -> usize {
        (0..1_000).take_while(|_| budget.take(20, now)).count()
    }

    #[test]
    fn the_budget_is_a_share_of_the_calls_of_the_last_ten_seconds() {
        let mut budget = Budget::default();
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
        let mut budget = Budget::default();
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
