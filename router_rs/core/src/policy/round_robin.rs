//! One after the other.

use super::{Candidates, Policy};
use crate::membership::ReplicaId;
use crate::rng::SplitMix64;

/// Takes the candidate whose id follows that of the last pick, and starts over after the last.
///
/// The order is that of the ids, so it survives replicas that are full for a while, come or go.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    last: Option<ReplicaId>,
}

impl Policy for RoundRobin {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, _rng: &mut SplitMix64) -> usize {
        // Ids behind the last pick are near, those before it come after all of them.
        let after = self.last.map_or(0, |last| last.0.wrapping_add(1));
        let mut first = (u64::MAX, 0);
        for index in 0..candidates.len() {
            first = first.min((candidates.id(index).0.wrapping_sub(after), index));
        }
        let index = first.1;
        self.last = Some(candidates.id(index));
        index
    }

    fn rule(&self) -> &'static str {
        "round_robin: one after the other, by id"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Fleet;

    #[test]
    fn replicas_take_turns_by_id_whoever_has_room() {
        let fleet = Fleet::with_in_flight(&[0, 9, 3, 0]);
        let mut policy = RoundRobin::default();
        let mut rng = SplitMix64::new(1);
        let mut turns = |open: &[u32], count: usize| -> Vec<u32> {
            let pick = |_| open[policy.pick(fleet.candidates(open, 0), &mut rng)];
            (0..count).map(pick).collect()
        };
        assert_eq!(vec![0, 1, 2, 3, 0], turns(&[3, 1, 0, 2], 5));
        // 1 is full for a turn, then 3 and 0.
        assert_eq!(vec![2], turns(&[2, 0, 3], 1));
        assert_eq!(vec![1, 2, 1], turns(&[1, 2], 3));
    }
}
