//! Random numbers for calls, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use router_core::SplitMix64;

/// They are derived from the table's seed, but are independent of its router: drawing one here
/// changes no choice there.
#[derive(Debug)]
pub(super) struct Draws {
    seed: u64,
    drawn: AtomicU64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed: SplitMix64::new(seed ^ 0x7ACE).next_u64(), drawn: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> u64 {
        let turn = self.drawn.fetch_add(1, Ordering::Relaxed);
        SplitMix64::new(self.seed.wrapping_add(turn)).next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_history_without_repetitions() {
        let history = |seed| {
            let draws = Draws::new(seed);
            (0..1_000).map(|_| draws.next()).collect::<Vec<_>>()
        };
        assert_eq!(history(7), history(7));
        let distinct: std::collections::BTreeSet<_> =
            history(7).into_iter().chain(history(8)).collect();
        assert_eq!(2_000, distinct.len());
    }
}
