//! A second place for a call whose answer is late.
//!
//! Most answers of a slow moment come soon from another replica (Dean and Barroso, "The tail at
//! scale", 2013). A call is late when it takes longer than 95 % of the others; below 80 % load and
//! inside the budget of repetitions, it gets a second place, and the first answer counts.

use super::{Assignment, Outcome, Router, State, Ticket};
use crate::slab::index_of;
use crate::time::Nanos;

impl Router {
    /// After how long a call that may be repeated should ask for [`Router::hedge`]; `None`: not at
    /// all, because hedging is off, nothing is learnt yet, or the replicas have enough to do.
    pub fn hedge_after(&self) -> Option<Nanos> {
        if !self.config.hedging || self.is_busy() {
            return None;
        }
        self.latencies.late_after
    }

    /// A second place, at another replica, for a call whose answer is late. `None` when it has one
    /// already, no other replica has room, or the budget is spent. Calls with a model get none,
    /// since another replica might have to load it.
    ///
    /// The new ticket counts as a call of its own; both are completed, the loser as cancelled.
    pub fn hedge(&mut self, ticket: Ticket, now: Nanos) -> Option<Assignment> {
        let State::Sent { slot } = self.calls.get(ticket.0)?.state else { return None };
        let first = self.fleet.id(slot);
        let call = self.calls.at_mut(index_of(ticket.0));
        let (turn, deadline, wish) = (call.turn, call.deadline, call.wish);
        let offered_at = call.offered_at;
        if call.is_hedged || wish.model.is_some() || !self.config.hedging || self.is_busy() {
            return None;
        }
        let slot = self.fleet.pick(wish.query(&[first], &[], now))?;
        if !self.repetitions.budget.take(self.config.retries.budget_percent, now) {
            return None;
        }
        self.calls.at_mut(index_of(ticket.0)).is_hedged = true;
        let (key, second) = self.calls.occupy();
        second.turn = turn;
        second.deadline = deadline;
        second.wish = wish;
        second.tried.clear();
        second.ranked.clear();
        second.repeats = 0;
        second.is_hedged = true;
        second.offered_at = offered_at;
        self.totals.offered += 1;
        self.totals.hedges += 1;
        Some(self.send(index_of(key), slot, now))
    }

    /// Learns how long a call took. Of the loser of two, at least how long it would have taken: or
    /// else the slow ones would be missing, and ever more calls would be late.
    #[inline]
    pub(super) fn learn_latency(&mut self, index: u32, outcome: Outcome, now: Nanos) {
        if !self.config.hedging {
            return;
        }
        let call = self.calls.at_mut(index);
        let counts = match outcome {
            Outcome::Done { is_failure: false, first_message_at: None, .. } => true,
            Outcome::Cancelled => call.is_hedged,
            _ => false,
        };
        if counts {
            self.latencies.add(now.saturating_sub(call.sent_at));
        }
    }

    /// Calls wait, or the replicas that take calls have more than 80 % of what they may have.
    fn is_busy(&self) -> bool {
        if self.queue.len() > 0 {
            return true;
        }
        let (mut taken, mut room) = (0, 0);
        for (_, replica) in self.fleet.iter() {
            if !replica.is_member || !replica.health.is_in() {
                continue;
            }
            let reported = replica.reported.map_or(0, |load| load.in_flight);
            taken += u64::from(replica.in_flight.max(reported));
            room += u64::from(replica.capacity);
        }
        taken * 5 > room * 4
    }
}
