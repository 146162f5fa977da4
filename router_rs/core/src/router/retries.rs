//! Calls that are sent again: those that did not start, and those that started and may be repeated.

use super::affinity::{Choice, choose};
use super::config::RetryConfig;
use super::fleet::Query;
use super::{
    Decision, Outcome, Refusal, Release, ReleaseCause, Router, State, Ticket, WaiterId, is_past,
};
use crate::membership::ReplicaId;
use crate::time::Nanos;

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

    /// A call that did not start goes to a replica that it has not tried, or parks.
    pub(super) fn send_elsewhere(
        &mut self,
        index: u32,
        replica: ReplicaId,
        now: Nanos,
    ) -> Decision {
        let call = self.calls.at_mut(index);
        if is_past(call.deadline, now) {
            self.measure_refused(index, now);
            self.forget(index);
            self.totals.expired += 1;
            return Decision::Refused(Refusal::Expired);
        }
        let may_hold = self.may_hold(1);
        let call = self.calls.at_mut(index);
        let may_try = call.tried.len() + 1 < usize::from(self.config.refusals_max);
        let choice = if may_try {
            call.tried.push(replica);
            let (wish, query) = (call.wish, call.wish.query(&call.tried, &call.ranked, now));
            let query = Query { may_hold, ..query };
            if wish.has_keys {
                self.choose_by_keys(index, now)
            } else {
                choose(&mut self.fleet, &self.directory, wish, query)
            }
        } else {
            Choice::Nothing
        };
        self.follow(index, choice, now)
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
