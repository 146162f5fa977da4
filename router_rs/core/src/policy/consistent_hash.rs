//! Calls of one session to one replica, within bounds.

use super::{Candidates, Least, Policy};
use crate::rng::{SplitMix64, mix};

/// A replica may have this many 256ths of the fleet's mean: c = 1.25. A smaller factor balances
/// better, a larger one keeps more sessions together (Mirrokni, Thorup and Zadimoghaddam,
/// "Consistent hashing with bounded loads", SODA 2018).
const BOUND_OF_256: u64 = 320;

/// Takes the candidate that the session hashes to, unless it has more than its bounded share of the
/// calls in flight; then the next in the session's own order. A call without session goes where
/// [`Least`] says.
///
/// The order is that of rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
/// increase hit rates", 1998): a replica that comes or goes moves only its own sessions, as on a
/// ring, but evenly without virtual nodes, and what overflows spreads over all others instead of
/// running to one neighbour. It needs no table, only a scan.
#[derive(Clone, Copy, Debug)]
pub struct ConsistentHash;

impl Policy for ConsistentHash {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        let session = candidates.session();
        if session == 0 {
            return Least.pick(candidates, rng);
        }
        let bound = bound(candidates.fleet_in_flight(), candidates.fleet_len());
        let mut first: Option<(bool, u64, usize)> = None;
        for index in 0..candidates.len() {
            let fits = u64::from(candidates.in_flight(index)) < bound;
            let place = (fits, weight(candidates, index), index);
            first = first.max(Some(place));
        }
        first.map_or(0, |(_, _, index)| index)
    }

    fn home(&self, candidates: Candidates<'_>) -> Option<usize> {
        let has_session = candidates.session() != 0;
        let first = (0..candidates.len()).max_by_key(|index| weight(candidates, *index));
        first.filter(|_| has_session)
    }

    fn rule(&self) -> &'static str {
        "consistent_hash: by session, at most 1.25 of the mean in flight; else the fewest calls"
    }
}

/// The greatest comes first in the order of the session.
#[inline]
fn weight(candidates: Candidates<'_>, index: usize) -> u64 {
    mix(candidates.session() ^ mix(candidates.id(index).0))
}

/// The most calls that a replica may have after it got the one in question: `c × mean`, rounded up.
fn bound(in_flight: u64, replicas: u32) -> u64 {
    let mean_of_256 = (in_flight + 1) * BOUND_OF_256;
    mean_of_256.div_ceil(256 * u64::from(replicas.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Fleet;

    fn pick(fleet: &Fleet, open: &[u32], session: u64) -> u32 {
        let index = ConsistentHash.pick(fleet.candidates(open, session), &mut SplitMix64::new(1));
        open[index]
    }

    fn all(fleet: &Fleet) -> Vec<u32> {
        (0..fleet.len()).collect()
    }

    #[test]
    fn a_session_stays_and_only_those_of_a_replica_that_goes_move() {
        let fleet = Fleet::with_in_flight(&[2; 10]);
        let without_third: Vec<u32> = all(&fleet).into_iter().filter(|slot| *slot != 3).collect();
        let mut counts = [0_u32; 10];
        for session in 1..=10_000 {
            let before = pick(&fleet, &all(&fleet), session);
            counts[before as usize] += 1;
            let after = pick(&fleet, &without_third, session);
            assert!(before == 3 || before == after, "session {session}: {before}, then {after}");
        }
        // Six standard deviations of a binomial with mean 1 000.
        assert!(counts.iter().all(|count| count.abs_diff(1_000) < 180), "{counts:?}");
    }

    #[test]
    fn a_replica_above_its_bound_passes_sessions_on() {
        let idle = Fleet::with_in_flight(&[0; 4]);
        let home = pick(&idle, &all(&idle), 7);
        // 9 in flight and the new one: at most ceil(1.25 × 10 / 4) = 4 each.
        let mut in_flight = [2; 4];
        in_flight[home as usize] = 3;
        let below = Fleet::with_in_flight(&in_flight);
        assert_eq!(home, pick(&below, &all(&below), 7));
        in_flight[home as usize] = 6;
        let above = Fleet::with_in_flight(&in_flight);
        assert_ne!(home, pick(&above, &all(&above), 7));
        assert_eq!(home, pick(&above, &[home], 7), "who alone has room takes it");
    }

    #[test]
    fn who_is_above_its_bound_is_home_all_the_same() {
        let fleet = Fleet::with_in_flight(&[0; 4]);
        let open = all(&fleet);
        let home = pick(&fleet, &open, 7);
        let mut in_flight = [2; 4];
        in_flight[home as usize] = 9;
        let full = Fleet::with_in_flight(&in_flight);
        let candidates = full.candidates(&open, 7);
        assert_eq!(Some(home as usize), ConsistentHash.home(candidates));
        // Calls that it cannot take all go to the same next one.
        let next = pick(&full, &open, 7);
        let others: Vec<u32> = open.iter().copied().filter(|slot| *slot != home).collect();
        assert_eq!(next, pick(&fleet, &others, 7));
        assert_eq!(None, ConsistentHash.home(full.candidates(&open, 0)));
    }

    #[test]
    fn without_session_the_least_loaded_wins() {
        let fleet = Fleet::with_in_flight(&[2, 0, 1]);
        assert_eq!(1, pick(&fleet, &all(&fleet), 0));
    }

    #[test]
    fn the_bound_is_a_quarter_above_the_mean_and_at_least_one() {
        let bounds = [(0, 4), (11, 4), (12, 4), (99, 10)].map(|(calls, of)| bound(calls, of));
        assert_eq!([1, 4, 5, 13], bounds);
    }
}
