//! The fewest calls, and no call inside a replica that would only wait there.

use super::{Candidates, Least, Policy};
use crate::cost::CostChoice;
use crate::rng::SplitMix64;

/// As [`Least`], and where replicas say that they work on one call at a time, calls wait in the router
/// and go to whichever replica is free first.
///
/// Among equal replicas that is the queue that all of them share, which nothing beats (Wolff, "An upper
/// bound for multi-channel queues", 1977). It learns nothing of a replica but what the replica says,
/// so that nothing can be wrong with what was learnt under other calls.
#[derive(Clone, Copy, Debug)]
pub struct LateBinding;

impl Policy for LateBinding {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        Least.pick(candidates, rng)
    }

    fn binds_late(&self) -> bool {
        true
    }

    fn by_cost(&self) -> CostChoice {
        CostChoice::OfAll
    }

    fn rule(&self) -> &'static str {
        "late_binding: the fewest calls, ties by chance; calls wait for the first free replica where \
         each works on one at a time"
    }
}
