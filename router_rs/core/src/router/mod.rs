//! The router of one deployment: send, park or refuse.
//!
//! A call is offered, then sent, parked or refused. A sent call is completed, or, when it did not
//! start, offered again. A parked call is released, abandoned, or late. All waiting ends by an
//! event: a completion, a snapshot, the end of a backoff; the driver only has to call
//! [`Router::tick`] at [`Router::next_wakeup`].
//!
//! Who drives it: `router_dispatch`, one router per deployment and process behind one short mutex.

mod affinity;
mod cache_index;
mod cache_savings;
mod caches;
mod caching;
mod config;
mod costs;
mod explain;
mod failures;
mod fleet;
mod hedging;
mod holding;
mod late_binding;
mod latencies;
mod lease_requests;
mod measures;
mod measuring;
mod model_directory;
mod reach;
mod reports;
mod retries;
mod retry_budget;
mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod types;
mod waiting;
mod withholding;

pub use cache_index::CacheChange;
pub use config::{NotSet, RetryConfig, RouterConfig};
pub use explain::{Explanation, Fate, Out, ReplicaView, Told};
pub use lease_requests::{ASKED_MAX, LeaseRequest};
pub use measures::{Measures, ReleaseCause, ReplicaMeasures};
pub use types::{
    Assignment, Decision, Locality, Offer, Outcome, Refusal, Release, ReplicaStats, RouterStats,
    Ticket, WaiterId,
};

use crate::backoff::BackoffRule;
use crate::callers::Callers;
use crate::cost::Kind;
use crate::learnt::Leaving;
use crate::membership::{ReplicaId, ReplicaSpec};
use crate::policy::Policy;
use crate::queue::{ParkedQueue, Turn};
use crate::rng::hash;
use crate::slab::{Slab, index_of};
use crate::time::Nanos;
use affinity::{Choice, Wish, choose, choose_impatient};
use cache_index::CacheBounds;
use caches::{Caches, Expected};
use fleet::{Fleet, Query};
use latencies::Latencies;
use model_directory::{Answer, ModelDirectory};
use retry_budget::Repetitions;

/// Decides for every call of one deployment; see the module.
///
/// Between two calls of its methods holds: while a parked call is ready, no replica has room, and
/// while one waits for its model, no replica that has the model has room.
/// Time may step back a little between calls (threads read the clock before they take the lock);
/// then what is due comes a little later.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    fleet: Fleet,
    directory: ModelDirectory,
    caches: Caches,
    calls: Slab<Call>,
    queue: ParkedQueue,
    /// Those of the parked calls.
    callers: Callers,
    /// The cost of the parked calls, by its estimates.
    parked_cost: f64,
    repetitions: Repetitions,
    latencies: Latencies,
    /// When a call last ran out of time, waiting or at a replica that had said nothing.
    late_at: Option<Nanos>,
    /// Only its totals; the rest is filled in by [`Router::stats`].
    totals: RouterStats,
    measures: Measures,
}

/// One call that the router has taken and that is not over.
#[derive(Debug, Default)]
struct Call {
    turn: Turn,
    caller: u64,
    deadline: Option<Nanos>,
    wish: Wish,
    kind: Kind,
    /// Where it was refused since it last parked; at most `refusals_max`.
    tried: Vec<ReplicaId>,
    /// Where its caller wants it, in this order; empty: anywhere.
    ranked: Vec<ReplicaId>,
    /// The cache entries that it would like to find.
    keys: Vec<u64>,
    /// If it names any: what is expected of it where it was sent.
    expected: Expected,
    /// How often it was sent after it had started.
    repeats: u8,
    /// It has a second place, or is one.
    is_hedged: bool,
    offered_at: Nanos,
    waits_since: Nanos,
    /// How long its attempt was to take when it was sent; 0: nobody knew.
    predicted: Nanos,
    /// When it was sent last, and what its replica counts it by.
    sent_at: Nanos,
    generation: u32,
    /// The usual time of a call when this one was sent.
    usual: f32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Parked,
    Sent {
        slot: u32,
    },
}

// === impl Router: what the driver calls ===

impl Router {
    /// A router without replicas: it parks what is offered until the first snapshot.
    pub fn new(config: RouterConfig) -> Self {
        let policy = config.policy.build(config.load_bound);
        Self::with_policy(config, policy)
    }

    /// As [`Router::new`], with a policy from outside instead of `config.policy`.
    pub fn with_policy(config: RouterConfig, policy: Box<dyn Policy>) -> Self {
        Self {
            fleet: Fleet::new(policy, config.seed),
            directory: ModelDirectory::default(),
            caches: Caches::new(
                CacheBounds { keys_max: config.cache_keys_max, bytes_max: config.cache_bytes_max },
                config.seed,
            ),
            calls: Slab::new(),
            queue: ParkedQueue::default(),
            callers: Callers::default(),
            parked_cost: 0.0,
            repetitions: Repetitions::new(config.seed),
            latencies: Latencies::default(),
            late_at: None,
            totals: RouterStats::default(),
            measures: Measures::default(),
            config,
        }
    }

    /// Decides about a new call. Does not allocate when the answer is to send it.
    ///
    /// Nobody overtakes ready calls: while some are parked, the new one parks too.
    pub fn offer(&mut self, offer: Offer<'_>, now: Nanos) -> Decision {
        self.totals.offered += 1;
        self.repetitions.budget.on_call(now);
        if is_past(offer.deadline, now) {
            self.totals.expired += 1;
            self.measures.failed.add(Nanos::ZERO);
            return Decision::Refused(Refusal::Expired);
        }
        if offer.model.is_empty() && offer.cache_keys.is_empty() {
            // The way of most calls, kept short.
            let choice = self.choose_for_any_call(offer, now);
            let index = self.admit(offer, now);
            return self.follow(index, choice, now);
        }
        if offer.model.is_empty() && offer.ranked.is_empty() {
            return self.offer_with_keys(offer, now);
        }
        self.offer_with_wishes(offer, now)
    }

    /// Sends a call to `replica` whatever its load and its backoff; `None` if it is not a member.
    ///
    /// The call counts there as any other. It is completed; it cannot be offered again.
    pub fn pin(&mut self, replica: ReplicaId, offer: Offer<'_>, now: Nanos) -> Option<Assignment> {
        let slot = self.fleet.member(replica)?;
        self.totals.offered += 1;
        let index = self.admit(offer, now);
        self.fleet.take_beyond(slot, now);
        Some(self.assign(index, slot, now))
    }

    /// Records that a call is over: frees its place, and appends to `released` the calls that get
    /// it.
    ///
    /// An unknown ticket, or one that was used before, is a defect of the driver: an assertion in
    /// debug builds, otherwise counted and ignored.
    pub fn complete(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        now: Nanos,
        released: &mut Vec<Release>,
    ) {
        let Some((index, slot)) = self.find_sent(ticket) else {
            return;
        };
        self.totals.completed += 1;
        self.learn_latency(index, outcome, now);
        self.measure_end(index, outcome, now);
        self.settle(now, released);
        self.end(index, slot, outcome, now);
        self.forget(index);
        self.release(ReleaseCause::Completion, now, released);
    }

    /// Finds another replica for a call that did not start ([`Outcome::Refused`] or
    /// [`Outcome::ConnectFailed`]; any other outcome only if the call is safe to repeat).
    ///
    /// Frees its place; leaves out the replicas that it has tried. With none left, or after
    /// `refusals_max` refusals, it parks in the place that its arrival and deadline gave it, and
    /// starts again from there. If a replica has room even so, it first rests: until a place is
    /// given back, the fleet grows, or `backoff_initial` has passed. The ticket ends here; a sent
    /// call gets a new one.
    ///
    /// An unknown ticket is treated as in [`Router::complete`]; the answer is then
    /// [`Refusal::Expired`], because the call it named is over.
    pub fn reoffer(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        now: Nanos,
        released: &mut Vec<Release>,
    ) -> Decision {
        let Some((index, slot)) = self.find_sent(ticket) else {
            return Decision::Refused(Refusal::Expired);
        };
        self.calls.rename(index);
        let replica = self.fleet.id(slot);
        self.settle(now, released);
        self.end(index, slot, outcome, now);
        self.release(ReleaseCause::Completion, now, released);
        self.send_elsewhere(index, replica, now)
    }

    /// Forgets a parked call whose caller is gone.
    ///
    /// If it was released meanwhile, this only counts it: the receiver of the release completes its
    /// ticket.
    pub fn abandon(&mut self, waiter: WaiterId, now: Nanos) {
        match self.calls.get(waiter.0).map(|call| call.state) {
            Some(State::Parked) => {
                self.measure_abandoned(index_of(waiter.0), now);
                self.unpark(index_of(waiter.0));
                self.forget(index_of(waiter.0));
                self.totals.abandoned += 1;
            }
            Some(State::Sent { .. }) | None => self.totals.stale_waiters += 1,
        }
    }

    /// Makes `replicas` the membership, whole and at once.
    ///
    /// A replica that is missing gets nothing new; calls open there end as any other. Capacity may
    /// fall below what is in flight; then nothing is sent there until enough calls have ended.
    pub fn apply(&mut self, replicas: &[ReplicaSpec], now: Nanos, released: &mut Vec<Release>) {
        self.settle(now, released);
        let (directory, caches) = (&mut self.directory, &mut self.caches);
        let warm_at = now.saturating_add(self.config.slow_start);
        let leave = |slot| {
            directory.leave(slot);
            caches.leave(slot);
        };
        if self.fleet.apply(replicas, (now, warm_at), leave) {
            self.wake_all();
        }
        self.measures.follow(&self.fleet);
        self.release(ReleaseCause::Members, now, released);
    }

    /// Does what is due: ends backoffs and rests, names late calls, sends who can be sent.
    pub fn tick(&mut self, now: Nanos, released: &mut Vec<Release>) {
        self.settle(now, released);
        self.give_up(now, released);
        self.release(ReleaseCause::Time, now, released);
    }
}

// === impl Router: steps ===

impl Router {
    #[inline]
    fn choose_for_any_call(&mut self, offer: Offer<'_>, now: Nanos) -> Choice {
        if self.queue.has_ready() {
            self.fleet.look_again_soon(now);
            return Choice::Hold;
        }
        // While calls wait for certain replicas, what time brings is theirs first: a tick is due.
        if !self.queue.has_faithful() {
            self.fleet.reopen(now);
        }
        let wish = self.wish(offer);
        let query = wish.query(&[], offer.ranked, now);
        let query = Query { may_hold: self.may_hold(1), ..query };
        choose(&mut self.fleet, &self.directory, wish, query)
    }

    fn offer_with_wishes(&mut self, offer: Offer<'_>, now: Nanos) -> Decision {
        let index = self.admit(offer, now);
        if self.queue.has_ready() {
            self.fleet.look_again_soon(now);
            return self.follow(index, Choice::Hold, now);
        }
        if !self.queue.has_faithful() {
            self.fleet.reopen(now);
            self.directory.end_promises(now);
        }
        let call = self.calls.at_mut(index);
        let query = call.wish.query(&[], &call.ranked, now);
        let choice = choose(&mut self.fleet, &self.directory, call.wish, query);
        self.follow(index, choice, now)
    }

    /// Takes the call into the books.
    fn admit(&mut self, offer: Offer<'_>, now: Nanos) -> u32 {
        let sequence = self.totals.offered;
        let mut wish = self.wish(offer);
        wish.has_keys =
            !offer.cache_keys.is_empty() && offer.model.is_empty() && offer.ranked.is_empty();
        if !offer.model.is_empty() {
            wish.model = Some(self.directory.open_call(offer.model));
            wish.patient_until = now.saturating_add(self.config.model_wait_max);
        }
        let turn =
            Turn::new(now, offer.deadline, sequence).with(offer.priority, self.behind(offer));
        let (key, call) = self.calls.occupy();
        call.turn = turn;
        call.caller = offer.caller;
        call.deadline = offer.deadline;
        call.wish = wish;
        call.kind = self.fleet.costs.kind(offer.method, offer.request_bytes);
        call.tried.clear();
        call.ranked.clear();
        call.ranked.extend_from_slice(offer.ranked);
        call.keys.clear();
        call.keys.extend_from_slice(offer.cache_keys);
        call.repeats = 0;
        call.is_hedged = false;
        call.offered_at = now;
        index_of(key)
    }

    /// The wishes of the call, without its model.
    #[inline]
    fn wish(&self, offer: Offer<'_>) -> Wish {
        Wish {
            session: hash(offer.session),
            locality: offer.locality.unwrap_or(self.config.locality),
            cost: self.estimate(offer),
            ..Wish::default()
        }
    }

    /// Takes the call out of the books.
    fn forget(&mut self, index: u32) {
        if let Some(model) = self.calls.at_mut(index).wish.model {
            self.directory.close_call(model);
        }
        self.calls.vacate(index);
    }

    /// Sends the call, parks it, or turns it away.
    fn follow(&mut self, index: u32, choice: Choice, now: Nanos) -> Decision {
        let slot = match choice {
            Choice::Slot(slot) => Some(slot),
            Choice::Wait if self.full_for(index).is_some() => {
                let call = self.calls.at_mut(index);
                let query = call.wish.query(&call.tried, &call.ranked, now);
                choose_impatient(&mut self.fleet, &self.directory, query)
            }
            Choice::WaitFor(_) if !self.may_hold(0) => {
                let call = self.calls.at_mut(index);
                call.wish.patient_until = now;
                match self.choose_by_keys(index, now) {
                    Choice::Slot(slot) => Some(slot),
                    _ => None,
                }
            }
            Choice::Wait | Choice::WaitFor(_) | Choice::Hold | Choice::Nothing => None,
        };
        if let Some(slot) = slot {
            return Decision::Send(self.send(index, slot, now));
        }
        if let Some(refusal) = self.full_for(index).or_else(|| self.too_late(index, now)) {
            self.measure_refused(index, now);
            self.forget(index);
            self.totals.refused_by_queue += 1;
            return Decision::Refused(refusal);
        }
        self.calls.at_mut(index).waits_since = now;
        self.park(index, choice, now)
    }

    fn send(&mut self, index: u32, slot: u32, now: Nanos) -> Assignment {
        let predicted = self.predict(slot, now);
        self.fleet.take(slot, now);
        let assignment = self.assign(index, slot, now);
        self.calls.at_mut(index).predicted = predicted;
        assignment
    }

    fn assign(&mut self, index: u32, slot: u32, now: Nanos) -> Assignment {
        let call = self.calls.at_mut(index);
        call.state = State::Sent { slot };
        call.sent_at = now;
        call.predicted = Nanos::ZERO;
        call.generation = self.fleet.generation(slot);
        call.usual = self.fleet.speeds.usual();
        self.fleet.costs.on_sent(slot, call.wish.cost);
        if let Some(model) = call.wish.model {
            let has_it = self.directory.holders(model).iter().any(|holder| holder.slot == slot);
            self.totals.model_misses += u64::from(!has_it);
            let until = now.saturating_add(self.config.promise_max);
            self.directory.on_sent(model, slot, until, now);
        }
        if !self.calls.at(index).keys.is_empty() {
            self.expect_hits(index, slot, now);
        }
        self.totals.sent += 1;
        self.measures.on_sent(slot, self.fleet.replicas[slot as usize].tier);
        let ticket = Ticket(self.calls.key_at(index));
        Assignment { ticket, replica: self.fleet.id(slot), is_leased: false, sent_at: now }
    }

    /// Gives a call's place back. One freed place wakes one resting call, not all of them.
    fn end(&mut self, index: u32, slot: u32, outcome: Outcome, now: Nanos) {
        let call = self.calls.at_mut(index);
        let (wish, kind, generation, usual) = (call.wish, call.kind, call.generation, call.usual);
        let latency = now.saturating_sub(call.sent_at);
        let took = now.saturating_sub(call.offered_at);
        self.measures.on_attempt(slot, outcome, latency, call.predicted);
        let departure = self.record(slot, outcome, latency, now);
        self.hear_word(slot, (departure, usual), outcome, now);
        self.end_cost(slot, (kind, wish.cost), outcome, now);
        if let Some(model) = wish.model {
            let is_done = matches!(outcome, Outcome::Done { .. });
            let alone_ns = self.fleet.alone_ns();
            let answer = Answer { took, ran: latency, alone_ns, now };
            self.directory.on_ended(model, slot, is_done.then_some(answer));
        }
        if !self.calls.at(index).keys.is_empty() {
            self.learn_hits(index, slot, outcome, now);
        }
        let leaving = Leaving { departure, latency, generation };
        if self.fleet.give_back(slot, leaving, now)
            && let Some(index) = self.queue.first_resting()
        {
            self.wake(index);
        }
    }

    fn backoff_rule(&self) -> BackoffRule {
        BackoffRule {
            initial: self.config.backoff_initial,
            multiplier: self.config.backoff_multiplier,
            max: self.config.backoff_max,
        }
    }

    fn find_sent(&mut self, ticket: Ticket) -> Option<(u32, u32)> {
        match self.calls.get(ticket.0).map(|call| call.state) {
            Some(State::Sent { slot }) => Some((index_of(ticket.0), slot)),
            Some(State::Parked) | None => {
                self.totals.stale_tickets += 1;
                debug_assert!(false, "{ticket:?} is unknown or was completed before");
                None
            }
        }
    }
}

fn is_past(deadline: Option<Nanos>, now: Nanos) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}
