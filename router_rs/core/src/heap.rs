//! A heap of numbered timers from which any can be removed.

use crate::time::Nanos;

const ABSENT: u32 = u32::MAX;

/// A binary min-heap of indices ordered by `(at, sequence)`; insert and remove are `O(log n)`.
///
/// Keeps its memory when it shrinks, so a queue that has been long once does not allocate again.
/// Invariant: `entries[positions[i]].index == i` for every index `i` in the heap.
#[derive(Debug, Default)]
pub(crate) struct TimerHeap {
    entries: Vec<Timer>,
    positions: Vec<u32>,
}

/// When something is due; equal times fall to the smaller sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub(crate) at: Nanos,
    pub(crate) sequence: u64,
    pub(crate) index: u32,
}

impl TimerHeap {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The earliest timer.
    #[inline]
    pub(crate) fn first(&self) -> Option<Timer> {
        self.entries.first().copied()
    }

    /// Timers near the top of the heap, at most `count`: the earliest, and others that are early.
    pub(crate) fn some(&self, count: usize) -> impl Iterator<Item = &Timer> {
        self.entries.iter().take(count)
    }

    /// The earliest index, if its time has come.
    #[inline]
    pub(crate) fn first_due(&self, now: Nanos) -> Option<u32> {
        self.first().filter(|timer| timer.at <= now).map(|timer| timer.index)
    }

    /// Adds a timer whose index is not in the heap.
    pub(crate) fn insert(&mut self, timer: Timer) {
        let index = timer.index as usize;
        if self.positions.len() <= index {
            self.positions.resize(index + 1, ABSENT);
        }
        debug_assert!(self.positions[index] == ABSENT, "index {index} is already in the heap");
        let position = self.entries.len();
        self.entries.push(timer);
        self.positions[index] = position as u32;
        self.sift_up(position);
    }

    /// Removes the timer of `index`; returns whether there was one.
    pub(crate) fn remove(&mut self, index: u32) -> bool {
        let position = self.positions.get(index as usize).copied().unwrap_or(ABSENT);
        if position == ABSENT {
            return false;
        }
        let position = position as usize;
        self.entries.swap_remove(position);
        self.positions[index as usize] = ABSENT;
        if let Some(moved) = self.entries.get(position) {
            self.positions[moved.index as usize] = position as u32;
            self.sift_up(position);
            self.sift_down(position);
        }
        true
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.entries[parent] <= self.entries[position] {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            let Some(smaller) = (left..self.entries.len().min(left + 2))
                .min_by_key(|child| self.entries[*child])
                .filter(|child| self.entries[*child] < self.entries[position])
            else {
                break;
            };
            self.swap(position, smaller);
            position = smaller;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.positions[self.entries[a].index as usize] = a as u32;
        self.positions[self.entries[b].index as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::SplitMix64;

    #[test]
    fn timers_come_out_in_order_of_time_then_sequence() {
        let mut heap = TimerHeap::default();
        for (index, (at, sequence)) in (0..).zip([(5, 0), (3, 1), (3, 2), (9, 3), (1, 4)]) {
            heap.insert(Timer { at: Nanos(at), sequence, index });
        }
        let mut order = Vec::new();
        while let Some(timer) = heap.first() {
            assert!(heap.remove(timer.index));
            order.push(timer.index);
        }
        assert_eq!(vec![4, 1, 2, 0, 3], order);
    }

    #[test]
    fn only_a_timer_whose_time_has_come_is_due() {
        let mut heap = TimerHeap::default();
        heap.insert(Timer { at: Nanos(5), sequence: 0, index: 7 });
        assert_eq!(None, heap.first_due(Nanos(4)));
        assert_eq!(Some(7), heap.first_due(Nanos(5)));
    }

    #[test]
    fn random_inserts_and_removes_agree_with_a_sorted_set() {
        let mut rng = SplitMix64::new(3);
        let mut heap = TimerHeap::default();
        let mut set = BTreeSet::new();
        for sequence in 0..5_000 {
            let index = rng.below(64);
            let present = set.iter().copied().find(|timer: &Timer| timer.index == index);
            assert_eq!(present.is_some(), heap.remove(index));
            if let Some(timer) = present {
                set.remove(&timer);
            } else {
                let timer = Timer { at: Nanos(rng.below(20).into()), sequence, index };
                heap.insert(timer);
                set.insert(timer);
            }
            assert_eq!(set.first().copied(), heap.first());
            assert_eq!(set.len(), heap.len());
        }
    }
}
