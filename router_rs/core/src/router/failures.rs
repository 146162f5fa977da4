//! Conclusions about a replica from the ends of calls, and from silence.

use super::{Outcome, Release, ReleaseCause, Router};
use crate::learnt::Departure;
use crate::membership::ReplicaId;
use crate::time::Nanos;

/// Nobody is told to stay away for longer.
const PUSHBACK_MAX: Nanos = Nanos::from_secs(60);

impl Router {
    /// `replica` gives no sign of life: it gets nothing new until [`Router::heard`]. Calls there
    /// go on. Of no member, or said before: ignored.
    pub fn silent(&mut self, replica: ReplicaId, now: Nanos, released: &mut Vec<Release>) {
        self.set_silent(replica, true, now, released);
    }

    /// `replica` has given a sign of life, after [`Router::silent`] or not.
    pub fn heard(&mut self, replica: ReplicaId, now: Nanos, released: &mut Vec<Release>) {
        self.set_silent(replica, false, now, released);
    }

    fn set_silent(
        &mut self,
        replica: ReplicaId,
        is_silent: bool,
        now: Nanos,
        released: &mut Vec<Release>,
    ) {
        let Some(slot) = self.fleet.member(replica) else {
            return;
        };
        self.settle(now, released);
        if self.fleet.set_silent(slot, is_silent, now) {
            self.wake_all();
        }
        self.release(ReleaseCause::Life, now, released);
    }

    /// When a call that was refused may well find a place: after all that wait now, at the pace of
    /// [`Router::predicted_wait`]. At least `backoff_initial`, at most a minute; `backoff_max` before
    /// any call has ended.
    pub fn pushback(&self) -> Nanos {
        match self.wait_behind(self.queue.len() as u32) {
            Some(wait) => wait.min(PUSHBACK_MAX).max(self.config.backoff_initial),
            None => self.config.backoff_max,
        }
    }

    /// Takes note of how a call ended at the replica in `slot`, and after which time.
    pub(super) fn record(
        &mut self,
        slot: u32,
        outcome: Outcome,
        latency: Nanos,
        now: Nanos,
    ) -> Departure {
        self.judge(slot, outcome, now);
        let rule = self.backoff_rule();
        match outcome {
            Outcome::Done { load, is_failure, .. } => {
                self.fleet.report(slot, load, now);
                self.fleet.on_success(slot);
                self.fleet.on_reached(slot);
                if is_failure {
                    return Departure::Failed;
                }
                if let Some(processing) = load.and_then(|load| load.processing) {
                    self.fleet.on_turnaround(slot, latency, processing);
                }
                return Departure::Answered;
            }
            Outcome::Refused { load } => {
                self.totals.refusals += 1;
                self.fleet.report(slot, load, now);
                self.fleet.on_failure(slot, rule, now);
                self.fleet.on_reached(slot);
            }
            Outcome::ConnectFailed => {
                self.totals.connect_failures += 1;
                self.fleet.on_failure(slot, rule, now);
                self.fleet.on_unreached(slot, now);
            }
            Outcome::Failed => {
                self.totals.failed += 1;
                self.fleet.on_reached(slot);
                return Departure::Failed;
            }
            Outcome::Late => {
                self.totals.late += 1;
                self.late_at = Some(now);
            }
            Outcome::Cancelled => self.totals.cancelled += 1,
        }
        Departure::Other
    }

    /// Judges the replica's health by the outcome. A refusal, or a failed connection, does not
    /// count: the backoff handles those.
    #[inline]
    fn judge(&mut self, slot: u32, outcome: Outcome, now: Nanos) {
        let config = &self.config.ejection;
        match outcome {
            Outcome::Done { is_failure: false, .. } => self.fleet.on_good(slot, config, now),
            Outcome::Done { is_failure: true, .. } | Outcome::Failed | Outcome::Late => {
                let is_ejected = self.fleet.on_bad(slot, config, now);
                self.totals.ejections += u64::from(is_ejected);
            }
            Outcome::Refused { .. } | Outcome::ConnectFailed | Outcome::Cancelled => {}
        }
    }
}
