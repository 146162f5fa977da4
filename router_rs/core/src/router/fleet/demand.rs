//! Who is given what stays: a model, a session.

use super::Fleet;
use crate::time::Nanos;

impl Fleet {
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
