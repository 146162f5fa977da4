//! The router's model of a replica that takes its calls in steps.
//!
//! A step begins when none runs and it is full or its first call has waited for the window. The
//! replica reports its state from time to time ([`BatchLoad`]). Between two reports the router
//! simulates the same rule with the calls that it sends.

use crate::time::Nanos;

/// The part of a step's fixed time that is charged to the call that opens it. All of it: the
/// replica spends it because the call did not join others.
const OPENING_SHARE: f64 = 1.0;
/// The most steps that a replica is expected to be behind; beyond that all are treated alike.
const STEPS_MAX: u32 = 64;

/// The state that the batcher of a replica reports. A *step* is one run of the batched function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLoad {
    /// The most calls of one step.
    pub size_max: u32,
    /// Calls that wait for the next step.
    pub waiting: u32,
    /// How long the step that runs now is expected to go on; 0: none runs.
    pub busy: Nanos,
    /// How long the first of those that wait may wait for others, from now.
    pub window: Nanos,
    /// A step's expected time is `step_fixed + calls × step_per_call`.
    pub step_fixed: Nanos,
    /// See `step_fixed`.
    pub step_per_call: Nanos,
}

/// The simulated steps of one replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchView {
    load: BatchLoad,
    /// How long the first call of a step waits for others: the longest that was reported.
    window: Nanos,
    /// Calls that wait for the next step.
    waiting: u32,
    /// When the first of them arrived.
    opened_at: Nanos,
    /// When the current step ends; in the past: none runs.
    busy_until: Nanos,
}

impl BatchView {
    /// Adopts the replica's report at `now`; `before` is the simulation until then.
    pub(crate) fn report(load: BatchLoad, before: Option<Self>, now: Nanos) -> Self {
        let window = before.map_or(load.window, |before| before.window.max(load.window));
        Self {
            load: BatchLoad { size_max: load.size_max.max(1), ..load },
            window,
            waiting: load.waiting,
            opened_at: now.saturating_add(load.window).saturating_sub(window),
            busy_until: now.saturating_add(load.busy),
        }
    }

    /// One more call is sent there.
    pub(crate) fn on_sent(&mut self, now: Nanos) {
        *self = self.at(now);
        if self.waiting == 0 {
            self.opened_at = now;
        }
        self.waiting += 1;
    }

    /// After how many nanoseconds one more call is answered, including its cost for others: a call
    /// that opens a step is charged with its fixed time.
    #[inline]
    pub(crate) fn finish_ns(&self, now: Nanos) -> f64 {
        let view = self.at(now);
        let size = view.load.size_max;
        let (steps, place) = (view.waiting / size, view.waiting % size);
        let starts_at = view.starts_at(view.waiting + 1, now);
        let starts_ns = starts_at.saturating_sub(now).0 as f64;
        let full_ns = self.step(size).0 as f64 * f64::from(steps.min(STEPS_MAX));
        let opening = if place == 0 { OPENING_SHARE } else { 0.0 };
        let opening_ns = view.load.step_fixed.0 as f64 * opening;
        starts_ns + full_ns + self.step(place + 1).0 as f64 + opening_ns
    }

    /// The state after the steps that have begun by `now`.
    #[inline]
    fn at(&self, now: Nanos) -> Self {
        let mut view = *self;
        for _ in 0..STEPS_MAX {
            let starts_at = view.starts_at(view.waiting, now);
            if view.waiting == 0 || starts_at > now {
                break;
            }
            let size = view.waiting.min(view.load.size_max);
            view.waiting -= size;
            view.busy_until = starts_at.saturating_add(view.step(size));
        }
        view
    }

    /// When the next step begins with this many waiting calls, all of which came by `now`.
    #[inline]
    fn starts_at(&self, waiting: u32, now: Nanos) -> Nanos {
        let opened_at = if self.waiting == 0 { now } else { self.opened_at };
        if waiting >= self.load.size_max {
            return self.busy_until.max(opened_at);
        }
        self.busy_until.max(opened_at.saturating_add(self.window))
    }

    #[inline]
    fn step(&self, calls: u32) -> Nanos {
        let per_call = self.load.step_per_call.saturating_mul(u64::from(calls));
        self.load.step_fixed.saturating_add(per_call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of at most four calls, 8 ms and 1 ms a call; the first waits for 5 ms.
    fn idle() -> BatchView {
        let load = BatchLoad {
            size_max: 4,
            waiting: 0,
            busy: Nanos::ZERO,
            window: Nanos::from_millis(5),
            step_fixed: Nanos::from_millis(8),
            step_per_call: Nanos::from_millis(1),
        };
        BatchView::report(load, None, Nanos::ZERO)
    }

    fn finish_ms(view: &BatchView, now_ms: u64) -> f64 {
        view.finish_ns(Nanos::from_millis(now_ms)) / 1e6
    }

    #[test]
    fn who_opens_a_step_pays_for_it_and_who_joins_does_not() {
        let mut view = idle();
        // The window, the step of one, and the opening.
        assert!((finish_ms(&view, 0) - (5.0 + 9.0 + 8.0)).abs() < 1e-9);
        view.on_sent(Nanos::ZERO);
        assert!((finish_ms(&view, 2) - (3.0 + 10.0)).abs() < 1e-9);
        // The third comes, and with the fourth the step leaves at once.
        view.on_sent(Nanos::from_millis(2));
        view.on_sent(Nanos::from_millis(2));
        assert!((finish_ms(&view, 2) - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_that_has_left_keeps_the_replica_busy_for_the_next() {
        let mut view = idle();
        view.on_sent(Nanos::ZERO);
        // It left at 5 and runs until 14; a call that opens the next step at 12 waits for its
        // window.
        assert!((finish_ms(&view, 12) - (5.0 + 9.0 + 8.0)).abs() < 1e-9);
        assert!((finish_ms(&view, 6) - (8.0 + 9.0 + 8.0)).abs() < 1e-9);
    }

    #[test]
    fn a_report_is_the_truth() {
        let mut view = idle();
        for _ in 0..3 {
            view.on_sent(Nanos::ZERO);
        }
        let load = BatchLoad {
            waiting: 2,
            busy: Nanos::from_millis(6),
            window: Nanos::from_millis(1),
            ..idle().load
        };
        let view = BatchView::report(load, Some(view), Nanos::from_millis(10));
        assert!((finish_ms(&view, 10) - (6.0 + 11.0)).abs() < 1e-9);
    }
}
