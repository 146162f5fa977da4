//! The fewest calls.

use super::{Candidates, Policy};
use crate::cost::CostChoice;
use crate::rng::SplitMix64;

/// Takes the candidate with the fewest calls; ties fall at random.
///
/// One router that sees all replicas knows its own counts exactly, so looking at all of them beats
/// any sample. Several routers that do not know of each other do the same thing at the same time,
/// but each has its own counts, so they only meet by chance.
#[derive(Clone, Copy, Debug)]
pub struct Least;

impl Policy for Least {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        let mut best = (u32::MAX, 0);
        let mut ties = 0;
        for index in 0..candidates.len() {
            let in_flight = candidates.in_flight(index);
            if in_flight < best.0 {
                best = (in_flight, index);
                ties = 1;
            } else if in_flight == best.0 {
                ties += 1;
            }
        }
        if ties < 2 {
            return best.1;
        }
        let nth = rng.below(ties) as usize;
        let is_tie = |index: &usize| candidates.in_flight(*index) == best.0;
        (0..candidates.len()).filter(is_tie).nth(nth).unwrap_or(best.1)
    }

    fn by_cost(&self) -> CostChoice {
        CostChoice::OfAll
    }

    fn rule(&self) -> &'static str {
        "least: the fewest calls, ties by chance"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{Fleet, check_shares};

    #[test]
    fn the_fewest_calls_win_and_ties_are_fair() {
        let check = |expected: &[u32], in_flight: &[u32]| {
            check_shares(expected, &mut Least, &Fleet::with_in_flight(in_flight), 0);
        };
        check(&[1000], &[3]);
        check(&[0, 1000], &[4, 3]);
        check(&[500, 500], &[3, 3]);
        check(&[0, 0, 1000, 0], &[1, 2, 0, 3]);
        check(&[0, 333, 333, 0, 333], &[2, 1, 1, 2, 1]);
    }
}
