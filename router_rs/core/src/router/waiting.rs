//! The calls that wait: how they park, wake and leave.

use super::affinity::{Choice, Wish, choose};
use super::fleet::{Fleet, Query};
use super::model_directory::{Model, ModelDirectory};
use super::{
    Call, Decision, Offer, Outcome, Refusal, Release, ReleaseCause, Router, State, WaiterId,
};
use crate::cost::Cost;
use crate::learnt::Departure;
use crate::queue::{HORIZON, Turn};
use crate::time::Nanos;

/// Fewer completions say too little of the pace to refuse calls for it. Arbitrary.
const LEARNT_COMPLETIONS: u64 = 64;
/// When the last of fewer calls is sent, is too uncertain to refuse one. Arbitrary: of eight calls
/// that end at random, the time varies by a third.
const AHEAD_MIN: u32 = 8;

/// A late call indicates an overload for this many times the remaining time of the next one.
const LATE_WEIGHS: u64 = 16;

/// A call whose model is there goes before one that would have it loaded, unless it came so much
/// later.
const HIT_OVERTAKES_MAX: Nanos = HORIZON;

/// So many of the calls that wait are looked at, for one that is at home where there is room.
/// Arbitrary: with thirty replicas it is found in two of three cases.
const HOME_SEARCH: usize = 32;
/// A call goes before one that is not at home there, unless it came later by more than so many
/// calls take. Arbitrary: what a call of a known session saves is a part of one.
const HOME_OVERTAKES_MAX: f64 = 8.0;

/// Between two departures, before one was seen. Arbitrary.
const GAP_UNKNOWN_NS: f64 = 10e6;

impl Router {
    pub(super) fn park(&mut self, index: u32, choice: Choice, now: Nanos) -> Decision {
        let call = self.calls.at_mut(index);
        call.state = State::Parked;
        call.tried.clear();
        self.callers.enter(call.caller);
        self.parked_cost += call.wish.cost.amount();
        if call.wish.session != 0 && call.wish.model.is_none() {
            call.wish.home = self.fleet.home(call.wish.query(&[], &[], now));
        }
        self.fleet.watch_long_lived(now);
        self.fleet.watch_silence(now);
        let has_open = self.fleet.has_open();
        if let Choice::WaitFor(slot) = choice {
            call.wish.awaits = Some(slot);
            let until = call.wish.patient_until;
            self.queue.be_faithful(index, call.turn, call.deadline, until);
            self.caches.wait(slot, call.turn, index);
        } else if let Some(model) = faithful_to(&self.fleet, &self.directory, call.wish, now) {
            let until = call.wish.patient_until;
            self.queue.be_faithful(index, call.turn, call.deadline, until);
            self.directory.wait(model, call.turn, index);
        } else if has_open && choice == Choice::Nothing {
            let until = now.saturating_add(self.config.backoff_initial);
            self.queue.rest(index, call.turn, call.deadline, until);
        } else {
            self.queue.park(index, call.turn, call.deadline);
            if let Some(model) = call.wish.model {
                self.directory.be_ready(model, call.turn, index);
            }
        }
        self.fleet.watch_rush(now);
        Decision::Parked(WaiterId(self.calls.key_at(index)))
    }

    /// A call has left the replica in `slot`: if it was answered, the replica says whether it could
    /// have worked on another one.
    #[inline]
    pub(super) fn hear_word(
        &mut self,
        slot: u32,
        (end, usual): (Departure, f32),
        outcome: Outcome,
        now: Nanos,
    ) {
        let (Departure::Answered, Outcome::Done { load: Some(load), .. }) = (end, outcome) else {
            return;
        };
        if let Some(work) = load.alone {
            self.fleet.on_work(slot, work, usual, now);
        }
        let took = load.processing.unwrap_or(Nanos::ZERO);
        if self.fleet.on_word(slot, took, load.alone, now) && self.queue.has_ready() {
            self.measures.on_kept_wrongly(took);
        }
    }

    /// When [`Router::tick`] has something to do, if nothing happens before. May be in the past.
    ///
    /// Ask after every `offer`, `complete`, `reoffer` and `apply`, also when that call itself does
    /// not wait: a refusal that ends one call may be what the parked ones have to wait out.
    pub fn next_wakeup(&self) -> Option<Nanos> {
        let is_faithful = self.queue.has_faithful();
        let waits_for_room = self.queue.has_ready() || is_faithful;
        let reopening = if waits_for_room { self.fleet.next_reopening() } else { None };
        let look_again = if waits_for_room { self.fleet.look_again_at() } else { None };
        let promise_end = if is_faithful { self.directory.next_end() } else { None };
        let next = [self.queue.next_wakeup(), reopening, look_again, promise_end];
        next.into_iter().chain([self.gives_up_at()]).flatten().min()
    }

    /// How long the caller's calls that wait already take: the next one comes after them.
    #[inline]
    pub(super) fn behind(&self, offer: Offer<'_>) -> Nanos {
        let waiting = self.callers.waiting(offer.caller);
        if waiting == 0 {
            return Nanos::ZERO;
        }
        let rate = self.fleet.rate();
        let gap_ns = if rate > 0.0 { 1.0 / rate } else { GAP_UNKNOWN_NS };
        Nanos((f64::from(waiting) * gap_ns) as u64)
    }

    /// When a call that parks now would be sent, after all that are ready; `None`: unknown, since
    /// no call has ended. Zero while a replica has room.
    ///
    /// From the pace of the replicas that are in: their departure rates at their present levels.
    pub fn predicted_wait(&self) -> Option<Nanos> {
        if !self.queue.has_ready() && self.fleet.has_open() {
            return Some(Nanos::ZERO);
        }
        self.wait_behind(self.queue.ready_len())
    }

    /// How long it takes until so many calls and one more are sent; `None`: unknown.
    pub(super) fn wait_behind(&self, waiting: u32) -> Option<Nanos> {
        let rate = self.fleet.rate();
        (rate > 0.0).then(|| Nanos((f64::from(waiting + 1) / rate) as u64))
    }

    /// Why the call had better not park: those before it take all the time that it has.
    ///
    /// Calls leave by their deadlines, so in an overload that lasts each is sent when it is nearly
    /// too late, and most of the work is for nothing. Where calls have been late, half of the time
    /// is therefore the most that may be waited, until none was for a while; in the scenario
    /// `l5_long_queue` that is the difference between 0.47 and 0.9 of capacity. A burst that can be
    /// answered in time is not refused. Nothing while little is known, or of so few calls that
    /// chance decides.
    pub(super) fn too_late(&self, index: u32, now: Nanos) -> Option<Refusal> {
        let Call { turn, deadline, .. } = self.calls.at(index);
        let left = deadline.as_ref()?.saturating_sub(now);
        if self.totals.completed < LEARNT_COMPLETIONS || self.queue.ready_len() < AHEAD_MIN {
            return None;
        }
        let ahead = self.queue.ahead_of(*turn);
        let wait = self.wait_behind(ahead).filter(|_| ahead >= AHEAD_MIN)?;
        let since = self.late_at.map(|at| now.saturating_sub(at));
        let is_overload = since.is_some_and(|since| since < left.saturating_mul(LATE_WEIGHS));
        let wait_max = if is_overload { Nanos(left.0 / 2) } else { left };
        (wait > wait_max).then_some(Refusal::TooLate { wait, left })
    }

    /// Whether more calls wait than would be sent if no replica were held back: to those a place
    /// that becomes free is worth something. Looks at every replica while any call waits.
    pub fn wants_places(&self) -> bool {
        let waiting = self.queue.len() as u64;
        waiting > 0 && waiting > self.fleet.spare()
    }

    pub(super) fn is_queue_full(&self) -> bool {
        // Calls that are held back would otherwise have been sent.
        let bound = u64::from(self.config.queue_len_max);
        let len = self.queue.len() as u64;
        len >= bound && len >= bound.saturating_add(self.fleet.spare())
    }

    /// So many more calls could wait beside room and the next one would still find a place in the
    /// queue. Without it each one that waits for something better costs another its answer.
    #[inline]
    pub(super) fn may_hold(&self, calls: usize) -> bool {
        self.queue.len() + calls < self.config.queue_len_max as usize
    }

    /// Why the call may not wait, if as many wait already as may, by number or by cost.
    pub(super) fn full_for(&self, index: u32) -> Option<Refusal> {
        if self.is_queue_full() {
            return Some(Refusal::QueueFull { limit: self.config.queue_len_max });
        }
        let limit = self.config.queue_cost_max?;
        let cost = self.calls.at(index).wish.cost;
        let is_over = self.parked_cost + cost.amount() > limit.amount();
        let is_full = is_over && (self.queue.len() > 0 || limit == Cost::ZERO);
        is_full.then_some(Refusal::QueueCostFull { limit, cost })
    }

    /// Takes a call out of the queue, whatever it waits for.
    pub(super) fn unpark(&mut self, index: u32) {
        self.queue.remove(index);
        let call = self.calls.at_mut(index);
        self.callers.leave(call.caller);
        // Sums of amounts that come and go are not exact.
        let left = self.parked_cost - call.wish.cost.amount();
        self.parked_cost = if self.queue.len() == 0 { 0.0 } else { left.max(0.0) };
        if let Some(model) = call.wish.model {
            self.directory.stop_waiting(model, call.turn, index);
        }
        if let Some(slot) = call.wish.awaits.take() {
            self.caches.stop_waiting(slot, call.turn, index);
        }
    }

    /// Ends the wait of a call that gets no replica.
    pub(super) fn turn_away(&mut self, index: u32, now: Nanos) {
        self.measure_wait(index, now);
        self.measure_refused(index, now);
        self.unpark(index);
        self.forget(index);
    }

    /// Makes a resting or faithful call ready.
    pub(super) fn wake(&mut self, index: u32) {
        let Call { turn, wish, .. } = *self.calls.at_mut(index);
        if let Some(model) = wish.model {
            self.directory.stop_waiting(model, turn, index);
            self.directory.be_ready(model, turn, index);
        }
        if let Some(slot) = self.calls.at_mut(index).wish.awaits.take() {
            self.caches.stop_waiting(slot, turn, index);
        }
        self.queue.wake(index, turn);
    }

    /// Wakes the resting calls.
    pub(super) fn wake_all(&mut self) {
        while let Some(index) = self.queue.first_resting() {
            self.wake(index);
        }
    }

    /// Brings everything to `now`, but sends nothing yet.
    pub(super) fn settle(&mut self, now: Nanos, released: &mut Vec<Release>) {
        while let Some(index) = self.queue.overdue(now) {
            released.push(Release::Expired { waiter: WaiterId(self.calls.key_at(index)) });
            self.turn_away(index, now);
            self.totals.expired += 1;
            self.late_at = Some(now);
        }
        while let Some(index) = self.queue.rested(now) {
            self.wake(index);
        }
        while let Some(index) = self.queue.unfaithful(now) {
            self.wake(index);
        }
        self.fleet.reopen(now);
        self.directory.end_promises(now);
    }

    /// Sends parked calls in turn while there is room that they take; `cause` is what happened.
    pub(super) fn release(&mut self, cause: ReleaseCause, now: Nanos, released: &mut Vec<Release>) {
        let before = released.len();
        self.release_in_turn(now, released);
        if self.queue.has_ready() {
            self.fleet.watch_silence(now);
        }
        self.measures.on_released(cause, released.len() - before);
    }

    fn release_in_turn(&mut self, now: Nanos, released: &mut Vec<Release>) {
        if self.queue.has_faithful() {
            while let Some(index) = self.directory.orphan() {
                self.wake(index);
            }
            while let Some(index) = self.caches.orphan(&self.fleet) {
                self.wake(index);
            }
        }
        self.fleet.looks_again();
        while self.fleet.has_open() {
            let Some(index) = self.next_in_turn() else {
                return;
            };
            let (waiting, may_hold) = (self.queue.ready_len(), self.may_hold(0));
            let call = self.calls.at_mut(index);
            // Only a call that has paused for another attempt has tried some.
            let query = call.wish.query(&call.tried, &call.ranked, now);
            let (wish, query) = (call.wish, Query { waiting, may_hold, ..query });
            let choice = if wish.has_keys {
                self.choose_by_keys(index, now)
            } else {
                choose(&mut self.fleet, &self.directory, wish, query)
            };
            if choice == Choice::Hold {
                return;
            }
            self.unpark(index);
            if let Choice::Slot(slot) = choice {
                let waiter = WaiterId(self.calls.key_at(index));
                self.calls.rename(index);
                self.measure_wait(index, now);
                released.push(Release::Send { waiter, assignment: self.send(index, slot, now) });
                // With this one the replica may keep those out that go on waiting.
                self.fleet.watch_long_lived_of(slot, now);
            } else {
                // A ready call whose model others hold by now, or that has been wherever there is
                // room; it is still the same waiter.
                self.park(index, choice, now);
            }
        }
    }

    /// Who is next for the room that there is: a ready call, or one that waits for a replica which
    /// has room. Who would have a model loaded stands back for those who find theirs, or a rush for
    /// many models never ends: each load drives out what others wait for.
    fn next_in_turn(&self) -> Option<u32> {
        let ready = self.queue.first_ready();
        let faithful = if self.queue.has_faithful() {
            let of_models = self.directory.first_waiting(|slot| self.fleet.is_open(slot));
            of_models.into_iter().chain(self.caches.first_waiting(&self.fleet.open)).min()
        } else {
            None
        };
        let (turn, first) = ready.into_iter().chain(faithful).min()?;
        // A call has a model or a home, never both.
        let instead = if self.calls.at(first).wish.model.is_some() {
            let hit = self.directory.first_hit(&self.fleet.open).into_iter().chain(faithful).min();
            let overtakes = |(other, _): &(Turn, u32)| other.is_within(HIT_OVERTAKES_MAX, turn);
            hit.filter(overtakes).map(|(_, hit)| hit)
        } else {
            self.first_at_home(turn, first)
        };
        Some(instead.unwrap_or(first))
    }

    /// Instead of `first`, whose session belongs elsewhere: a call that is at home where there is
    /// room. So sessions find their replica although nobody waits for it beside a free place.
    fn first_at_home(&self, turn: Turn, first: u32) -> Option<u32> {
        let home = |call: u32| self.calls.at(call).wish.home;
        if home(first).is_none() && !self.calls.at(first).wish.has_keys {
            return None;
        }
        let overtakes_max = Nanos((self.fleet.alone_ns() * HOME_OVERTAKES_MAX) as u64);
        let is_at_home = |(other, call): &(Turn, u32)| {
            other.is_within(overtakes_max, turn)
                && home(*call).is_some_and(|slot| self.fleet.is_open(slot))
        };
        let found = self.queue.some_ready(HOME_SEARCH).filter(is_at_home).min();
        found.map(|(_, call)| call)
    }
}

/// The model that a call with this wish waits for when it parks now.
fn faithful_to(fleet: &Fleet, directory: &ModelDirectory, wish: Wish, now: Nanos) -> Option<Model> {
    let model = wish.model.filter(|_| now < wish.patient_until)?;
    let holders = directory.holders(model);
    let is_held = !holders.is_empty() && !holders.iter().any(|holder| fleet.is_open(holder.slot));
    is_held.then_some(model)
}
