//! The replicas, and which of them have room.

mod costs;
mod health;
mod members;
mod sweep;

use std::collections::BTreeMap;

use crate::batch::BatchView;
use crate::cost::Cost;
use crate::demand::Demand;
use crate::ejection::Tally;
use crate::exclusive::Late;
use crate::heap::TimerHeap;
use crate::learnt::{Leaving, Pool};
use crate::membership::ReplicaId;
use crate::policy::{Candidates, Glance, Policy, Scene};
use crate::replica::{Load, NOT_OPEN, Replica};
use crate::rng::SplitMix64;
use crate::speed::Speeds;
use crate::time::Nanos;
use crate::withheld::Budget;

use super::Locality;
use crate::outstanding::Costs;

/// The requirements of a call for its replica, besides room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    pub(super) now: Nanos,
    /// A hash; 0: the call has no session.
    pub(super) session: u64,
    pub(super) locality: Locality,
    pub(super) cost: Cost,
    /// How many calls wait in the same queue.
    pub(super) waiting: u32,
    /// It may wait beside room: there is a place for one more that waits.
    pub(super) may_hold: bool,
    /// It brings a model that stays: what counts is the demand of a longer time.
    pub(super) is_placing: bool,
    /// Replicas that refused the call.
    pub(super) tried: &'a [ReplicaId],
    /// Replicas that come before all others, in this order.
    pub(super) ranked: &'a [ReplicaId],
}

impl Query<'_> {
    /// Any replica with room will do.
    #[inline]
    fn is_plain(&self) -> bool {
        self.tried.is_empty() && self.ranked.is_empty() && self.locality == Locality::default()
    }
}

/// The progress of learnt values through the replicas (`sweep`).
#[derive(Clone, Copy, Debug)]
struct Sweep {
    next: usize,
    /// The number of replicas per step.
    step: usize,
    /// The first [`Replica::long_lived_at`] of those before `next`, each as its step found it.
    long_lived_at: Option<Nanos>,
}

/// All replicas that matter: the members of the last snapshot, and those that left but have calls
/// open. A *slot* is a replica's index; it is given to another replica only when nothing refers to
/// it any more.
///
/// Invariant: `open` lists exactly the slots whose replica has room, so a pick looks at no other.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) replicas: Vec<Replica>,
    /// The data that the policy reads first of each of `replicas`, if it is patient.
    glances: Vec<Glance>,
    slots: BTreeMap<ReplicaId, u32>,
    free_slots: Vec<u32>,
    pub(super) open: Vec<u32>,
    /// Those of `open` that come into question for one call; kept for its memory.
    candidates: Vec<u32>,
    /// Calls sent and not over, at whatever replica.
    in_flight: u64,
    demand: Demand,
    pub(super) members: u32,
    /// Since when no member could be reached; `None`: one can, or there is none.
    pub(super) unreached_since: Option<Nanos>,
    /// When the last of the new replicas has its full share.
    warm_at: Nanos,
    backoffs: TimerHeap,
    /// When ejected replicas come back.
    returns: TimerHeap,
    /// The answers of all replicas, and which interval it is.
    tally: Tally,
    window: u64,
    window_end: Nanos,
    pub(super) policy: Box<dyn Policy>,
    /// Of the policy: calls may wait although a replica has room.
    pub(super) is_patient: bool,
    pub(super) pool: Pool,
    pub(super) late: Late,
    pub(super) speeds: Speeds,
    pub(super) costs: Costs,
    pub(super) budget: Budget,
    /// The last pick left replicas with room alone, because waiting is better.
    pub(super) is_holding: bool,
    /// Replicas take their calls in batches, by their own word.
    pub(super) is_batching: bool,
    /// How busy the nearest replicas have been of late, of 1.
    pub(super) near_busy: f64,
    /// When those that wait beside room look again.
    pub(super) look_again_at: Option<Nanos>,
    /// When calls become long-lived that keep others out.
    pub(super) long_lived_at: Option<Nanos>,
    /// Brings what was learnt to the replicas; `None`: it has come to all.
    sweep: Option<Sweep>,
    pub(super) rng: SplitMix64,
}

impl Fleet {
    pub(super) fn new(policy: Box<dyn Policy>, seed: u64) -> Self {
        let mut pool = Pool::default();
        pool.tell_replicas(policy.is_patient());
        Self {
            is_patient: policy.is_patient(),
            pool,
            late: Late::new(policy.binds_late()),
            speeds: Speeds::default(),
            costs: Costs::default(),
            budget: Budget::default(),
            is_holding: false,
            is_batching: false,
            near_busy: 0.0,
            look_again_at: None,
            long_lived_at: None,
            sweep: None,
            replicas: Vec::new(),
            glances: Vec::new(),
            slots: BTreeMap::new(),
            free_slots: Vec::new(),
            open: Vec::new(),
            candidates: Vec::new(),
            in_flight: 0,
            demand: Demand::default(),
            members: 0,
            unreached_since: None,
            warm_at: Nanos::ZERO,
            backoffs: TimerHeap::default(),
            returns: TimerHeap::default(),
            tally: Tally::default(),
            window: 0,
            window_end: Nanos::ZERO,
            policy,
            rng: SplitMix64::new(seed),
        }
    }

    /// Some replica has room.
    #[inline]
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// From now on this policy decides.
    pub(super) fn set_policy(&mut self, policy: Box<dyn Policy>, now: Nanos) {
        self.is_patient = policy.is_patient();
        self.late.is_on = policy.binds_late();
        self.pool.tell_replicas(self.is_patient);
        self.policy = policy;
        self.look_again_at = None;
        // Who is impatient does not keep them.
        self.glances.fill(Glance::NONE);
        self.keep_again(now);
    }

    /// The policy's choice among the replicas with room.
    #[inline]
    pub(super) fn pick(&mut self, query: Query<'_>) -> Option<u32> {
        self.is_holding = false;
        self.close_behind_long_calls(query.now);
        if query.is_plain() && self.warm_at <= query.now {
            // The way of most calls, kept short.
            if self.costs.is_on {
                return self.pick_by_cost(query);
            }
            let scene = self.scene(query);
            let open = &self.open[..];
            let candidates =
                Candidates::new((&self.replicas, &self.glances), open, &self.pool, scene);
            let slot = choose(&mut *self.policy, candidates, open, &mut self.rng)?;
            if self.late.is_on {
                return self.unless_slow(slot, query);
            }
            return self.unless_better(slot, query);
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend_from_slice(&self.open);
        let slot = self.pick_narrowed(candidates, query)?;
        if !query.ranked.is_empty() || self.costs.is_on {
            return Some(slot);
        }
        if self.late.is_on {
            let slot = self.unless_near(slot, query)?;
            return self.unless_slow(slot, query);
        }
        let slot = self.or_farther(slot, query);
        self.unless_better(slot, query)
    }

    /// The policy's choice among those of `slots` that have room.
    pub(super) fn pick_of(
        &mut self,
        slots: impl Iterator<Item = u32>,
        query: Query<'_>,
    ) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(slots.filter(|slot| self.is_open(*slot)));
        self.pick_narrowed(candidates, query)
    }

    /// The replica to which calls like this one belong, with or without room.
    pub(super) fn home(&mut self, query: Query<'_>) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let is_in = |slot: &u32| self.replicas[*slot as usize].is_in();
        candidates.extend((0..self.replicas.len() as u32).filter(is_in));
        self.keep_nearest(&mut candidates, query.locality);
        let scene = self.scene(query);
        let seen = Candidates::new((&self.replicas, &self.glances), &candidates, &self.pool, scene);
        let home = self.policy.home(seen).map(|index| candidates[index]);
        self.candidates = candidates;
        home
    }

    /// The policy's choice among those with the lowest `cost` of the replicas with room.
    pub(super) fn pick_cheapest(
        &mut self,
        query: Query<'_>,
        cost: impl Fn(u32) -> usize,
    ) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(self.open.iter().filter(|slot| !self.is_tried(**slot, query)));
        let lowest = candidates.iter().map(|slot| cost(*slot)).min();
        candidates.retain(|slot| Some(cost(*slot)) == lowest);
        self.pick_narrowed(candidates, Query { is_placing: true, ..query })
    }

    /// The choice among `candidates`, which have room: what the caller ranks, else what the policy
    /// says of those that are near and warm. Takes the memory back.
    fn pick_narrowed(&mut self, mut candidates: Vec<u32>, query: Query<'_>) -> Option<u32> {
        candidates.retain(|slot| !self.is_tried(*slot, query));
        let slot = self.first_ranked(&candidates, query.ranked).or_else(|| {
            self.keep_warm(&mut candidates, query.now);
            self.keep_nearest(&mut candidates, query.locality);
            if query.is_placing {
                self.keep_least_demanded(&mut candidates, query.now);
            }
            self.choose_of(&candidates, query)
        });
        self.candidates = candidates;
        slot
    }

    pub(super) fn is_tried(&self, slot: u32, query: Query<'_>) -> bool {
        query.tried.contains(&self.replicas[slot as usize].id)
    }

    fn first_ranked(&self, candidates: &[u32], ranked: &[ReplicaId]) -> Option<u32> {
        let slot_of = |id: &ReplicaId| self.slots.get(id).filter(|slot| candidates.contains(slot));
        ranked.iter().find_map(slot_of).copied()
    }

    /// Leaves out each new replica with the probability of what it lacks to its full share, so that
    /// the share grows evenly under any policy. If only new ones have room, they stay.
    fn keep_warm(&mut self, candidates: &mut Vec<u32>, now: Nanos) {
        if self.warm_at <= now {
            return;
        }
        let is_out = |slot: &u32, rng: &mut SplitMix64| {
            rng.below(256) >= self.replicas[*slot as usize].warmth_of_256(now)
        };
        // Puts those that stay to the front.
        let mut kept = 0;
        for index in 0..candidates.len() {
            if !is_out(&candidates[index], &mut self.rng) {
                candidates.swap(kept, index);
                kept += 1;
            }
        }
        if kept > 0 {
            candidates.truncate(kept);
        }
    }

    fn keep_nearest(&self, candidates: &mut Vec<u32>, locality: Locality) {
        if locality == Locality::default() {
            return;
        }
        let distance = |slot: &u32| locality.distance(self.replicas[*slot as usize].tier);
        let nearest = candidates.iter().map(distance).min();
        candidates.retain(|slot| Some(distance(slot)) == nearest);
    }

    #[inline]
    fn scene(&self, query: Query<'_>) -> Scene {
        Scene {
            now: query.now,
            session: query.session,
            in_flight: self.in_flight,
            demand: self.demand,
            members: self.members,
        }
    }

    /// The replica in `slot` has room.
    #[inline]
    pub(super) fn is_open(&self, slot: u32) -> bool {
        self.replicas[slot as usize].is_open()
    }

    /// The slot of a member.
    pub(super) fn member(&self, replica: ReplicaId) -> Option<u32> {
        let slot = *self.slots.get(&replica)?;
        self.replicas[slot as usize].is_member.then_some(slot)
    }

    /// The replica in `slot` could take a call if it were not in a backoff.
    pub(super) fn may_take(&self, slot: u32) -> bool {
        self.replicas[slot as usize].may_take()
    }

    /// Takes one place at the replica in `slot`, even beyond its capacity.
    #[inline]
    pub(super) fn take_beyond(&mut self, slot: u32, now: Nanos) {
        let replica = &mut self.replicas[slot as usize];
        if replica.in_flight == 0 {
            (replica.quiet_since, replica.patience) = (now, self.late.exclusive.patience());
        }
        replica.pace.count(&mut self.pool, now);
        replica.pace.on_sent(&self.pool, now);
        replica.demand.count(replica.in_flight, now);
        if let Some(batch) = &mut replica.batch {
            batch.on_sent(now);
        }
        replica.in_flight += 1;
        self.demand.count(self.in_flight as u32, now);
        self.in_flight += 1;
        replica.health.on_sent();
        self.glance(slot);
        self.refresh(slot);
    }

    /// Takes one place at the replica in `slot`.
    #[inline]
    pub(super) fn take(&mut self, slot: u32, now: Nanos) {
        let replica = &self.replicas[slot as usize];
        let may_get = replica.has_room() || replica.is_held_back() && replica.spare() > 0;
        debug_assert!(may_get, "{:?} gets a call without having room", replica.id);
        self.take_beyond(slot, now);
    }

    /// Gives one place back; returns whether the replica has room now.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32, leaving: Leaving, now: Nanos) -> bool {
        let replica = &mut self.replicas[slot as usize];
        debug_assert!(replica.in_flight > 0, "{:?} has no call to end", replica.id);
        replica.pace.count(&mut self.pool, now);
        let learnt = replica.pace.on_departure(&mut self.pool, leaving, now);
        replica.demand.count(replica.in_flight, now);
        replica.in_flight -= 1;
        self.demand.count(self.in_flight as u32, now);
        self.in_flight -= 1;
        replica.health.on_ended();
        self.glance(slot);
        let replica = &self.replicas[slot as usize];
        if replica.is_member || replica.in_flight > 0 {
            self.refresh(slot);
        } else {
            self.forget(slot);
        }
        self.end_rush_if_idle(slot, now);
        if learnt && self.is_patient {
            self.begin_sweep(self.pool.learns_after(), now);
        } else {
            self.sweep_on(now);
        }
        self.replicas[slot as usize].is_open()
    }

    /// Of the call that was sent to `slot` last, see [`Leaving`].
    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.replicas[slot as usize].pace.generation()
    }

    /// Records what a replica said about itself. Must come before the call that brought it is
    /// given back: what the replica has beyond this router's own calls is of others.
    #[inline]
    pub(super) fn report(&mut self, slot: u32, load: Option<Load>, now: Nanos) {
        let Some(load) = load else { return };
        let replica = &mut self.replicas[slot as usize];
        replica.pace.count(&mut self.pool, now);
        replica.reported = Some(load);
        replica.batch = load.batch.map(|batch| BatchView::report(batch, replica.batch, now));
        if load.batch.is_some() != self.is_batching {
            self.is_batching = load.batch.is_some();
            self.keep_again(now);
        }
        let replica = &mut self.replicas[slot as usize];
        let others = load.in_flight.saturating_sub(replica.in_flight);
        replica.others = (others, now);
        let was_shared = self.pool.is_shared();
        self.pool.on_others(others > 0);
        if self.pool.is_shared() == was_shared {
            self.glance(slot);
        } else {
            self.glance_at_all();
        }
    }

    /// Something happened at the replica in `slot` that changes predictions.
    #[inline]
    pub(super) fn glance(&mut self, slot: u32) {
        if self.is_patient {
            let slot = slot as usize;
            self.glances[slot] = Glance::of(&self.replicas[slot], &self.pool);
        }
    }

    /// The inputs of all replicas' predictions have changed.
    #[cold]
    pub(super) fn glance_at_all(&mut self) {
        (0..self.replicas.len() as u32).for_each(|slot| self.glance(slot));
    }

    /// A call took `latency`, of which it spent `processing` in the replica.
    #[inline]
    pub(super) fn on_turnaround(&mut self, slot: u32, latency: Nanos, processing: Nanos) {
        self.pool.on_turnaround(self.replicas[slot as usize].tier, latency, processing);
    }

    /// Ends the backoffs and ejections whose time has passed.
    #[inline]
    pub(super) fn reopen(&mut self, now: Nanos) {
        self.let_back(now);
        self.let_last(now);
        self.ease(now);
        while let Some(slot) = self.backoffs.first_due(now) {
            self.backoffs.remove(slot);
            self.replicas[slot as usize].backoff.on_passed();
            self.refresh(slot);
        }
    }

    /// When the next backoff or ejection ends, or a replica that calls are kept from may take one.
    pub(super) fn next_reopening(&self) -> Option<Nanos> {
        let timers = [self.backoffs.first(), self.returns.first()];
        let times = timers.map(|timer| timer.map(|timer| timer.at));
        times.into_iter().chain([self.long_lived_at, self.late.eases_at]).flatten().min()
    }

    /// The replicas with their slots, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Replica)> {
        self.slots.values().map(|slot| (*slot, &self.replicas[*slot as usize]))
    }

    /// Puts the replica into the open list or takes it out, as it has room or not.
    #[inline]
    pub(super) fn refresh(&mut self, slot: u32) {
        let replica = &mut self.replicas[slot as usize];
        match (replica.has_room(), replica.is_open()) {
            (true, false) => {
                replica.open_position = self.open.len() as u32;
                self.open.push(slot);
            }
            (false, true) => {
                let position = std::mem::replace(&mut replica.open_position, NOT_OPEN);
                self.open.swap_remove(position as usize);
                if let Some(moved) = self.open.get(position as usize) {
                    self.replicas[*moved as usize].open_position = position;
                }
            }
            (true, true) | (false, false) => {}
        }
    }
}

#[inline]
fn choose(
    policy: &mut dyn Policy,
    candidates: Candidates<'_>,
    slots: &[u32],
    rng: &mut SplitMix64,
) -> Option<u32> {
    if candidates.is_empty() {
        return None;
    }
    Some(slots[policy.pick(candidates, rng)])
}
