//! The replicas, and which of them have room.

use std::collections::BTreeMap;

use crate::backoff::BackoffRule;
use crate::heap::{Timer, TimerHeap};
use crate::policy::{Candidates, Policy};
use crate::replica::{Load, NOT_OPEN, Replica, ReplicaId, ReplicaSpec};
use crate::rng::SplitMix64;
use crate::time::Nanos;

/// All replicas that matter: the members of the last snapshot, and those that left but have calls
/// open. A *slot* is a replica's index; it is given to another replica only when nothing refers to
/// it any more.
///
/// Invariant: `open` lists exactly the slots whose replica has room, so a pick looks at no other.
#[derive(Debug)]
pub(super) struct Fleet {
    replicas: Vec<Replica>,
    slots: BTreeMap<ReplicaId, u32>,
    free_slots: Vec<u32>,
    open: Vec<u32>,
    /// `open` without those that a call has tried; kept for its memory.
    untried: Vec<u32>,
    backoffs: TimerHeap,
    policy: Box<dyn Policy>,
    rng: SplitMix64,
}

impl Fleet {
    pub(super) fn new(policy: Box<dyn Policy>, seed: u64) -> Self {
        Self {
            replicas: Vec::new(),
            slots: BTreeMap::new(),
            free_slots: Vec::new(),
            open: Vec::new(),
            untried: Vec::new(),
            backoffs: TimerHeap::default(),
            policy,
            rng: SplitMix64::new(seed),
        }
    }

    /// Some replica has room.
    #[inline]
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The policy's choice among the replicas with room that are not in `tried`.
    #[inline]
    pub(super) fn pick(&mut self, tried: &[ReplicaId]) -> Option<u32> {
        let open = if tried.is_empty() {
            &self.open
        } else {
            let replicas = &self.replicas;
            let is_untried = |slot: &u32| !tried.contains(&replicas[*slot as usize].id);
            self.untried.clear();
            self.untried.extend(self.open.iter().copied().filter(is_untried));
            &self.untried
        };
        if open.is_empty() {
            return None;
        }
        let index = self.policy.pick(Candidates::new(&self.replicas, open), &mut self.rng);
        Some(open[index])
    }

    /// The policy's choice among those of `slots` that have room and are not in `tried`.
    pub(super) fn pick_of(
        &mut self,
        slots: impl Iterator<Item = u32>,
        tried: &[ReplicaId],
    ) -> Option<u32> {
        let replicas = &self.replicas;
        let may_try = |slot: &u32| {
            let replica = &replicas[*slot as usize];
            replica.is_open() && !tried.contains(&replica.id)
        };
        self.untried.clear();
        self.untried.extend(slots.filter(may_try));
        self.pick_untried()
    }

    /// The policy's choice among those with the lowest `cost` of the replicas with room that are
    /// not in `tried`.
    pub(super) fn pick_cheapest(
        &mut self,
        tried: &[ReplicaId],
        cost: impl Fn(u32) -> usize,
    ) -> Option<u32> {
        let replicas = &self.replicas;
        let is_untried = |slot: &u32| !tried.contains(&replicas[*slot as usize].id);
        let untried = self.open.iter().copied().filter(is_untried);
        let lowest = untried.clone().map(&cost).min()?;
        self.untried.clear();
        self.untried.extend(untried.filter(|slot| cost(*slot) == lowest));
        self.pick_untried()
    }

    fn pick_untried(&mut self) -> Option<u32> {
        if self.untried.is_empty() {
            return None;
        }
        let candidates = Candidates::new(&self.replicas, &self.untried);
        let index = self.policy.pick(candidates, &mut self.rng);
        Some(self.untried[index])
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

    /// Takes one place at the replica in `slot`, even beyond its capacity.
    #[inline]
    pub(super) fn take_beyond(&mut self, slot: u32) -> ReplicaId {
        let replica = &mut self.replicas[slot as usize];
        replica.in_flight += 1;
        let id = replica.id;
        self.refresh(slot);
        id
    }

    /// Takes one place at the replica in `slot`.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> ReplicaId {
        let replica = &self.replicas[slot as usize];
        debug_assert!(replica.has_room(), "{:?} gets a call without having room", replica.id);
        self.take_beyond(slot)
    }

    /// Gives one place back; returns whether the replica has room now.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) -> bool {
        let replica = &mut self.replicas[slot as usize];
        debug_assert!(replica.in_flight > 0, "{:?} has no call to end", replica.id);
        replica.in_flight -= 1;
        if replica.is_member || replica.in_flight > 0 {
            self.refresh(slot);
        } else {
            self.forget(slot);
        }
        self.replicas[slot as usize].is_open()
    }

    pub(super) fn id(&self, slot: u32) -> ReplicaId {
        self.replicas[slot as usize].id
    }

    /// Records what a replica said about itself.
    #[inline]
    pub(super) fn report(&mut self, slot: u32, load: Option<Load>) {
        if load.is_some() {
            self.replicas[slot as usize].reported = load;
        }
    }

    /// A call ended well: the replica is reachable and has freed a place, so its backoff ends.
    #[inline]
    pub(super) fn on_success(&mut self, slot: u32) {
        let backoff = &mut self.replicas[slot as usize].backoff;
        if backoff.is_active() {
            self.backoffs.remove(slot);
        }
        backoff.on_success();
    }

    /// A call did not start: the replica is left alone for a while.
    pub(super) fn on_failure(&mut self, slot: u32, rule: BackoffRule, now: Nanos) {
        let backoff = &mut self.replicas[slot as usize].backoff;
        if let Some(at) = backoff.on_failure(rule, now) {
            self.backoffs.insert(Timer { at, sequence: u64::from(slot), index: slot });
            self.refresh(slot);
        }
    }

    /// Ends the backoffs whose time has passed.
    #[inline]
    pub(super) fn reopen(&mut self, now: Nanos) {
        while let Some(slot) = self.backoffs.first_due(now) {
            self.backoffs.remove(slot);
            self.replicas[slot as usize].backoff.on_passed();
            self.refresh(slot);
        }
    }

    /// When the next backoff ends.
    pub(super) fn next_reopening(&self) -> Option<Nanos> {
        self.backoffs.first().map(|timer| timer.at)
    }

    /// Makes `specs` the membership (of two entries with one id the later counts); tells `left` of
    /// each slot whose replica is no member now, and returns whether a replica joined or a
    /// capacity rose.
    pub(super) fn apply(&mut self, specs: &[ReplicaSpec], mut left: impl FnMut(u32)) -> bool {
        let before: Vec<u32> = self.slots.values().copied().collect();
        let was_member: Vec<bool> = self.replicas.iter().map(|replica| replica.is_member).collect();
        for slot in &before {
            self.replicas[*slot as usize].is_member = false;
        }
        let mut gained = false;
        for spec in specs {
            let slot = self.slot_for(spec);
            let replica = &mut self.replicas[slot as usize];
            let known = was_member.get(slot as usize).copied().unwrap_or(false);
            gained |= !known || spec.capacity > replica.capacity;
            replica.tier = spec.tier;
            replica.capacity = spec.capacity;
            replica.is_member = true;
            self.refresh(slot);
        }
        for slot in before {
            let replica = &self.replicas[slot as usize];
            if !replica.is_member {
                left(slot);
            }
            if !replica.is_member && replica.in_flight == 0 {
                self.forget(slot);
            } else {
                self.refresh(slot);
            }
        }
        gained
    }

    /// The replicas with their slots, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Replica)> {
        self.slots.values().map(|slot| (*slot, &self.replicas[*slot as usize]))
    }

    fn slot_for(&mut self, spec: &ReplicaSpec) -> u32 {
        if let Some(slot) = self.slots.get(&spec.id) {
            return *slot;
        }
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.replicas[slot as usize] = Replica::new(spec);
            slot
        } else {
            self.replicas.push(Replica::new(spec));
            (self.replicas.len() - 1) as u32
        };
        self.slots.insert(spec.id, slot);
        slot
    }

    fn forget(&mut self, slot: u32) {
        self.refresh(slot);
        self.backoffs.remove(slot);
        self.slots.remove(&self.replicas[slot as usize].id);
        self.free_slots.push(slot);
    }

    /// Puts the replica into the open list or takes it out, as it has room or not.
    #[inline]
    fn refresh(&mut self, slot: u32) {
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
