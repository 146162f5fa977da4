//! The replicas, and their slots.

use super::Fleet;
use crate::membership::{ReplicaId, ReplicaSpec};
use crate::policy::Glance;
use crate::replica::Replica;
use crate::time::Nanos;

impl Fleet {
    /// Makes `specs` the membership (of two entries with one id the later counts). Calls `left` for
    /// each slot whose replica is not a member any more, and returns whether a replica joined or a
    /// capacity rose. A replica that joins others gets its full share at `warm_at`.
    pub(in crate::router) fn apply(
        &mut self,
        specs: &[ReplicaSpec],
        (now, warm_at): (Nanos, Nanos),
        mut left: impl FnMut(u32),
    ) -> bool {
        let is_first = self.slots.is_empty();
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
            if !known && !is_first {
                replica.warm_up(now, warm_at);
                self.warm_at = self.warm_at.max(warm_at);
            }
            replica.tier = spec.tier;
            replica.capacity = spec.capacity;
            replica.is_member = true;
            self.glance(slot);
            if self.late.is_on {
                self.bind(slot, now);
            }
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
        self.members = self.replicas.iter().filter(|replica| replica.is_member).count() as u32;
        self.pardon_if_all_are_out(now);
        self.look_at_reach(now);
        self.follow_costs(now);
        gained
    }

    pub(in crate::router) fn id(&self, slot: u32) -> ReplicaId {
        self.replicas[slot as usize].id
    }

    fn slot_for(&mut self, spec: &ReplicaSpec) -> u32 {
        if let Some(slot) = self.slots.get(&spec.id) {
            return *slot;
        }
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.replicas[slot as usize] = Replica::new(spec);
            self.glances[slot as usize] = Glance::NONE;
            self.speeds.forget(slot);
            self.costs.forget(slot);
            slot
        } else {
            self.replicas.push(Replica::new(spec));
            self.glances.push(Glance::NONE);
            (self.replicas.len() - 1) as u32
        };
        self.slots.insert(spec.id, slot);
        slot
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.refresh(slot);
        self.backoffs.remove(slot);
        self.returns.remove(slot);
        self.slots.remove(&self.replicas[slot as usize].id);
        self.free_slots.push(slot);
    }

    /// Leaves those on which the least has been placed.
    pub(super) fn keep_least_demanded(&self, candidates: &mut Vec<u32>, now: Nanos) {
        let demand = |slot: &u32| {
            let replica = &self.replicas[*slot as usize];
            replica.demand.at(replica.in_flight, now)
        };
        let least = candidates.iter().map(demand).min();
        candidates.retain(|slot| Some(demand(slot)) == least);
    }
}
