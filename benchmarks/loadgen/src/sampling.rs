//! Which calls count, and with which latency. Pure: times are arguments.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// Highest latency that is told apart; longer ones count as this. Ten minutes: longer than a run.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Three digits: a reading is at most 0.1 % off.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The rule by which a call belongs to the measurement. Times are nanoseconds since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Closed loop for a time: what completes from `begin_ns` until before `end_ns`.
    Completed { begin_ns: u64, end_ns: u64 },
    /// Closed loop for a count: what starts from `begin_ns` on; the driver stops at the count.
    Started { begin_ns: u64 },
    /// Open loop: what was *due* from `begin_ns` until before `end_ns`, however late it came.
    Due { begin_ns: u64, end_ns: u64 },
}

impl Window {
    fn holds(self, times: CallTimes) -> bool {
        match self {
            Self::Completed { begin_ns, end_ns } => (begin_ns..end_ns).contains(&times.end_ns),
            Self::Started { begin_ns } => times.due_ns >= begin_ns,
            Self::Due { begin_ns, end_ns } => (begin_ns..end_ns).contains(&times.due_ns),
        }
    }
}

/// `due_ns <= start_ns <= end_ns`; in a closed loop `due_ns == start_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimes {
    /// When the schedule wanted the call to start.
    pub due_ns: u64,
    /// When the generator did start it.
    pub start_ns: u64,
    /// When its answer was complete and checked.
    pub end_ns: u64,
}

/// What one call brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub messages: u64,
    pub received_bytes: u64,
    /// `None`: status OK and the answer as expected; else a short, stable name of the error.
    pub error: Option<String>,
}

/// Collects the outcomes of a run.
#[derive(Debug)]
pub struct Samples {
    window: Window,
    /// Every call that ended, warm-up included.
    pub calls_total: u64,
    /// Calls inside the window.
    pub calls: u64,
    pub ok: u64,
    pub messages: u64,
    pub received_bytes: u64,
    pub errors: BTreeMap<String, u64>,
    /// From due to end, successful calls only.
    pub latency_ns: Histogram<u64>,
    /// From due to start: what the generator itself added.
    pub start_lag_ns: Histogram<u64>,
    /// End of the last call inside the window.
    pub last_end_ns: u64,
}

impl Samples {
    pub fn new(window: Window) -> Self {
        Self {
            window,
            calls_total: 0,
            calls: 0,
            ok: 0,
            messages: 0,
            received_bytes: 0,
            errors: BTreeMap::new(),
            latency_ns: histogram(),
            start_lag_ns: histogram(),
            last_end_ns: 0,
        }
    }

    /// Take one call that ended.
    pub fn on_end(&mut self, times: CallTimes, outcome: &Outcome) {
        debug_assert!(times.due_ns <= times.start_ns && times.start_ns <= times.end_ns);
        self.calls_total += 1;
        if !self.window.holds(times) {
            return;
        }
        self.calls += 1;
        self.messages += outcome.messages;
        self.received_bytes += outcome.received_bytes;
        self.last_end_ns = self.last_end_ns.max(times.end_ns);
        self.start_lag_ns.saturating_record(times.start_ns - times.due_ns);
        if let Some(error) = &outcome.error {
            *self.errors.entry(error.clone()).or_default() += 1;
        } else {
            self.ok += 1;
            self.latency_ns.saturating_record(times.end_ns - times.due_ns);
        }
    }

    /// Take one call that never ended, or never began for want of room. Such calls always count,
    /// whatever the window says: each one is a question without an answer.
    pub fn on_unanswered(&mut self, reason: &str) {
        self.calls_total += 1;
        self.calls += 1;
        *self.errors.entry(reason.to_owned()).or_default() += 1;
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("invariant: the constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Arrival, Schedule};

    const MS: u64 = 1_000_000;

    fn right() -> Outcome {
        Outcome { messages: 1, received_bytes: 10, error: None }
    }

    fn times(due_ms: u64, start_ms: u64, end_ms: u64) -> CallTimes {
        CallTimes { due_ns: due_ms * MS, start_ns: start_ms * MS, end_ns: end_ms * MS }
    }

    fn counted(window: Window, calls: &[CallTimes]) -> u64 {
        let mut samples = Samples::new(window);
        for call in calls {
            samples.on_end(*call, &right());
        }
        assert_eq!(calls.len() as u64, samples.calls_total);
        samples.calls
    }

    #[test]
    fn each_window_counts_by_its_own_instant() {
        let calls = [times(5, 5, 9), times(8, 8, 11), times(12, 15, 20), times(19, 25, 40)];
        let (begin_ns, end_ns) = (10 * MS, 20 * MS);
        assert_eq!(1, counted(Window::Completed { begin_ns, end_ns }, &calls));
        assert_eq!(2, counted(Window::Started { begin_ns }, &calls));
        assert_eq!(2, counted(Window::Due { begin_ns, end_ns }, &calls));
    }

    #[test]
    fn errors_are_counted_by_name_and_leave_the_latencies_alone() {
        let mut samples = Samples::new(Window::Started { begin_ns: 0 });
        let error = Outcome { messages: 0, received_bytes: 0, error: Some("UNAVAILABLE".into()) };
        samples.on_end(times(0, 0, 1), &error);
        samples.on_end(times(0, 0, 2), &error);
        samples.on_end(times(0, 0, 3), &right());
        assert_eq!(BTreeMap::from([("UNAVAILABLE".to_owned(), 2)]), samples.errors);
        assert_eq!((3, 1, 1), (samples.calls, samples.ok, samples.latency_ns.len()));
        assert_eq!(3 * MS, samples.last_end_ns);
    }

    /// A server that answers one call at a time in 0.1 ms, and stands still from 100 to 600 ms.
    fn completion_ns(start_ns: u64, free_ns: u64) -> u64 {
        let begin_ns = start_ns.max(free_ns);
        let begin_ns = if (100 * MS..600 * MS).contains(&begin_ns) { 600 * MS } else { begin_ns };
        begin_ns + MS / 10
    }

    #[test]
    fn an_open_loop_charges_a_stall_to_every_call_that_was_due() {
        let mut samples = Samples::new(Window::Due { begin_ns: 0, end_ns: 1_000 * MS });
        let mut free_ns = 0;
        for due_ns in Schedule::new(Arrival::Fixed, 1_000.0, 0).take(1_000) {
            free_ns = completion_ns(due_ns, free_ns);
            let call = CallTimes { due_ns, start_ns: due_ns, end_ns: free_ns };
            samples.on_end(call, &right());
        }
        // Half of the calls were due during the stall and waited up to 500 ms, 250 ms on average.
        let median_ms = samples.latency_ns.value_at_quantile(0.5) / MS;
        let p75_ms = samples.latency_ns.value_at_quantile(0.75) / MS;
        assert!((1..=80).contains(&median_ms), "median {median_ms} ms");
        assert!((200..=300).contains(&p75_ms), "p75 {p75_ms} ms");
        assert!(samples.latency_ns.max() / MS >= 499);
    }

    #[test]
    fn a_closed_loop_sees_the_same_stall_once() {
        let mut samples = Samples::new(Window::Completed { begin_ns: 0, end_ns: 1_000 * MS });
        let mut now_ns = 0;
        while now_ns < 1_000 * MS {
            let end_ns = completion_ns(now_ns, now_ns);
            samples.on_end(CallTimes { due_ns: now_ns, start_ns: now_ns, end_ns }, &right());
            now_ns = end_ns;
        }
        assert!(samples.latency_ns.value_at_quantile(0.99) < MS);
        assert!(samples.latency_ns.max() >= 500 * MS);
    }

    #[test]
    fn a_late_start_of_the_generator_counts_as_latency_and_as_lag() {
        let mut samples = Samples::new(Window::Due { begin_ns: 0, end_ns: MS });
        samples.on_end(times(0, 30, 50), &right());
        assert!(samples.latency_ns.equivalent(50 * MS, samples.latency_ns.max()));
        assert!(samples.start_lag_ns.equivalent(30 * MS, samples.start_lag_ns.max()));
    }
}
