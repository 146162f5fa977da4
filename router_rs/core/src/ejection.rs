//! Ejects replicas that fail calls, or give no sign of life, for a while.
//!
//! Two rules eject: a number of failures in a row, and a failure share far above that of the
//! others. Both compare: behaviour that all replicas share is the fault of the calls, and ejects
//! none. An ejected replica comes back slowly: one call at a time, until enough in a row have
//! succeeded.

use crate::time::Nanos;

/// When a replica is ejected, for how long, and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionConfig {
    /// Failures in a row that eject a replica; 0: none is ejected.
    pub fall: u32,
    /// Calls in a row that must succeed, one at a time, before the replica is treated like others
    /// again.
    pub rise: u32,
    /// How long the first ejection lasts; each further one in a row lasts twice as long. Failure
    /// shares are those of the last one to two intervals.
    pub interval: Nanos,
    /// The percentage of members that may be ejected at once, 0 to 100; of two or more, one always
    /// may.
    pub ejected_percent_max: u8,
}

impl Default for EjectionConfig {
    /// Failures count as in Envoy, but up to half of the fleet may be ejected, not a tenth: model
    /// fleets are small.
    fn default() -> Self {
        Self { fall: 5, rise: 2, interval: Nanos::from_secs(5), ejected_percent_max: 50 }
    }
}

/// Doublings of the interval at most: 5 s become five minutes, as long as Envoy's longest.
const DOUBLINGS_MAX: u8 = 6;

/// The number of calls needed on both sides before shares are compared.
const CALLS_MIN: u64 = 20;

/// A failure share that exceeds the others' by this much ejects, if chance does not explain it;
/// below, a replica is worth more than the calls that it fails.
const SHARE_MARGIN: f64 = 0.3;

/// Squared standard errors (of the difference of two proportions) that chance explains. Every
/// failure is a test, so this is far out: 4 standard errors.
const CHANCE_SQUARED: f64 = 16.0;

/// Answers of one or all replicas in the current window and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    window: u64,
    current: Answers,
    before: Answers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) all: u64,
    pub(crate) failed: u64,
}

/// Whether one replica is in, ejected, or on its way back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    standing: Standing,
    failures_in_row: u32,
    tally: Tally,
    /// Ejections without a good period between them.
    ejections: u8,
    /// When the last ejection ended, and how long it was.
    returned_at: Nanos,
    was_out: Nanos,
    /// It does not answer PINGs or handshakes.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    In,
    Out {
        until: Nanos,
    },
    /// One call at a time.
    Returning {
        successes: u32,
        has_call: bool,
    },
}

impl Health {
    /// Whether it may get a call now, as far as its health is concerned.
    #[inline]
    pub(crate) fn takes(&self) -> bool {
        let is_taking = match self.standing {
            Standing::In => true,
            Standing::Out { .. } => false,
            Standing::Returning { has_call, .. } => !has_call,
        };
        is_taking && !self.is_silent
    }

    /// Neither ejected nor silent.
    pub(crate) fn is_in(&self) -> bool {
        !self.is_silent && !matches!(self.standing, Standing::Out { .. })
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    pub(crate) fn ejected_until(&self) -> Option<Nanos> {
        match self.standing {
            Standing::Out { until } => Some(until),
            Standing::In | Standing::Returning { .. } => None,
        }
    }

    /// Sets whether it is silent; earlier failures are forgiven when it responds again.
    pub(crate) fn set_silent(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
        self.failures_in_row = 0;
    }

    #[inline]
    pub(crate) fn on_sent(&mut self) {
        if let Standing::Returning { has_call, .. } = &mut self.standing {
            *has_call = true;
        }
    }

    #[inline]
    pub(crate) fn on_ended(&mut self) {
        if let Standing::Returning { has_call, .. } = &mut self.standing {
            *has_call = false;
        }
    }

    #[inline]
    pub(crate) fn on_success(&mut self, window: u64, rise: u32) {
        self.tally.add(window, false);
        self.failures_in_row = 0;
        if let Standing::Returning { successes, .. } = &mut self.standing {
            *successes += 1;
            if *successes >= rise {
                self.standing = Standing::In;
            }
        }
    }

    /// A call failed there; returns whether the replica should be ejected. `all` are the answers of
    /// the whole fleet, this one included.
    pub(crate) fn on_failure(&mut self, window: u64, all: Answers, fall: u32) -> bool {
        self.tally.add(window, true);
        if self.is_silent || fall == 0 {
            return false;
        }
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        let own = self.tally.answers(window);
        let others = Answers {
            all: all.all.saturating_sub(own.all),
            failed: all.failed.saturating_sub(own.failed),
        };
        match self.standing {
            Standing::Out { .. } => false,
            Standing::Returning { .. } => true,
            Standing::In => {
                let is_common = others.all > 0 && others.failed * 2 >= others.all;
                (self.failures_in_row >= fall && !is_common) || is_far_worse(own, others)
            }
        }
    }

    /// Ejects it; returns until when.
    pub(crate) fn eject(&mut self, interval: Nanos, now: Nanos) -> Nanos {
        let good_while = self.returned_at.saturating_add(self.was_out.saturating_mul(2));
        if now >= good_while {
            self.ejections = 0;
        }
        self.was_out = interval.saturating_mul(1 << self.ejections.min(DOUBLINGS_MAX));
        self.ejections = self.ejections.saturating_add(1);
        let until = now.saturating_add(self.was_out);
        self.standing = Standing::Out { until };
        until
    }

    /// The ejection is over: it gets one call at a time.
    pub(crate) fn come_back(&mut self, now: Nanos) {
        self.returned_at = now;
        self.failures_in_row = 0;
        self.standing = Standing::Returning { successes: 0, has_call: false };
    }

    /// No better replica is left: it gets calls like any other.
    pub(crate) fn pardon(&mut self, now: Nanos) {
        self.come_back(now);
        self.standing = Standing::In;
    }
}

impl Tally {
    /// `window` counts up; data older than the previous window is dropped.
    #[inline]
    pub(crate) fn add(&mut self, window: u64, is_failure: bool) {
        if window != self.window {
            self.before = if window == self.window + 1 { self.current } else { Answers::default() };
            self.current = Answers::default();
            self.window = window;
        }
        self.current.all += 1;
        self.current.failed += u64::from(is_failure);
    }

    /// In this window and the one before it.
    pub(crate) fn answers(&self, window: u64) -> Answers {
        let (current, before) = match window.saturating_sub(self.window) {
            0 => (self.current, self.before),
            1 => (Answers::default(), self.current),
            _ => Default::default(),
        };
        Answers { all: current.all + before.all, failed: current.failed + before.failed }
    }
}

/// Compares two failure shares, by their difference and its statistical significance (the
/// two-proportion z-test).
fn is_far_worse(own: Answers, others: Answers) -> bool {
    if own.all < CALLS_MIN || others.all < CALLS_MIN {
        return false;
    }
    let share = |answers: Answers| answers.failed as f64 / answers.all as f64;
    let difference = share(own) - share(others);
    let pooled = (own.failed + others.failed) as f64 / (own.all + others.all) as f64;
    let variance = pooled * (1.0 - pooled) * (1.0 / own.all as f64 + 1.0 / others.all as f64);
    difference >= SHARE_MARGIN && difference * difference >= CHANCE_SQUARED * variance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: bool, own: (u64, u64), others: (u64, u64)) {
        let answers = |(failed, all)| Answers { all, failed };
        assert_eq!(expected, is_far_worse(answers(own), answers(others)), "{own:?} {others:?}");
    }

    #[test]
    fn a_share_ejects_when_it_is_far_above_the_others_and_no_chance() {
        check(true, (10, 20), (0, 60));
        check(true, (40, 100), (5, 300));
        check(false, (9, 19), (0, 60));
        check(false, (10, 20), (0, 19));
        check(false, (20, 100), (0, 300));
        check(false, (12, 20), (6, 20));
        check(false, (50, 100), (150, 300));
        check(false, (100, 100), (300, 300));
    }

    #[test]
    fn a_tally_forgets_what_is_older_than_two_windows() {
        let mut tally = Tally::default();
        tally.add(0, true);
        tally.add(1, false);
        assert_eq!(Answers { all: 2, failed: 1 }, tally.answers(1));
        assert_eq!(Answers { all: 1, failed: 0 }, tally.answers(2));
        assert_eq!(Answers::default(), tally.answers(3));
        tally.add(3, true);
        assert_eq!(Answers { all: 1, failed: 1 }, tally.answers(3));
    }

    #[test]
    fn each_ejection_lasts_twice_as_long_until_a_good_while_has_passed() {
        let interval = Nanos::from_secs(5);
        let mut health = Health::default();
        let mut now = Nanos::ZERO;
        let mut lengths_s = Vec::new();
        for _ in 0..9 {
            let until = health.eject(interval, now);
            lengths_s.push(until.saturating_sub(now).as_millis() / 1_000);
            now = until;
            health.come_back(now);
        }
        assert_eq!(vec![5, 10, 20, 40, 80, 160, 320, 320, 320], lengths_s);
        now = now.saturating_add(Nanos::from_secs(640));
        assert_eq!(now.saturating_add(interval), health.eject(interval, now));
    }
}
