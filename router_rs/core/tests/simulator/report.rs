#![allow(clippy::print_stderr)] // the seed belongs to the output of a failed test

//! What a simulated world counts, and the seed that makes it.

/// How the calls of one run ended, and what was seen on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) offered: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Deadline passed before the call was sent.
    pub(crate) late: u64,
    pub(crate) queue_full: u64,
    pub(crate) refusals: u64,
    /// The most calls that one router had at one replica.
    pub(crate) in_flight_max: u32,
    /// The most calls inside one gate.
    pub(crate) gate_max: u32,
    /// Mean time from offer to answer of the calls that were done.
    pub(crate) mean_ms: f64,
    pub(crate) work_ms: f64,
    /// Work done over what the places could have done in the time.
    pub(crate) busy: f64,
}

impl Report {
    /// Calls that ended, each in one way.
    pub(crate) fn ended(&self) -> u64 {
        self.done + self.failed + self.cancelled + self.late + self.queue_full
    }
}

/// From the variable `SEED`, else the same for everybody.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("SEED={text}: {error}")),
        Err(_) => 1,
    };
    eprintln!("SEED={seed} repeats this");
    seed
}
