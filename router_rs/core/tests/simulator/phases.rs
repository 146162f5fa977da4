//! The load on the replicas from some time on, until the next phase begins.

use std::fmt::{self, Display};

use router_core::{Nanos, SplitMix64};

use super::fields::Fields;
use super::scenario::{Shape, millis, seconds};
use super::traffic::{draw, uniform};

/// One part of a scenario: a mix of calls and how they come.
///
/// Times are in the units of the names. In a file it is a table `[[phase]]` with these names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) from_s: f64,
    /// Callers who ask again as soon as they are answered; 0: an open loop.
    pub(crate) users: usize,
    /// Of an open loop.
    pub(crate) rate_per_s: f64,
    /// So many calls of an open loop come at once.
    pub(crate) burst: usize,
    pub(crate) shape: Shape,
    /// The mean of each kind of call.
    pub(crate) work_ms: Vec<f64>,
    /// How often each kind comes, relative.
    pub(crate) shares: Vec<f64>,
    /// The kinds come in turns, whatever the shares.
    pub(crate) in_turns: bool,
    /// The part of each kind's work that holds an event loop; the rest awaits something.
    pub(crate) blocks: Vec<f64>,
    /// The work grows evenly, by its logarithm, to so many times this at the end of the phase.
    pub(crate) drifts_to: f64,
}

/// The work of one call, and the part of it that holds an event loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) whole: Nanos,
    pub(crate) blocking: Nanos,
    pub(crate) kind: usize,
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            from_s: 0.0,
            users: 0,
            rate_per_s: 0.0,
            burst: 1,
            shape: Shape::Exponential,
            work_ms: vec![10.0],
            shares: vec![1.0],
            in_turns: false,
            blocks: vec![1.0],
            drifts_to: 1.0,
        }
    }
}

impl Phase {
    pub(super) fn parse(fields: &mut Fields) -> Self {
        let mut phase = Self::default();
        fields.number("from_s", &mut phase.from_s);
        fields.number("users", &mut phase.users);
        fields.number("rate_per_s", &mut phase.rate_per_s);
        fields.number("burst", &mut phase.burst);
        fields.word("shape", &mut phase.shape, Shape::of);
        fields.list("work_ms", &mut phase.work_ms);
        fields.list("shares", &mut phase.shares);
        fields.number("in_turns", &mut phase.in_turns);
        fields.list("blocks", &mut phase.blocks);
        fields.number("drifts_to", &mut phase.drifts_to);
        phase
    }

    /// The mean work of a call when the phase begins.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.mean_of(|kind| self.work_ms[kind])
    }

    /// The mean of what a kind has, over the calls.
    pub(crate) fn mean_of(&self, of: impl Fn(usize) -> f64) -> f64 {
        let weight = |kind: usize| if self.in_turns { 1.0 } else { self.shares[kind] };
        let kinds = 0..self.work_ms.len();
        let whole: f64 = kinds.clone().map(weight).sum();
        kinds.map(|kind| weight(kind) * of(kind)).sum::<f64>() / whole
    }

    /// The work of call number `nth` at `now`, when the phase ends at `end_s`.
    pub(super) fn work(&self, nth: usize, now: Nanos, end_s: f64, rng: &mut SplitMix64) -> Work {
        let kind = self.kind(nth, rng);
        let passed = (now.0 as f64 / 1e9 - self.from_s) / (end_s - self.from_s);
        let mean_ms = self.work_ms[kind] * self.drifts_to.powf(passed.clamp(0.0, 1.0));
        let whole_ms = draw(self.shape, mean_ms, rng);
        Work { whole: millis(whole_ms), blocking: millis(whole_ms * self.blocks[kind]), kind }
    }

    fn kind(&self, nth: usize, rng: &mut SplitMix64) -> usize {
        // Drawn in any case, so that works are the same with and without turns.
        let mut drawn = uniform(rng) * self.shares.iter().sum::<f64>();
        if self.in_turns {
            return nth % self.work_ms.len();
        }
        let last = self.shares.len() - 1;
        for (kind, share) in self.shares[..last].iter().enumerate() {
            if drawn < *share {
                return kind;
            }
            drawn -= share;
        }
        last
    }

    pub(super) fn from(&self) -> Nanos {
        seconds(self.from_s)
    }
}

impl Display for Phase {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_s, users, rate_per_s, burst, shape, in_turns, drifts_to, .. } = self;
        writeln!(text, "\n[[phase]]\nfrom_s = {from_s}")?;
        if *users > 0 {
            writeln!(text, "users = {users}")?;
        } else {
            writeln!(text, "rate_per_s = {rate_per_s}\nburst = {burst}")?;
        }
        writeln!(text, "shape = \"{}\"", shape.name())?;
        writeln!(text, "work_ms = {:?}\nshares = {:?}", self.work_ms, self.shares)?;
        writeln!(text, "in_turns = {in_turns}\nblocks = {:?}", self.blocks)?;
        writeln!(text, "drifts_to = {drifts_to}")
    }
}
