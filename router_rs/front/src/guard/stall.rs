//! Notices a client that keeps an exchange waiting: for too long, or for longer than it may while
//! others want its place.
//!
//! A client may keep an exchange waiting for as long as its credit of time lasts. The credit starts
//! with a delay that networks cause now and then. It shrinks while the client is waited for, and
//! grows with the bytes that the client moves, at a rate that nearly every network has.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use router_io::Alarm;

/// The credit a client starts with, and the most it may have. Arbitrary: a lost packet costs about
/// as much as the first, a slow mobile link that changes its cell as much as the second.
const CREDIT: Duration = Duration::from_millis(200);
const CREDIT_MAX: Duration = Duration::from_secs(1);

/// The bytes that earn a second. Arbitrary: a modem of 1998 had half of it.
const BYTES_PER_S: u64 = 16 * 1024;

/// How often a client whose credit is used up is checked. Arbitrary: where many are slow, it bounds
/// how long others wait for a place.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs from the moment when the exchange begins to wait for its client until either side moves.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    credit: Duration,
    since: Option<Instant>,
    alarm: Option<Alarm>,
    is_slow: bool,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, credit: CREDIT, since: None, alarm: None, is_slow: false }
    }

    /// The exchange starts to wait for the client.
    pub(crate) fn on_wait(&mut self) {
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            self.set_alarm(now, self.credit);
        }
    }

    /// The client has moved this much, or the exchange no longer waits for it.
    pub(crate) fn on_move(&mut self, bytes: usize) {
        let Some(since) = self.since.take() else { return };
        self.alarm = None;
        self.credit = credit_after(self.credit, since.elapsed(), bytes);
        self.is_slow &= self.credit.is_zero();
    }

    /// Whether its credit is used up; known after a poll.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Ready when the client has been waited for up to the limit.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (Some(since), Some(alarm)) = (self.since, &mut self.alarm) else {
                return Poll::Pending;
            };
            if alarm.poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now - since >= self.limit {
                return Poll::Ready(());
            }
            self.is_slow |= now - since >= self.credit;
            self.set_alarm(now, LOOK_INTERVAL);
        }
    }

    /// Fires after `wait`, or earlier at the limit.
    fn set_alarm(&mut self, now: Instant, wait: Duration) {
        let since = self.since.unwrap_or(now);
        let limit = since.checked_add(self.limit);
        // A time beyond what a clock can count means no limit.
        self.alarm = Some(Alarm::at(limit.map_or(now + wait, |limit| limit.min(now + wait))));
    }
}

/// The credit left when the client has moved `bytes` after waiting for `waited`.
fn credit_after(credit: Duration, waited: Duration, bytes: usize) -> Duration {
    let earned = Duration::from_micros(bytes as u64 * 1_000_000 / BYTES_PER_S);
    (credit.saturating_sub(waited) + earned).min(CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The credit left to a client that moves `bytes` every `interval_ms`, a hundred times.
    fn credit_at(bytes: usize, interval_ms: u64) -> Duration {
        let interval = Duration::from_millis(interval_ms);
        (0..100).fold(CREDIT, |credit, _| credit_after(credit, interval, bytes))
    }

    #[test]
    fn a_trickle_uses_the_credit_up() {
        assert!(credit_at(1, 50) < Duration::from_millis(1));
        assert!(credit_at(1, 1) < CREDIT);
        assert!(credit_at(100, 1000) < Duration::from_millis(10));
    }

    #[test]
    fn a_slow_network_that_moves_keeps_it() {
        assert_eq!(CREDIT_MAX, credit_at(1400, 60));
        assert_eq!(CREDIT_MAX, credit_at(64 * 1024, 900));
    }
}
