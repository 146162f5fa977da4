//! What replicas have to do, by what calls cost, and which of them has the least.

use crate::cost::{Cost, CostChoice, CostLoad, Estimates, Kind};
use crate::rng::SplitMix64;

/// A call of this router stands for so many at most that others send at the same time. Arbitrary.
const ROUTERS_MAX: f64 = 16.0;
/// A call since a replica's last report stands for twice as many as there are calls of others beside
/// one of ours. With once as many, a workload of decision 0037 has a p99 of 1.3 times its rival's, with
/// twice as many one of 1.01.
const OTHERS_WEIGHT: f64 = 2.0;

/// The costs of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// A replica has reported its costs, now or before.
    pub(crate) is_heard: bool,
    /// Every member reports its costs.
    pub(crate) is_on: bool,
    /// By slot, as far as one has reported.
    views: Vec<CostView>,
    estimates: Estimates,
    others: Others,
}

/// The calls of other routers, by the last reports of the replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// How many there are for each call of this router.
    for_each: f64,
    calls: f64,
}

impl Costs {
    /// What the call will cost: as its client says, or as calls like it.
    pub(crate) fn estimate(&self, told: Option<Cost>, method: &str, request_bytes: u64) -> Cost {
        let learnt = || self.estimates.of(Kind::of(method, request_bytes));
        told.or_else(learnt).unwrap_or(Cost::ONE)
    }

    /// By which what a call has cost is learnt; of no meaning where no replica reports any.
    #[inline]
    pub(crate) fn kind(&self, method: &str, request_bytes: u64) -> Kind {
        if self.is_heard { Kind::of(method, request_bytes) } else { Kind::default() }
    }

    /// A call of this kind has cost so much.
    pub(crate) fn learn(&mut self, kind: Kind, cost: Cost) {
        self.estimates.learn(kind, cost);
    }

    pub(crate) fn view(&self, slot: u32) -> CostView {
        self.views.get(slot as usize).copied().unwrap_or_default()
    }

    pub(crate) fn view_mut(&mut self, slot: u32) -> &mut CostView {
        let slot = slot as usize;
        if slot >= self.views.len() {
            self.views.resize(slot + 1, CostView::default());
        }
        &mut self.views[slot]
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, slot: u32, cost: Cost) {
        if self.is_heard {
            self.view_mut(slot).on_sent(cost);
        }
    }

    /// A replica has said what it has to do.
    pub(crate) fn count_others(&mut self) {
        let (mut all, mut own) = (0.0, 0.0);
        for view in &self.views {
            let (of_all, of_own) = view.shares();
            all += of_all;
            own += of_own;
        }
        let for_each = (all / own.max(1.0)).clamp(1.0, ROUTERS_MAX) - 1.0;
        self.others = Others { for_each, calls: (all - own).max(0.0) };
    }

    /// Another replica has the slot from now on.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(view) = self.views.get_mut(slot as usize) {
            *view = CostView::default();
        }
    }

    /// Of `open`, at least one, the slot that has the least to do with one more call of this cost.
    ///
    /// Beside other routers, which know the same, each replica is taken to get some of their calls at
    /// the same time, as many as chance says: otherwise all routers would choose the same one.
    pub(crate) fn pick(
        &self,
        choice: CostChoice,
        open: &[u32],
        cost: Cost,
        rng: &mut SplitMix64,
    ) -> u32 {
        let others = self.others;
        let pair = (choice == CostChoice::OfTwo && open.len() > 2).then(|| {
            let (first, second) = rng.distinct_pair_below(open.len() as u32);
            (open[first as usize], open[second as usize])
        });
        let with = |slot: u32, rng: &mut SplitMix64| {
            let view = self.view(slot);
            let at_once = if others.for_each > 0.0 { others.for_each * rng.unit() } else { 0.0 };
            view.with(cost, others) + at_once * view.share(Amount::one(cost))
        };
        if let Some((first, second)) = pair {
            return if with(second, rng) < with(first, rng) { second } else { first };
        }
        let (mut least, mut chosen, mut ties) = (f64::INFINITY, open[0], 0);
        for slot in open {
            let cost = with(*slot, rng);
            if cost > least {
                continue;
            }
            ties = if cost < least { 1 } else { ties + 1 };
            // The nth of equals replaces those before it in one of n cases.
            if ties == 1 || rng.below(ties) == 0 {
                (least, chosen) = (cost, *slot);
            }
        }
        chosen
    }
}

/// What one replica has to do, by its last word and by what this router has sent since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostView {
    /// This router's calls there, by their estimates and by number.
    own: Amount,
    /// What the replica has reported beyond these: the calls of other routers, and what estimates
    /// lacked. Below zero where estimates were too high.
    beyond: Amount,
    /// Those of this router's calls that were sent since.
    since: Amount,
    /// What it may hold at once; 0: any cost.
    most: Amount,
    number: u32,
    /// It has reported its costs.
    pub(crate) is_known: bool,
}

/// Calls, by cost and by number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) cost: f64,
    pub(crate) calls: f64,
}

impl Amount {
    fn one(cost: Cost) -> Self {
        Self { cost: cost.amount(), calls: 1.0 }
    }

    fn plus(self, other: Self, times: f64) -> Self {
        let cost = other.cost.mul_add(times, self.cost);
        Self { cost, calls: other.calls.mul_add(times, self.calls) }
    }

    fn at_least_none(self) -> Self {
        Self { cost: self.cost.max(0.0), calls: self.calls.max(0.0) }
    }
}

impl CostView {
    /// How full it would be with one more call of this cost, when others have sent calls as this
    /// router has since the last report.
    ///
    /// The larger part of its budget and of its states, whichever runs out first (the dominant share
    /// of Ghodsi and others, 2011). Up to 1 the call gets a state at once.
    #[inline]
    pub(crate) fn with(&self, cost: Cost, others: Others) -> f64 {
        self.share(self.outstanding(others).plus(Amount::one(cost), 1.0))
    }

    #[inline]
    fn share(&self, all: Amount) -> f64 {
        if self.most.cost == 0.0 {
            return all.cost;
        }
        (all.cost / self.most.cost).max(all.calls / self.most.calls.max(1.0))
    }

    /// What it has to do.
    #[inline]
    pub(crate) fn outstanding(&self, others: Others) -> Amount {
        // They cannot have sent more than they have.
        let most = others.calls / self.since.calls.max(1.0);
        let times = (OTHERS_WEIGHT * others.for_each).min(most);
        self.own.plus(self.beyond, 1.0).plus(self.since, times).at_least_none()
    }

    /// By its last word, and how much of that is this router's.
    pub(crate) fn shares(&self) -> (f64, f64) {
        (self.own.plus(self.beyond, 1.0).calls.max(0.0), self.own.calls)
    }

    pub(crate) fn on_sent(&mut self, cost: Cost) {
        self.own = self.own.plus(Amount::one(cost), 1.0);
        self.since = self.since.plus(Amount::one(cost), 1.0);
    }

    /// A call is over that was sent with this estimate. If the replica has reported since, the call
    /// is not in the report.
    pub(crate) fn on_ended(&mut self, cost: Cost, report: Option<&CostLoad>) {
        self.own = self.own.plus(Amount::one(cost), -1.0).at_least_none();
        match report {
            Some(report) if self.is_new(report) => self.report(report),
            // It ended before the report that came first, which is without it.
            Some(_) => self.beyond = self.beyond.plus(Amount::one(cost), 1.0),
            None => {}
        }
    }

    /// The replica says what it has to do; returns whether it has never said so before.
    pub(crate) fn on_report(&mut self, report: &CostLoad) -> bool {
        let is_first = !self.is_known;
        if self.is_new(report) {
            self.report(report);
        }
        is_first
    }

    /// The replica does not report any more: what it had of other routers may be over.
    pub(crate) fn on_silence(&mut self) {
        self.beyond = Amount::default();
    }

    fn is_new(&self, report: &CostLoad) -> bool {
        // Numbers begin again after 2^32 reports.
        !self.is_known || report.number.wrapping_sub(self.number).cast_signed() > 0
    }

    fn report(&mut self, report: &CostLoad) {
        self.is_known = true;
        self.number = report.number;
        self.most = Amount { cost: report.budget.amount(), calls: report.places.into() };
        let cost = report.running.amount() + report.waiting.amount();
        let all = Amount { cost, calls: report.calls.into() };
        self.beyond = all.plus(self.own, -1.0);
        self.since = Amount::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Nanos;

    const TWO: Others = Others { for_each: 2.0, calls: 16.0 };
    const ALONE: Others = Others { for_each: 0.0, calls: 0.0 };

    fn cost(amount: f64) -> Cost {
        Cost::new(amount).expect("an amount")
    }

    fn report(number: u32, running: f64, waiting: f64) -> CostLoad {
        CostLoad {
            number,
            budget: cost(100.0),
            running: cost(running),
            waiting: cost(waiting),
            calls: 0,
            places: 1_000,
            step: Nanos::ZERO,
            wait: Nanos::ZERO,
            own: Cost::ZERO,
        }
    }

    #[test]
    fn calls_since_the_last_report_count_by_their_estimates() {
        let mut view = CostView::default();
        view.on_sent(cost(10.0));
        assert!(view.on_report(&report(1, 50.0, 20.0)));
        view.on_sent(cost(5.0));
        assert!((view.with(cost(25.0), ALONE) - 1.0).abs() < 1e-9, "{view:?}");
        // It left without an answer.
        view.on_ended(cost(5.0), None);
        assert!((view.outstanding(ALONE).cost - 70.0).abs() < 1e-9, "{view:?}");
        assert!(!view.on_report(&report(2, 30.0, 0.0)));
        assert!((view.outstanding(ALONE).cost - 30.0).abs() < 1e-9, "{view:?}");
    }

    /// Another router, which knows as much, sends as many calls at the same time.
    #[test]
    fn calls_since_the_last_report_stand_for_those_of_other_routers() {
        let mut view = CostView::default();
        view.on_report(&CostLoad { calls: 4, ..report(1, 10.0, 0.0) });
        view.on_sent(cost(5.0));
        assert_eq!(Amount { cost: 35.0, calls: 9.0 }, view.outstanding(TWO));
        let few = Others { calls: 1.0, ..TWO };
        assert_eq!(Amount { cost: 20.0, calls: 6.0 }, view.outstanding(few));
        view.on_report(&CostLoad { calls: 7, ..report(2, 22.0, 0.0) });
        assert_eq!(Amount { cost: 22.0, calls: 7.0 }, view.outstanding(TWO));
    }

    #[test]
    fn what_runs_out_first_counts() {
        let mut view = CostView::default();
        view.on_report(&CostLoad { calls: 3, places: 4, ..report(1, 10.0, 0.0) });
        assert!((view.with(cost(10.0), ALONE) - 1.0).abs() < 1e-9, "{view:?}");
        assert!((view.with(cost(190.0), ALONE) - 2.0).abs() < 1e-9, "{view:?}");
    }

    /// Two calls end with one step: both answers bring what the replica has after it.
    #[test]
    fn a_report_that_came_before_is_without_the_call_that_brings_it() {
        let mut view = CostView::default();
        (0..3).for_each(|_| view.on_sent(cost(10.0)));
        view.on_ended(cost(10.0), Some(&report(7, 10.0, 0.0)));
        view.on_sent(cost(40.0));
        view.on_ended(cost(10.0), Some(&report(7, 10.0, 0.0)));
        assert!((view.outstanding(ALONE).cost - 50.0).abs() < 1e-9, "{view:?}");
        view.on_ended(cost(10.0), Some(&report(6, 20.0, 0.0)));
        assert!((view.outstanding(ALONE).cost - 50.0).abs() < 1e-9, "{view:?}");
    }

    #[test]
    fn numbers_may_begin_again() {
        let mut view = CostView::default();
        view.on_report(&report(u32::MAX, 9.0, 0.0));
        view.on_report(&report(3, 4.0, 0.0));
        assert!((view.outstanding(ALONE).cost - 4.0).abs() < 1e-9, "{view:?}");
    }

    /// Whatever was estimated, nothing is left of calls that are over.
    #[test]
    fn after_the_last_call_and_report_nothing_is_outstanding() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let (mut view, mut open, mut number) = (CostView::default(), Vec::new(), 0);
            for _ in 0..100 {
                if rng.below(2) == 0 {
                    let estimate = cost(f64::from(rng.below(1_000)));
                    view.on_sent(estimate);
                    open.push(estimate);
                } else if let Some(estimate) = open.pop() {
                    number += rng.below(2);
                    let told = report(number, f64::from(rng.below(1_000)), 0.0);
                    view.on_ended(estimate, Some(&told).filter(|_| rng.below(4) > 0));
                }
                assert!(view.outstanding(ALONE).cost >= 0.0, "{view:?}");
            }
            for estimate in open {
                view.on_ended(estimate, None);
            }
            view.on_report(&report(number + 1, 0.0, 0.0));
            assert!(view.outstanding(ALONE).cost < 1e-6, "seed {seed}: {view:?}");
        }
    }
}
