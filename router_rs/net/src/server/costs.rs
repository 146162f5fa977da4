//! The costs of the requests that a replica steps, as part of the load that it reports to routers.

use std::sync::atomic::{AtomicBool, Ordering};

use router_core::{Cost, CostLoad, Nanos};
use tokio::sync::watch;

/// The state between two steps; [`CostLoad`] explains its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostState {
    pub budget: Cost,
    pub running: Cost,
    pub waiting: Cost,
    pub calls: u32,
    pub places: u32,
    pub step: Nanos,
    pub wait: Nanos,
}

/// Where the stepping thread leaves its state for the I/O threads.
#[derive(Debug)]
pub(super) struct CostCell {
    /// Most replicas report no costs: for them this costs one atomic load.
    has_state: AtomicBool,
    state: watch::Sender<Option<Told>>,
}

/// The calls of the replica now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) in_flight: u32,
    /// See [`router_core::Gate::entered`].
    pub(super) entered: u32,
}

/// The state between two steps, and how many calls had entered the replica then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    load: CostLoad,
    entered: u32,
}

impl Default for CostCell {
    fn default() -> Self {
        Self { has_state: AtomicBool::new(false), state: watch::Sender::new(None) }
    }
}

impl CostCell {
    /// Each call is a new report, with the next number; see [`router_core::Gate::entered`].
    pub(super) fn set(&self, state: CostState, entered: u32) {
        let CostState { budget, running, waiting, calls, places, step, wait } = state;
        self.state.send_modify(|told| {
            let number = told.map_or(1, |before| before.load.number.wrapping_add(1));
            let own = Cost::ZERO;
            let load =
                CostLoad { number, budget, running, waiting, calls, places, step, wait, own };
            *told = Some(Told { load, entered });
        });
        self.has_state.store(true, Ordering::Release);
    }

    /// The last report, for the end of a call that has cost so much.
    pub(super) fn load(&self, own: Cost, now: Inside) -> Option<CostLoad> {
        if !self.has_state.load(Ordering::Acquire) {
            return None;
        }
        self.state.borrow().map(|told| CostLoad { own, ..told.load_now(now) })
    }

    /// The reports from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Told>> {
        self.state.subscribe()
    }
}

impl Told {
    /// The state with what has come since and is still there.
    pub(super) fn load_now(self, now: Inside) -> CostLoad {
        let since = now.entered.wrapping_sub(self.entered);
        self.load.with_arrivals(since.min(now.in_flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(entered: u32) -> Inside {
        Inside { in_flight: 100, entered }
    }

    #[test]
    fn each_report_has_the_next_number_and_the_cost_of_the_call_that_brings_it() {
        let cell = CostCell::default();
        assert_eq!(None, cell.load(Cost::ZERO, inside(0)));
        let amount = |amount| Cost::new(amount).expect("an amount");
        let state = CostState {
            budget: amount(100.0),
            running: amount(30.0),
            waiting: Cost::ZERO,
            calls: 3,
            places: 4,
            step: Nanos::from_millis(5),
            wait: Nanos::ZERO,
        };
        let reports = cell.subscribe();
        cell.set(state, 5);
        cell.set(CostState { running: amount(20.0), ..state }, 6);
        let load = cell.load(amount(7.0), inside(6)).expect("there is a state");
        assert_eq!((2, amount(20.0), amount(7.0)), (load.number, load.running, load.own));
        let told = reports.borrow().expect("there is a state");
        assert_eq!(CostLoad { own: Cost::ZERO, ..load }, told.load_now(inside(6)));
    }

    #[test]
    fn calls_that_have_come_since_cost_as_much_as_the_others() {
        let cell = CostCell::default();
        let amount = |amount| Cost::new(amount).expect("an amount");
        let state = CostState {
            budget: amount(100.0),
            running: amount(30.0),
            waiting: amount(10.0),
            calls: 4,
            places: 4,
            step: Nanos::ZERO,
            wait: Nanos::ZERO,
        };
        cell.set(state, u32::MAX);
        let load = cell.load(Cost::ZERO, inside(1)).expect("there is a state");
        assert_eq!((6, amount(30.0), amount(30.0)), (load.calls, load.running, load.waiting));
        cell.set(CostState { running: Cost::ZERO, waiting: Cost::ZERO, calls: 0, ..state }, 1);
        let load = cell.load(Cost::ZERO, inside(3)).expect("there is a state");
        assert_eq!((2, Cost::ZERO), (load.calls, load.waiting));
        // Others have come and gone, of methods that do not step.
        let now = Inside { in_flight: 1, entered: 1_000 };
        assert_eq!(Some(1), cell.load(Cost::ZERO, now).map(|load| load.calls));
    }
}
