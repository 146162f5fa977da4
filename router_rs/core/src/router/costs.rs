//! What replicas report of the costs of their requests, and what the router tells of it.

use super::{Offer, Outcome, Release, ReleaseCause, Router};
use crate::cost::{Cost, CostLoad, Kind};
use crate::membership::ReplicaId;
use crate::time::Nanos;

impl Router {
    /// What the call will cost; nothing where nobody asks for it.
    #[inline]
    pub(super) fn estimate(&self, offer: Offer<'_>) -> Cost {
        if self.fleet.costs.is_heard || self.config.queue_cost_max.is_some() {
            return self.fleet.costs.estimate(offer.cost, offer.method, offer.request_bytes);
        }
        Cost::ZERO
    }

    /// A call of these has left the replica in `slot`, which may have said what it has to do.
    #[inline]
    pub(super) fn end_cost(
        &mut self,
        slot: u32,
        costs: (Kind, Cost),
        outcome: Outcome,
        now: Nanos,
    ) {
        let report = outcome.load().and_then(|load| load.cost);
        if self.fleet.costs.is_heard || report.is_some() {
            self.fleet.on_cost(slot, costs, report.as_ref(), now);
        }
    }

    /// `replica` says what it has to do; `None`: it does not say so any more, as its stream of
    /// reports has ended. Of no member: ignored.
    pub fn costs(
        &mut self,
        replica: ReplicaId,
        report: Option<&CostLoad>,
        now: Nanos,
        released: &mut Vec<Release>,
    ) {
        let Some(slot) = self.fleet.member(replica) else { return };
        self.settle(now, released);
        match report {
            Some(report) => self.fleet.on_cost_report(slot, report, now),
            None => self.fleet.costs.view_mut(slot).on_silence(),
        }
        // Calls may have waited that only counts had kept from replicas with room.
        self.release(ReleaseCause::Time, now, released);
    }

    /// Whether a replica has reported its costs.
    pub fn hears_costs(&self) -> bool {
        self.fleet.costs.is_heard
    }

    /// The cost of the parked calls, by its estimates.
    pub fn waiting_cost(&self) -> f64 {
        self.parked_cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{ReplicaSpec, Tier};
    use crate::policy::PolicyKind;
    use crate::replica::Load;
    use crate::router::{Assignment, Decision, Refusal, RouterConfig};

    const BY_LOAD: [PolicyKind; 4] =
        [PolicyKind::Least, PolicyKind::LateBinding, PolicyKind::P2c, PolicyKind::Predicted];

    fn cost(amount: f64) -> Cost {
        Cost::new(amount).expect("an amount")
    }

    fn report(number: u32, running: f64, calls: u32) -> CostLoad {
        CostLoad {
            number,
            budget: cost(1_000.0),
            running: cost(running),
            waiting: Cost::ZERO,
            calls,
            places: 100,
            step: Nanos::from_millis(5),
            wait: Nanos::ZERO,
            own: Cost::ZERO,
        }
    }

    fn router(config: RouterConfig, capacity: u32) -> Router {
        let mut router = Router::new(config);
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity };
        router.apply(&[spec(0), spec(1)], Nanos::ZERO, &mut Vec::new());
        router
    }

    fn tell(router: &mut Router, replica: u64, report: CostLoad) {
        router.costs(ReplicaId(replica), Some(&report), Nanos::ZERO, &mut Vec::new());
    }

    fn send(router: &mut Router, offer: Offer<'_>) -> Assignment {
        match router.offer(offer, Nanos::ZERO) {
            Decision::Send(assignment) => assignment,
            other => panic!("there is room, but {other:?}"),
        }
    }

    fn told(amount: f64) -> Offer<'static> {
        Offer { cost: Some(cost(amount)), ..Offer::default() }
    }

    #[test]
    fn cheap_calls_go_beside_a_replica_that_an_expensive_one_holds() {
        for policy in BY_LOAD {
            let mut router = router(RouterConfig { policy, ..RouterConfig::default() }, 100);
            tell(&mut router, 0, report(1, 900.0, 1));
            tell(&mut router, 1, report(1, 0.0, 0));
            for _ in 0..8 {
                assert_eq!(ReplicaId(1), send(&mut router, told(1.0)).replica, "{policy:?}");
            }
        }
    }

    #[test]
    fn until_every_member_reports_numbers_decide() {
        let mut router = router(RouterConfig::default(), 100);
        tell(&mut router, 0, report(1, 900.0, 1));
        let chosen = [send(&mut router, told(1.0)).replica, send(&mut router, told(1.0)).replica];
        assert_ne!(chosen[0], chosen[1]);
    }

    #[test]
    fn a_replica_that_joins_lets_numbers_decide_until_it_reports() {
        let mut router = router(RouterConfig::default(), 100);
        tell(&mut router, 0, report(1, 900.0, 1));
        tell(&mut router, 1, report(1, 0.0, 0));
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 100 };
        router.apply(&[spec(0), spec(1), spec(2)], Nanos::ZERO, &mut Vec::new());
        let chosen: Vec<u64> = (0..3).map(|_| send(&mut router, told(1.0)).replica.0).collect();
        assert!((0..3).all(|id| chosen.contains(&id)), "{chosen:?}");
    }

    /// Four long ones fill a budget; the router finds out by their lengths that short ones do not.
    #[test]
    fn costs_are_learnt_from_what_calls_of_a_method_and_length_have_cost() {
        let mut router = router(RouterConfig::default(), 100);
        let long = Offer { method: "/m", request_bytes: 5_000, ..Offer::default() };
        let short = Offer { request_bytes: 40, ..long };
        let mut number = 0;
        for (offer, own) in [(long, 400.0), (short, 1.0), (long, 400.0), (short, 1.0)] {
            let call = send(&mut router, offer);
            number += 1;
            let costs = CostLoad { own: cost(own), ..report(number, 0.0, 0) };
            let load = Load {
                in_flight: 0,
                limit: 100,
                processing: None,
                alone: None,
                batch: None,
                cost: Some(costs),
            };
            router.complete(call.ticket, Outcome::done(Some(load)), Nanos::ZERO, &mut Vec::new());
        }
        tell(&mut router, 0, report(number + 1, 0.0, 0));
        tell(&mut router, 1, report(number + 1, 0.0, 0));
        let held = send(&mut router, long).replica;
        for _ in 0..8 {
            assert_ne!(held, send(&mut router, short).replica);
        }
    }

    #[test]
    fn after_the_end_of_its_reports_nothing_of_others_counts() {
        let mut router = router(RouterConfig::default(), 100);
        tell(&mut router, 0, report(1, 900.0, 9));
        tell(&mut router, 1, report(1, 100.0, 1));
        router.costs(ReplicaId(0), None, Nanos::ZERO, &mut Vec::new());
        assert_eq!(ReplicaId(0), send(&mut router, told(1.0)).replica);
    }

    #[test]
    fn routers_that_choose_by_sessions_or_in_turns_do_so_beside_costs() {
        let policy = PolicyKind::RoundRobin;
        let mut router = router(RouterConfig { policy, ..RouterConfig::default() }, 100);
        tell(&mut router, 0, report(1, 900.0, 9));
        tell(&mut router, 1, report(1, 0.0, 0));
        let chosen = [send(&mut router, told(1.0)).replica, send(&mut router, told(1.0)).replica];
        assert_ne!(chosen[0], chosen[1]);
    }

    #[test]
    fn what_waits_may_cost_so_much() {
        let config = RouterConfig { queue_cost_max: Some(cost(100.0)), ..RouterConfig::default() };
        let mut router = router(config, 1);
        send(&mut router, told(1.0));
        send(&mut router, told(1.0));
        let waits = |router: &mut Router, amount| {
            matches!(router.offer(told(amount), Nanos::ZERO), Decision::Parked(_))
        };
        // Larger than what may wait, and alone.
        let Decision::Parked(waiter) = router.offer(told(500.0), Nanos::ZERO) else {
            panic!("nobody waits before it")
        };
        assert!(!waits(&mut router, 1.0));
        router.abandon(waiter, Nanos::ZERO);
        assert!((router.waiting_cost() - 0.0).abs() < 1e-9);
        assert!(waits(&mut router, 60.0) && waits(&mut router, 40.0));
        let refused = Refusal::QueueCostFull { limit: cost(100.0), cost: cost(2.0) };
        assert_eq!(Decision::Refused(refused), router.offer(told(2.0), Nanos::ZERO));
    }
}
