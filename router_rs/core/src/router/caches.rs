//! What a router remembers for calls with cache keys, and what such a call would cost at each replica;
//! `caching` chooses by it.

use std::collections::BTreeSet;

use super::cache_index::{CacheBounds, CacheIndex};
use super::cache_savings::Savings;
use super::fleet::Fleet;
use crate::queue::Turn;
use crate::rng::mix;
use crate::time::Nanos;

/// A miss drives out an entry that other calls would have found: where entries leave soonest, the
/// next miss costs so many times as much as the call itself loses, and elsewhere the less the longer
/// they stay. That makes the caches of all replicas nearly one. Tuned with the scenarios `caches…`.
const EVICTION_WEIGHT: f64 = 1.0;
/// What a miss costs more, in parts of what the call loses, at the replica to which its last key
/// belongs least: routers that do not know of each other so store new entries in the same places.
/// Tuned with `caches_four_routers`.
const HOME_WEIGHT: f64 = 1.0;
/// At least this part of its usual time is saved by a call that finds all its keys, so that it goes to
/// them wherever nothing is lost by that, although its time does not show what it gains. Arbitrary.
const LEAST_SAVING: f64 = 1.0 / 4.0;
/// A replica's report of other routers' calls weighs half as much after this time. Arbitrary: as long
/// as some calls take.
const OTHERS_HALVED: Nanos = Nanos::from_millis(60);
/// Costs that differ by less are equal, and chance decides: a part of a call's usual time.
const BLUR: f64 = 1.0 / 16.0;

/// The state that calls with cache keys need.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) index: CacheIndex,
    pub(super) savings: Savings,
    /// By slot: the open calls with keys there.
    ahead: Vec<Ahead>,
    /// Calls that wait for the replica in a slot.
    waiting: BTreeSet<(u32, Turn, u32)>,
    /// Replicas that come into question for one call; kept for its memory.
    pub(super) candidates: Vec<u32>,
}

/// The open calls with keys at a replica.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    calls: u32,
    work_ns: f64,
}

/// The prediction for a call that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    pub(super) missing: u32,
    pub(super) work_ns: f64,
    /// The work that was there before it.
    pub(super) ahead_ns: f64,
}

/// A replica, and what a call would cost there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) cost_ns: f64,
    pub(super) found: u32,
}

/// What one choice knows beside the replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    now: Nanos,
    /// The last key that the call names.
    last_key: u64,
    /// A random number.
    draw: u64,
    usual_others: f64,
    shortest_idle_ns: f64,
}

// === impl Caches ===

impl Caches {
    pub(super) fn new(bounds: CacheBounds, seed: u64) -> Self {
        Self {
            index: CacheIndex::new(bounds, seed),
            savings: Savings::default(),
            ahead: Vec::new(),
            waiting: BTreeSet::new(),
            candidates: Vec::new(),
        }
    }

    /// The replica in `slot` has left.
    pub(super) fn leave(&mut self, slot: u32) {
        self.index.clear(slot);
    }

    pub(super) fn wait(&mut self, slot: u32, turn: Turn, call: u32) {
        self.waiting.insert((slot, turn, call));
    }

    pub(super) fn stop_waiting(&mut self, slot: u32, turn: Turn, call: u32) {
        self.waiting.remove(&(slot, turn, call));
    }

    /// How many calls wait for a certain replica.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Of the calls that wait for one of `open`, the one whose turn it is.
    pub(super) fn first_waiting(&self, open: &[u32]) -> Option<(Turn, u32)> {
        if self.waiting.is_empty() {
            return None;
        }
        let first = |slot: &u32| {
            let from = (*slot, Turn::default(), 0);
            let found = self.waiting.range(from..).next();
            found.filter(|(of, _, _)| of == slot).map(|(_, turn, call)| (*turn, *call))
        };
        open.iter().filter_map(first).min()
    }

    /// A call that waits for a replica that is out.
    pub(super) fn orphan(&self, fleet: &Fleet) -> Option<u32> {
        let is_out = |slot: u32| !fleet.replicas[slot as usize].is_in();
        self.waiting.iter().find(|(slot, _, _)| is_out(*slot)).map(|(_, _, call)| *call)
    }

    fn ahead(&self, slot: u32) -> Ahead {
        self.ahead.get(slot as usize).copied().unwrap_or_default()
    }

    /// What each key that is found saves a call that names so many.
    pub(super) fn key_ns(&self, keys: usize, usual_ns: f64) -> f64 {
        let all_ns = usual_ns / keys.max(1) as f64;
        let learnt_ns = self.savings.key_ns();
        learnt_ns.map_or(all_ns, |key_ns| key_ns.max(all_ns * LEAST_SAVING))
    }

    pub(super) fn on_sent(&mut self, slot: u32, expected: Expected) {
        if self.ahead.len() <= slot as usize {
            self.ahead.resize_with(slot as usize + 1, Ahead::default);
        }
        let ahead = &mut self.ahead[slot as usize];
        ahead.calls += 1;
        ahead.work_ns += expected.work_ns;
    }

    pub(super) fn on_ended(&mut self, slot: u32, expected: Expected) {
        let ahead = &mut self.ahead[slot as usize];
        ahead.calls -= 1;
        // Sums of many numbers drift; nobody is there exactly when nothing is.
        ahead.work_ns = if ahead.calls == 0 { 0.0 } else { ahead.work_ns - expected.work_ns };
    }

    pub(super) fn place(&self, fleet: &Fleet, slot: u32, keys: usize, view: View) -> Place {
        let usual_ns = fleet.alone_ns();
        let found = self.index.found(slot);
        let missing = keys as f64 - f64::from(found);
        let miss_ns = missing * self.key_ns(keys, usual_ns);
        let idle_ns = self.index.idle_ns(slot);
        let drives_out = idle_ns.map_or(0.0, |idle_ns| view.shortest_idle_ns / idle_ns);
        let off_home = part(mix(view.last_key ^ mix(fleet.id(slot).0)));
        let dearer = 1.0 + EVICTION_WEIGHT * drives_out + HOME_WEIGHT * off_home;
        let wait_ns = self.work_at(fleet, slot, 0, view) * self.waits(fleet);
        let blur_ns = usual_ns * BLUR * part(mix(view.draw ^ u64::from(slot)));
        Place { slot, cost_ns: wait_ns + miss_ns * dearer + blur_ns, found }
    }

    /// The work of the calls that are at the replica in `slot`, in nanoseconds, without those that
    /// were `just_sent`, for which `on_sent` was not called yet.
    pub(super) fn work_at(&self, fleet: &Fleet, slot: u32, just_sent: u32, view: View) -> f64 {
        let replica = &fleet.replicas[slot as usize];
        let ahead = self.ahead(slot);
        let (others, told_at) = replica.others;
        // What it said of others holds less the older it is; then it has as many as all have.
        let age = view.now.saturating_sub(told_at).0 as f64 / OTHERS_HALVED.0 as f64;
        let others =
            view.usual_others + (f64::from(others) - view.usual_others) * 0.5_f64.powf(age);
        let known = ahead.calls + just_sent;
        let unknown = f64::from(replica.pace.level().saturating_sub(known)) + others;
        let usual_ns = self.savings.mean_ns().unwrap_or_else(|| fleet.alone_ns());
        ahead.work_ns + unknown * usual_ns
    }

    /// What all replicas have in common for one choice.
    pub(super) fn view(&self, fleet: &Fleet, last_key: u64, draw: u64, now: Nanos) -> View {
        View {
            now,
            last_key,
            draw,
            usual_others: usual_others(fleet),
            shortest_idle_ns: self.index.shortest_idle_ns(),
        }
    }

    /// For which part of that a call waits.
    fn waits(&self, fleet: &Fleet) -> f64 {
        let by_levels = || (fleet.pool.finish_ns(2) / fleet.alone_ns() - 1.0).clamp(0.0, 1.0);
        self.savings.waits().unwrap_or_else(by_levels)
    }
}

/// How many calls of other routers a replica has, on average of what they said last.
fn usual_others(fleet: &Fleet) -> f64 {
    if !fleet.pool.is_shared() {
        return 0.0;
    }
    let members = fleet.replicas.iter().filter(|replica| replica.is_member);
    let others: f64 = members.map(|replica| f64::from(replica.others.0)).sum();
    others / f64::from(fleet.members.max(1))
}

/// 0 to 1, from the highest bits of what is spread evenly.
fn part(bits: u64) -> f64 {
    (bits >> 32) as f64 / f64::from(u32::MAX)
}
