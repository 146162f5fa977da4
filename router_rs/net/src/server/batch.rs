//! The state of the replica's batcher, for the load that is reported to routers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use router_core::{BatchLoad, Nanos};

/// The batcher's state when a step begins or ends, or when the first call begins to wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchState {
    /// The most calls of one step.
    pub size_max: u32,
    /// Calls in the steps that run.
    pub running: u32,
    /// When the step that runs is expected to end; `None`: an executor is free.
    pub busy_until: Option<Instant>,
    /// Until when the first waiting call may wait for others to join its step.
    pub window_until: Option<Instant>,
    /// A step's expected time is `step_fixed + calls * step_per_call`.
    pub step_fixed: Nanos,
    /// See `step_fixed`.
    pub step_per_call: Nanos,
}

/// Where the batcher leaves its state for the I/O threads.
#[derive(Debug, Default)]
pub(super) struct BatchCell {
    /// Most replicas have no batcher: for them this costs one atomic load.
    has_state: AtomicBool,
    state: Mutex<Option<BatchState>>,
}

impl BatchCell {
    pub(super) fn set(&self, state: Option<BatchState>) {
        *self.state.lock() = state;
        self.has_state.store(state.is_some(), Ordering::Release);
    }

    /// The state to report to a router, for a replica with `in_flight` calls.
    pub(super) fn load(&self, in_flight: u32) -> Option<BatchLoad> {
        if !self.has_state.load(Ordering::Acquire) {
            return None;
        }
        let state = (*self.state.lock())?;
        let now = Instant::now();
        let left = |until: Option<Instant>| {
            let left = until.map(|until| until.saturating_duration_since(now).as_nanos());
            Nanos(u64::try_from(left.unwrap_or(0)).unwrap_or(u64::MAX))
        };
        Some(BatchLoad {
            size_max: state.size_max,
            waiting: in_flight.saturating_sub(state.running),
            busy: left(state.busy_until),
            window: left(state.window_until),
            step_fixed: state.step_fixed,
            step_per_call: state.step_per_call,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn routers_are_told_what_is_left_and_who_waits() {
        let cell = BatchCell::default();
        assert_eq!(None, cell.load(3));
        let state = BatchState {
            size_max: 8,
            running: 4,
            busy_until: Some(Instant::now() + Duration::from_secs(60)),
            window_until: None,
            step_fixed: Nanos(5),
            step_per_call: Nanos(1),
        };
        cell.set(Some(state));
        let load = cell.load(6).expect("there is a batcher");
        assert_eq!((8, 2, Nanos::ZERO), (load.size_max, load.waiting, load.window));
        assert!((Nanos::from_secs(50)..=Nanos::from_secs(60)).contains(&load.busy), "{load:?}");
        cell.set(None);
        assert_eq!(None, cell.load(6));
    }
}
