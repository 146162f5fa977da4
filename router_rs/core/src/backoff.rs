//! How long a replica that refused, or could not be reached, is avoided.

use crate::time::Nanos;

/// How long rounds last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackoffRule {
    pub(crate) initial: Nanos,
    /// At least 1.
    pub(crate) multiplier: f64,
    pub(crate) max: Nanos,
}

impl BackoffRule {
    /// The wait after this many earlier rounds.
    pub(crate) fn wait(self, before: u8) -> Nanos {
        let growth = self.multiplier.powi(before.into());
        // A cast of too large a value saturates.
        Nanos((self.initial.0 as f64 * growth) as u64).min(self.max)
    }
}

/// One replica's backoff: `initial × multiplier^(round − 1)`, at most `max`.
///
/// A *round* is one period of avoiding a replica. Failures that arrive during a round belong to
/// calls that were sent before it began: they prove nothing new and do not lengthen it. Otherwise
/// one burst of refusals would jump to the longest wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    /// Rounds since the last success. Saturates, long after the wait has reached its maximum.
    rounds: u8,
    until: Option<Nanos>,
}

impl Backoff {
    /// Records a failure; returns the end of the round when this failure began one.
    pub(crate) fn on_failure(&mut self, rule: BackoffRule, now: Nanos) -> Option<Nanos> {
        if self.is_active() {
            return None;
        }
        let wait = rule.wait(self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.until = Some(now.saturating_add(wait));
        self.until
    }

    /// The round has passed; the count stays, so the next failure waits twice as long.
    pub(crate) fn on_passed(&mut self) {
        self.until = None;
    }

    /// A call succeeded there: the replica need not be avoided, and the next failure starts from
    /// `initial`.
    #[inline]
    pub(crate) fn on_success(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.until.is_some()
    }

    pub(crate) fn until(&self) -> Option<Nanos> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: Nanos = Nanos::from_millis(25);
    const MAX: Nanos = Nanos::from_millis(500);

    fn fail(backoff: &mut Backoff, now: Nanos) -> Option<Nanos> {
        backoff.on_failure(BackoffRule { initial: INITIAL, multiplier: 2.0, max: MAX }, now)
    }

    #[test]
    fn rounds_double_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let mut now = Nanos::ZERO;
        let mut waits = Vec::new();
        for _ in 0..7 {
            let until = fail(&mut backoff, now).expect("a new round");
            waits.push(until.saturating_sub(now).as_millis());
            now = until;
            backoff.on_passed();
        }
        assert_eq!(vec![25, 50, 100, 200, 400, 500, 500], waits);
    }

    #[test]
    fn a_burst_of_failures_counts_once() {
        let mut backoff = Backoff::default();
        assert_eq!(Some(INITIAL), fail(&mut backoff, Nanos::ZERO));
        assert_eq!(None, fail(&mut backoff, Nanos(1)));
        assert_eq!(Some(INITIAL), backoff.until());
    }

    #[test]
    fn a_success_starts_over() {
        let mut backoff = Backoff::default();
        fail(&mut backoff, Nanos::ZERO);
        backoff.on_success();
        assert!(!backoff.is_active());
        assert_eq!(Some(INITIAL), fail(&mut backoff, Nanos::ZERO));
    }

    #[test]
    fn very_many_rounds_do_not_overflow() {
        let mut backoff = Backoff::default();
        for _ in 0..1_000 {
            let rule = BackoffRule { initial: MAX, multiplier: 2.0, max: MAX };
            assert_eq!(Some(MAX), backoff.on_failure(rule, Nanos::ZERO));
            backoff.on_passed();
        }
    }
}
