//! The available policies.

use super::{ConsistentHash, LateBinding, Least, P2c, Policy, Predicted, RoundRobin};

/// The policy that a router uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Power of two choices over in-flight counts, see [`P2c`].
    P2c,
    /// The one with the fewest calls.
    Least,
    /// One after the other.
    RoundRobin,
    /// The one that the call's session hashes to, see [`ConsistentHash`].
    ConsistentHash,
    /// The one that is expected to be done first.
    Predicted,
    /// The one with the fewest calls; calls wait for the first free replica where each works on one
    /// at a time, see [`LateBinding`].
    LateBinding,
}

impl PolicyKind {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::P2c,
        Self::Least,
        Self::RoundRobin,
        Self::ConsistentHash,
        Self::Predicted,
        Self::LateBinding,
    ];

    /// The policy that deployments know by this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in the option `policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::P2c => "p2c",
            Self::Least => "least",
            Self::RoundRobin => "round_robin",
            Self::ConsistentHash => "consistent_hash",
            Self::Predicted => "predicted",
            Self::LateBinding => "late_binding",
        }
    }

    /// `load_bound` is that of [`ConsistentHash::new`].
    pub(crate) fn build(self, load_bound: f64) -> Box<dyn Policy> {
        match self {
            Self::P2c => Box::new(P2c),
            Self::Least => Box::new(Least),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::ConsistentHash => Box::new(ConsistentHash::new(load_bound)),
            Self::Predicted => Box::new(Predicted),
            Self::LateBinding => Box::new(LateBinding),
        }
    }
}
