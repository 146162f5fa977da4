//! Limits the rate of the work of little use that one connection may cause: a burst, then a rate
//! per second. A connection that exceeds it is not read until it has earned what it has spent,
//! which delays nobody else. A connection that goes on like that for a while is asked to close.

use std::time::{Duration, Instant};

/// The size of a burst: 4 096 PINGs, or as many cancelled requests. Arbitrary: far beyond what a
/// client needs, 3 ms of a thread.
const POINTS_MAX: u64 = 16 * 1024;

/// The rate: 1 000 PINGs or 4 000 tiny pieces of DATA a second, which take the thread a few
/// milliseconds. Arbitrary.
const POINTS_PER_S: u64 = 4000;

/// The limit for debt from frames that no legitimate client sends. A client that has waited for its
/// thread as long as this takes to earn, and still goes on, is treated as an attacker. 10 s.
const EXCESS_POINTS_MAX: u64 = 10 * POINTS_PER_S;

/// The limit for a connection in debt that does nothing useful. It is treated as an attacker too: a
/// client that has gone may have left behind so many bytes that it takes minutes to read them and
/// find the end. Arbitrary: most of the half minute in which its calls must end.
const OWING_MAX: Duration = Duration::from_secs(20);

/// The points of one connection.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// The points left to spend; negative in debt.
    points: i64,
    counted: Instant,
    /// Idle points spent in debt since it last recovered.
    excess_points: u64,
    /// Since when it has been in debt; `None`: it has recovered, or earned something since.
    owing_since: Option<Instant>,
}

/// The consequence for a connection that has spent points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Goes on.
    Fine,
    /// Waits until then.
    Late(Instant),
    /// Must be closed.
    TooMuch,
}

// === impl RateLimiter ===

impl RateLimiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { points: POINTS_MAX as i64, counted: now, excess_points: 0, owing_since: None }
    }

    /// `earned`: by useful work since the last call. `idle_points`: the part of `points` that no
    /// legitimate client causes.
    pub(crate) fn spend(
        &mut self,
        points: u64,
        idle_points: u64,
        earned: u64,
        now: Instant,
    ) -> Verdict {
        if earned > 0 {
            self.owing_since = None;
        }
        let passed_ms = now.saturating_duration_since(self.counted).as_millis() as u64;
        let by_time = passed_ms.saturating_mul(POINTS_PER_S) / 1000;
        // Only whole milliseconds count; the remainder counts the next time.
        self.counted += Duration::from_millis(passed_ms);
        let earned = i64::try_from(by_time.saturating_add(earned)).unwrap_or(i64::MAX);
        self.points = self.points.saturating_add(earned).min(POINTS_MAX as i64);
        // Half of the points are needed to recover: since timers are late, a connection always
        // earns a bit more than its debt.
        if self.points > POINTS_MAX as i64 / 2 {
            self.excess_points = 0;
            self.owing_since = None;
        }
        self.points -= points as i64;
        if self.points >= 0 {
            return Verdict::Fine;
        }
        self.excess_points += idle_points;
        let owing_since = *self.owing_since.get_or_insert(now);
        let owing = now.saturating_duration_since(owing_since);
        if self.excess_points > EXCESS_POINTS_MAX || owing > OWING_MAX {
            return Verdict::TooMuch;
        }
        let debt_ms = self.points.unsigned_abs() * 1000 / POINTS_PER_S;
        // A wait shorter than a timer's resolution is skipped.
        Verdict::Late(now + Duration::from_millis(debt_ms.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: u64 = 2000;

    /// Floods as fast as allowed for this long; returns the points taken, and the last verdict.
    fn flood(seconds: u64, is_idle: bool, earned: u64) -> (u64, Verdict) {
        let begun = Instant::now();
        let (mut rate_limiter, mut now, mut taken) = (RateLimiter::new(begun), begun, 0);
        loop {
            let idle_points = if is_idle { BATCH } else { 0 };
            let verdict = rate_limiter.spend(BATCH, idle_points, earned, now);
            taken += BATCH;
            match verdict {
                Verdict::Fine => now += Duration::from_millis(1),
                Verdict::Late(until) => now = until,
                Verdict::TooMuch => return (taken, verdict),
            }
            if now > begun + Duration::from_secs(seconds) {
                return (taken, verdict);
            }
        }
    }

    #[test]
    fn a_flood_is_taken_at_the_rate_that_is_allowed() {
        let (taken, verdict) = flood(15, false, 0);
        let allowed = POINTS_MAX + 15 * POINTS_PER_S;
        assert!(taken.abs_diff(allowed) <= 2 * BATCH, "{taken} of {allowed}");
        assert_ne!(Verdict::TooMuch, verdict);
    }

    #[test]
    fn a_flood_without_excuse_ends_after_a_while() {
        let (taken, verdict) = flood(60, true, 0);
        assert_eq!(Verdict::TooMuch, verdict);
        assert!(taken <= POINTS_MAX + EXCESS_POINTS_MAX + 2 * BATCH, "{taken}");
    }

    #[test]
    fn a_flood_with_an_excuse_ends_too_if_nothing_comes_of_it() {
        let (taken, verdict) = flood(60, false, 0);
        assert_eq!(Verdict::TooMuch, verdict);
        let allowed = POINTS_MAX + OWING_MAX.as_secs() * POINTS_PER_S;
        assert!(taken.abs_diff(allowed) <= 3 * BATCH, "{taken} of {allowed}");
        // A client that does some useful work, if little, may go on.
        assert_ne!(Verdict::TooMuch, flood(60, false, 1).1);
    }

    #[test]
    fn useful_work_pays_for_it() {
        let (taken, verdict) = flood(10, true, BATCH);
        assert_eq!(Verdict::Fine, verdict);
        assert!(taken > 9000 * BATCH, "{taken}");
    }

    #[test]
    fn a_burst_now_and_then_is_fine_for_ever() {
        let begun = Instant::now();
        let mut rate_limiter = RateLimiter::new(begun);
        let pause = Duration::from_millis(POINTS_MAX * 1000 / POINTS_PER_S);
        for round in 0..100 {
            let now = begun + pause * round;
            assert_eq!(Verdict::Fine, rate_limiter.spend(POINTS_MAX, POINTS_MAX, 0, now));
        }
    }
}
