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
    state: watch::Sender<Option<CostLoad>>,
}

impl Default for CostCell {
    fn default() -> Self {
        Self { has_state: AtomicBool::new(false), state: watch::Sender::new(None) }
    }
}

impl CostCell {
    /// Each call is a new report, with the next number.
    pub(super) fn set(&self, state: CostState) {
        let CostState { budget, running, waiting, calls, places, step, wait } = state;
        self.state.send_modify(|load| {
            let number = load.map_or(1, |before| before.number.wrapping_add(1));
            let own = Cost::ZERO;
            *load =
                Some(CostLoad { number, budget, running, waiting, calls, places, step, wait, own });
        });
        self.has_state.store(true, Ordering::Release);
    }

    /// The last report, for the end of a call that has cost so much.
    pub(super) fn load(&self, own: Cost) -> Option<CostLoad> {
        if !self.has_state.load(Ordering::Acquire) {
            return None;
        }
        self.state.borrow().map(|load| CostLoad { own, ..load })
    }

    /// The reports from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<CostLoad>> {
        self.state.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_has_the_next_number_and_the_cost_of_the_call_that_brings_it() {
        let cell = CostCell::default();
        assert_eq!(None, cell.load(Cost::ZERO));
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
        cell.set(state);
        cell.set(CostState { running: amount(20.0), ..state });
        let load = cell.load(amount(7.0)).expect("there is a state");
        assert_eq!((2, amount(20.0), amount(7.0)), (load.number, load.running, load.own));
        assert_eq!(Some(CostLoad { own: Cost::ZERO, ..load }), *reports.borrow());
    }
}
