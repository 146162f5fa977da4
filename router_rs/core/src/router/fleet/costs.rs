//! Who gets the next call, by what calls cost.
//!
//! Where every member reports its costs, policies that would choose by the number of calls choose by
//! these instead. Elsewhere nothing is counted.

use super::{Fleet, Query, choose};
use crate::cost::{Cost, CostChoice, CostLoad, Kind};
use crate::policy::Candidates;
use crate::time::Nanos;

impl Fleet {
    /// A call is over at the replica in `slot`, which may have said what it has to do.
    pub(in crate::router) fn on_cost(
        &mut self,
        slot: u32,
        (kind, estimate): (Kind, Cost),
        report: Option<&CostLoad>,
        now: Nanos,
    ) {
        if let Some(report) = report {
            self.costs.is_heard = true;
            if report.own > Cost::ZERO {
                self.costs.learn(kind, report.own);
            }
        }
        let view = self.costs.view_mut(slot);
        let was_known = view.is_known;
        view.on_ended(estimate, report);
        if view.is_known != was_known {
            self.follow_costs(now);
        }
        if report.is_some() {
            self.costs.count_others();
        }
    }

    /// The replica in `slot` says what it has to do.
    pub(in crate::router) fn on_cost_report(&mut self, slot: u32, report: &CostLoad, now: Nanos) {
        self.costs.is_heard = true;
        if self.costs.view_mut(slot).on_report(report) {
            self.follow_costs(now);
        }
        self.costs.count_others();
    }

    /// Whether every member reports its costs: from then on these decide. What was learnt of
    /// numbers of calls keeps none back then.
    pub(in crate::router) fn follow_costs(&mut self, now: Nanos) {
        if !self.costs.is_heard {
            return;
        }
        let members = self.iter().filter(|(_, replica)| replica.is_member);
        let known = members.filter(|(slot, _)| self.costs.view(*slot).is_known).count();
        let is_on = known > 0 && known == self.members as usize;
        if is_on != self.costs.is_on {
            self.costs.is_on = is_on;
            self.keep_again(now);
        }
    }

    /// The choice among all replicas with room, where each reports its costs.
    #[cold]
    #[inline(never)]
    pub(super) fn pick_by_cost(&mut self, query: Query<'_>) -> Option<u32> {
        let open = std::mem::take(&mut self.open);
        let slot = self.choose_of(&open, query);
        self.open = open;
        slot
    }

    /// The policy's choice among these, by cost if that is how it chooses.
    pub(super) fn choose_of(&mut self, slots: &[u32], query: Query<'_>) -> Option<u32> {
        let choice = self.policy.by_cost();
        if self.costs.is_on && choice != CostChoice::Never {
            let has_any = !slots.is_empty();
            return has_any.then(|| self.costs.pick(choice, slots, query.cost, &mut self.rng));
        }
        let scene = self.scene(query);
        let seen = Candidates::new((&self.replicas, &self.glances), slots, &self.pool, scene);
        choose(&mut *self.policy, seen, slots, &mut self.rng)
    }
}
