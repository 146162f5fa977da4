//! Power of two choices.

use super::{Candidates, Policy};
use crate::cost::CostChoice;
use crate::rng::SplitMix64;

/// Takes the less loaded of two distinct candidates drawn at random; ties fall at random.
///
/// Two samples reduce the longest queue from `log n / log log n` to `log log n` (Mitzenmacher, "The
/// power of two choices in randomized load balancing", 2001), and independent routers do not all
/// choose the same replica. Load is the router's own in-flight count, which is exact for its own
/// calls and needs no probe. With two candidates the sample is the whole set.
#[derive(Clone, Copy, Debug)]
pub struct P2c;

impl Policy for P2c {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        if candidates.len() < 2 {
            return 0;
        }
        let (first, second) = rng.distinct_pair_below(candidates.len() as u32);
        let (first, second) = (first as usize, second as usize);
        // The pair comes in random order, so keeping the first on a tie is a fair coin.
        if candidates.in_flight(second) < candidates.in_flight(first) { second } else { first }
    }

    fn by_cost(&self) -> CostChoice {
        CostChoice::OfTwo
    }

    fn rule(&self) -> &'static str {
        "p2c: of two replicas drawn at random, the one with fewer calls"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{Fleet, check_shares};

    #[test]
    fn the_less_loaded_of_a_random_pair_wins_and_ties_are_fair() {
        let check = |expected: &[u32], in_flight: &[u32]| {
            check_shares(expected, &mut P2c, &Fleet::with_in_flight(in_flight), 0);
        };
        check(&[1000], &[3]);
        check(&[500, 500], &[3, 3]);
        check(&[0, 1000], &[4, 3]);
        check(&[333, 333, 333], &[1, 1, 1]);
        // Pairs (0,1), (0,2), (1,2): the least loaded wins two of three, the most loaded none.
        check(&[667, 333, 0], &[0, 1, 2]);
        check(&[500, 333, 167, 0], &[0, 1, 2, 3]);
    }
}
