//! Which blocks of one direction are lent.

/// The blocks of each direction.
pub const BLOCKS: usize = 64;

/// The sender's record of its blocks: runs of adjacent ones are lent, and come back as a whole.
///
/// The lowest fitting run is used, so that a connection with few bytes on their way touches few
/// pages.
#[derive(Debug)]
pub struct Space {
    /// One bit for each block.
    lent: u64,
    /// How many blocks are in the run that begins here; 0: none begins.
    runs: [u8; BLOCKS],
}

impl Default for Space {
    fn default() -> Self {
        Self { lent: 0, runs: [0; BLOCKS] }
    }
}

impl Space {
    /// Takes `blocks` adjacent ones, and returns the first; `None` if there are not as many.
    ///
    /// `is_returned`: whether the receiver has returned the run that begins with a block.
    pub fn take(&mut self, blocks: usize, is_returned: impl Fn(usize) -> bool) -> Option<usize> {
        let blocks =
            u8::try_from(blocks).ok().filter(|count| (1..=BLOCKS as u8).contains(count))?;
        self.reclaim(is_returned);
        let first = fit(!self.lent, blocks)?;
        self.lent |= mask(first, blocks);
        self.runs[first] = blocks;
        Some(first)
    }

    /// How many blocks are lent, as far as this side knows.
    pub fn lent(&self) -> usize {
        self.lent.count_ones() as usize
    }

    /// Takes back the runs that the receiver has returned.
    pub fn reclaim(&mut self, is_returned: impl Fn(usize) -> bool) {
        let mut rest = self.lent;
        while rest != 0 {
            // The lowest lent block begins a run: runs are taken out as a whole.
            let first = rest.trailing_zeros() as usize;
            let run = mask(first, self.runs[first]);
            rest &= !run;
            if is_returned(first) {
                self.lent &= !run;
                self.runs[first] = 0;
            }
        }
    }
}

/// The bits of `blocks` blocks from `first` on.
fn mask(first: usize, blocks: u8) -> u64 {
    (u64::MAX >> (BLOCKS as u32 - u32::from(blocks))) << first
}

/// The first of `blocks` adjacent bits that are set in `free`.
fn fit(free: u64, blocks: u8) -> Option<usize> {
    let mut begins = free;
    for distance in 1..blocks {
        begins &= free >> distance;
    }
    (begins != 0).then(|| begins.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_run_that_fits_is_taken() {
        let mut space = Space::default();
        assert_eq!(Some(0), space.take(2, |_| false));
        assert_eq!(Some(2), space.take(3, |_| false));
        assert_eq!(Some(0), space.take(1, |first| first == 0));
        assert_eq!(Some(5), space.take(2, |_| false));
        assert_eq!(6, space.lent());
    }

    #[test]
    fn more_than_there_is_is_not_taken() {
        let mut space = Space::default();
        assert_eq!(None, space.take(0, |_| false));
        assert_eq!(None, space.take(BLOCKS + 1, |_| false));
        assert_eq!(None, space.take(256 + 1, |_| false));
        assert_eq!(Some(0), space.take(BLOCKS, |_| false));
        assert_eq!(None, space.take(1, |_| false));
        assert_eq!(Some(0), space.take(BLOCKS, |_| true));
    }

    proptest! {
        /// Against a plain model: no block is lent twice, none is lost.
        #[test]
        fn runs_never_overlap(steps in prop::collection::vec((1_usize..20, any::<u64>()), 0..200)) {
            let mut space = Space::default();
            let mut model: BTreeMap<usize, usize> = BTreeMap::new();
            for (blocks, returned) in steps {
                let is_returned = |first: usize| returned >> first & 1 == 1;
                let taken = space.take(blocks, is_returned);
                model.retain(|first, _| !is_returned(*first));
                let is_free = |block: usize| {
                    model.iter().all(|(first, count)| block < *first || block >= first + count)
                };
                let fits = |first: &usize| (*first..first + blocks).all(is_free);
                prop_assert_eq!((0..=BLOCKS - blocks).find(fits), taken);
                if let Some(first) = taken {
                    model.insert(first, blocks);
                }
                prop_assert_eq!(model.values().sum::<usize>(), space.lent());
            }
        }
    }
}
