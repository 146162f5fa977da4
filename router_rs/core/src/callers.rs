//! Counts the waiting calls of each caller, so that one with many calls does not keep the others
//! out.

use crate::rng::mix;

const PLACES: usize = 256;

/// Counts by caller, in a table of fixed size: callers that share a place by chance count as one.
///
/// Caller 0 is unknown and is not counted.
#[derive(Debug)]
pub(crate) struct Callers {
    waiting: [u32; PLACES],
}

impl Default for Callers {
    fn default() -> Self {
        Self { waiting: [0; PLACES] }
    }
}

impl Callers {
    pub(crate) fn enter(&mut self, caller: u64) {
        if caller != 0 {
            self.waiting[place(caller)] += 1;
        }
    }

    /// Call it once for each [`Callers::enter`].
    pub(crate) fn leave(&mut self, caller: u64) {
        if caller != 0 {
            let count = &mut self.waiting[place(caller)];
            debug_assert!(*count > 0, "no call of caller {caller} waits");
            *count = count.saturating_sub(1);
        }
    }

    /// Calls of this caller that wait.
    #[inline]
    pub(crate) fn waiting(&self, caller: u64) -> u32 {
        if caller == 0 { 0 } else { self.waiting[place(caller)] }
    }
}

fn place(caller: u64) -> usize {
    mix(caller) as usize % PLACES
}
