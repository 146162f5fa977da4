//! Power of two choices.

use super::{Candidates, Policy};
use crate::rng::SplitMix64;

/// Takes the less loaded of two distinct candidates drawn at random; ties fall at random.
///
/// Two samples bring the longest queue from `log n / log log n` down to `log log n` (Mitzenmacher,
/// "The power of two choices in randomized load balancing", 2001), and routers that do not know of
/// each other do not all run to the same replica. Load is the router's own in-flight count, which
/// is exact for what it sent and costs no probe. With two candidates the sample is the whole set.
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
        if candidates.get(second).in_flight < candidates.get(first).in_flight {
            second
        } else {
            first
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{Replica, ReplicaId, ReplicaSpec, Tier};

    /// How often each of the replicas with these in-flight counts is picked in 10 000 draws.
    fn picks(in_flight: &[u32]) -> Vec<u32> {
        let replicas: Vec<Replica> = in_flight
            .iter()
            .zip(0..)
            .map(|(in_flight, id)| {
                let spec = ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: u32::MAX };
                Replica { in_flight: *in_flight, ..Replica::new(&spec) }
            })
            .collect();
        let open: Vec<u32> = (0..replicas.len() as u32).collect();
        let mut rng = SplitMix64::new(42);
        let mut counts = vec![0; replicas.len()];
        for _ in 0..10_000 {
            counts[P2c.pick(Candidates::new(&replicas, &open), &mut rng)] += 1;
        }
        counts
    }

    /// Expected shares in per mille, each met within 25.
    fn check(expected: &[u32], in_flight: &[u32]) {
        let counts = picks(in_flight);
        let near = |(share, count): (&u32, &u32)| (share * 10).abs_diff(*count) <= 250;
        assert!(
            expected.iter().zip(&counts).all(near),
            "in flight {in_flight:?}: expected shares {expected:?} per mille, got {counts:?}"
        );
    }

    #[test]
    fn the_less_loaded_of_a_random_pair_wins_and_ties_are_fair() {
        check(&[1000], &[3]);
        check(&[500, 500], &[3, 3]);
        check(&[0, 1000], &[4, 3]);
        check(&[333, 333, 333], &[1, 1, 1]);
        // Pairs (0,1), (0,2), (1,2): the least loaded wins two of three, the most loaded none.
        check(&[667, 333, 0], &[0, 1, 2]);
        check(&[500, 333, 167, 0], &[0, 1, 2, 3]);
    }
}
