//! The choice of a replica for a call that names cache entries.
//!
//! The call goes to the replica where it is expected to be done first: the wait behind the calls that
//! are there, and the work on what it does not find. Both are learnt. If that is a replica without
//! room, the call waits for it, but never longer than finding its entries there saves; and where
//! nothing is gained by waiting, such as while nothing is found anywhere, it takes what there is.
//!
//! Before anything is learnt, finding all its keys is taken to save a call all of its usual time, so
//! that it goes to where its entries are unless one more call is there than elsewhere.
//!
//! A call that also names a model, or brings an order of its caller, follows those; its keys are then
//! only counted.

use super::affinity::Choice;
use super::cache_savings::Lesson;
use super::caches::{Expected, Place};
use super::fleet::Fleet;
use super::{Decision, Offer, Outcome, Router};
use crate::time::Nanos;

/// By this time after the answer of a call its replica has reported what it stored for it. Arbitrary:
/// some reports, which are a tenth of a second apart, on a busy machine.
const REPORTED_AFTER: Nanos = Nanos::from_millis(500);

// === impl Fleet ===

impl Fleet {
    /// The replica in `slot` could take one more call, which would wait there behind those of other
    /// routers; while it waits here, theirs go first.
    fn is_shared_and_held(&self, slot: u32) -> bool {
        self.pool.is_shared() && self.is_kept(slot) && self.replicas[slot as usize].is_in()
    }
}

// === impl Router ===

impl Router {
    pub(super) fn offer_with_keys(&mut self, offer: Offer<'_>, now: Nanos) -> Decision {
        let index = self.admit(offer, now);
        // Until it first waits beside room.
        self.calls.at_mut(index).wish.patient_until = Nanos::MAX;
        if self.queue.has_ready() {
            self.fleet.look_again_soon(now);
            let choice = match self.choose_by_keys(index, now) {
                // Nobody overtakes ready calls.
                Choice::Slot(_) => Choice::Hold,
                choice => choice,
            };
            return self.follow(index, choice, now);
        }
        if !self.queue.has_faithful() {
            self.fleet.reopen(now);
        }
        let choice = self.choose_by_keys(index, now);
        self.follow(index, choice, now)
    }

    /// Chooses for a call that names keys.
    pub(super) fn choose_by_keys(&mut self, index: u32, now: Nanos) -> Choice {
        let Self { fleet, caches, calls, .. } = self;
        let call = calls.at_mut(index);
        let query = call.wish.query(&call.tried, &call.ranked, now);
        caches.index.look_up(&call.keys, now);
        let draw = fleet.rng.next_u64();
        let mut candidates = std::mem::take(&mut caches.candidates);
        candidates.clear();
        let may_wait = now < call.wish.patient_until;
        let comes_in = |slot: &u32| {
            let replica = &fleet.replicas[*slot as usize];
            (replica.is_open() || (may_wait && replica.is_in())) && !fleet.is_tried(*slot, query)
        };
        candidates.extend((0..fleet.replicas.len() as u32).filter(comes_in));
        let last_key = call.keys.last().copied().unwrap_or_default();
        let view = caches.view(fleet, last_key, draw, now);
        let key_ns = caches.key_ns(call.keys.len(), fleet.alone_ns());
        let (mut best, mut best_open) = (None::<Place>, None::<Place>);
        let is_better = |one: &Place, other: &Option<Place>| {
            other.is_none_or(|other| one.cost_ns < other.cost_ns)
        };
        let mut least_found = u32::MAX;
        for slot in &candidates {
            let place = caches.place(fleet, *slot, call.keys.len(), view);
            least_found = least_found.min(place.found);
            if is_better(&place, &best) {
                best = Some(place);
            }
            if fleet.is_open(*slot) && is_better(&place, &best_open) {
                best_open = Some(place);
            }
        }
        caches.candidates = candidates;
        match (best, best_open) {
            (Some(best), Some(open)) if best.slot == open.slot => Choice::Slot(open.slot),
            (Some(best), Some(open))
                if best.found > open.found && fleet.is_shared_and_held(best.slot) =>
            {
                Choice::Slot(best.slot)
            }
            (Some(best), Some(open)) if best.found > open.found => {
                let saved_ns = f64::from(best.found - open.found) * key_ns;
                let until = now.saturating_add(Nanos(saved_ns as u64));
                call.wish.patient_until = call.wish.patient_until.min(until);
                Choice::WaitFor(best.slot)
            }
            (_, Some(open)) => Choice::Slot(open.slot),
            (Some(best), None) => {
                call.wish.home = (best.found > least_found).then_some(best.slot);
                Choice::Nothing
            }
            (None, None) => Choice::Nothing,
        }
    }

    /// The call, which names keys, is sent to `slot`.
    pub(super) fn expect_hits(&mut self, index: u32, slot: u32, now: Nanos) {
        let Self { fleet, caches, calls, totals, .. } = self;
        let call = calls.at_mut(index);
        caches.index.look_up(&call.keys, now);
        let found = caches.index.found(slot);
        let missing = call.keys.len() as u32 - found;
        totals.cache_hits += u64::from(found);
        totals.cache_misses += u64::from(missing);
        let usual_ns = fleet.alone_ns();
        let work_ns = caches.savings.call_ns(missing).unwrap_or(usual_ns);
        // The call has its place already, and does not wait for itself.
        let ahead_ns = caches.work_at(fleet, slot, 1, caches.view(fleet, 0, 0, now));
        call.expected = Expected { missing, work_ns, ahead_ns };
        caches.on_sent(slot, call.expected);
        let until = now.saturating_add(self.config.promise_max);
        caches.index.promise(slot, &call.keys, until, now);
    }

    /// A call that names keys is over at `slot`.
    pub(super) fn learn_hits(&mut self, index: u32, slot: u32, outcome: Outcome, now: Nanos) {
        let Self { caches, calls, .. } = self;
        let call = calls.at(index);
        let (expected, latency) = (call.expected, now.saturating_sub(call.sent_at));
        caches.on_ended(slot, expected);
        caches.index.shorten(slot, &call.keys, now.saturating_add(REPORTED_AFTER));
        if let Outcome::Done { load, is_failure: false, .. } = outcome {
            let took = load.and_then(|load| load.processing).unwrap_or(latency);
            caches.savings.on_answer(Lesson {
                missing: expected.missing,
                ahead_ns: expected.ahead_ns,
                took_ns: took.0 as f64,
                alone_ns: load.and_then(|load| load.alone).map(|alone| alone.0 as f64),
            });
        }
    }
}

#[cfg(test)]
mod tests;
