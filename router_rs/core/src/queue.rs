//! The order of the parked calls, and which of them are late.
//!
//! One order for all: a call's *turn* is its deadline, or its arrival plus [`HORIZON`] if that is
//! earlier or there is no deadline; equal turns go to the earlier arrival. So urgent calls go
//! first, and a call is never overtaken by one that arrived more than the horizon after it: neither
//! a call without a deadline nor one with a far deadline can starve. Priorities, and callers with
//! many waiting calls, move a call by bounded times in this order.
//!
//! A parked call is in one of four states. *Ready*: it waits for any replica with room. *Resting*:
//! a replica has room, but the call was refused too often in a row, so it waits for news instead of
//! trying one replica after the other. *Pausing*: another attempt of it must not begin yet.
//! *Faithful*: it waits for a while for a replica that has its model. The queue knows calls by
//! number only; the router owns them.

use crate::heap::{Timer, TimerHeap};
use crate::time::Nanos;

/// How long a call without (or with a far) deadline can be overtaken. Arbitrary: several times the
/// deadline of an interactive call, and well below the time after which people consider a call
/// stuck.
pub(crate) const HORIZON: Nanos = Nanos::from_secs(5);

/// The size of the sample when longer queues are counted.
const AHEAD_SAMPLE: usize = 64;

/// Turns are later by this, so that those of the highest priority are not cut off at 0.
const MIDDLE: Nanos = HORIZON.saturating_mul(128);

/// A call's place in the order; the smaller goes first. It is set once, at arrival, so a call that
/// was sent, refused and parked again returns to its old place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    at: Nanos,
    sequence: u64,
}

impl Turn {
    /// `sequence` counts arrivals.
    #[inline]
    pub(crate) fn new(arrival: Nanos, deadline: Option<Nanos>, sequence: u64) -> Self {
        let horizon = arrival.saturating_add(HORIZON);
        let at = deadline.map_or(horizon, |deadline| deadline.min(horizon));
        Self { at: at.saturating_add(MIDDLE), sequence }
    }

    /// Whether it comes before `other`, or at most `time` after it.
    pub(crate) fn is_within(self, time: Nanos, other: Self) -> bool {
        self.at <= other.at.saturating_add(time)
    }

    /// One step of priority is worth [`HORIZON`] of waiting, so a call goes before all of lower
    /// priority that came with it, and yet after one that has waited long enough. `behind` is the
    /// time that the caller's waiting calls will take; at most the horizon counts.
    pub(crate) fn with(self, priority: i8, behind: Nanos) -> Self {
        let step = HORIZON.saturating_mul(u64::from(priority.unsigned_abs()));
        let at =
            if priority > 0 { self.at.saturating_sub(step) } else { self.at.saturating_add(step) };
        Self { at: at.saturating_add(behind.min(HORIZON)), ..self }
    }
}

/// The parked calls of one router.
///
/// Invariant: every parked call is in exactly one of `ready`, `resting`, `pausing` and `faithful`,
/// and in `expiry` if it has a deadline.
#[derive(Debug, Default)]
pub(crate) struct ParkedQueue {
    ready: TimerHeap,
    resting: TimerHeap,
    pausing: TimerHeap,
    faithful: TimerHeap,
    expiry: TimerHeap,
}

impl ParkedQueue {
    /// Parked calls in all states.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.resting.len() + self.pausing.len() + self.faithful.len()
    }

    /// Those of them that take the next slot that frees up.
    #[inline]
    pub(crate) fn ready_len(&self) -> u32 {
        self.ready.len() as u32
    }

    /// Whether some call takes the next slot that frees up.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Those of them that wait for a replica that has their model.
    #[inline]
    pub(crate) fn faithful_len(&self) -> usize {
        self.faithful.len()
    }

    /// The ready call whose turn it is.
    #[inline]
    pub(crate) fn first_ready(&self) -> Option<(Turn, u32)> {
        let turn = |timer: Timer| Turn { at: timer.at, sequence: timer.sequence };
        self.ready.first().map(|timer| (turn(timer), timer.index))
    }

    /// Some of the first ready calls in no particular order, including the very first; at most
    /// `count`.
    pub(crate) fn some_ready(&self, count: usize) -> impl Iterator<Item = (Turn, u32)> {
        let turn = |timer: &Timer| Turn { at: timer.at, sequence: timer.sequence };
        self.ready.some(count).map(move |timer| (turn(timer), timer.index))
    }

    /// How many ready calls come before `turn`; if there are many, an estimate from an even sample.
    pub(crate) fn ahead_of(&self, turn: Turn) -> u32 {
        let step = self.ready.len().div_ceil(AHEAD_SAMPLE).max(1);
        let is_ahead = |timer: &&Timer| (timer.at, timer.sequence) < (turn.at, turn.sequence);
        let ahead = self.ready.some(self.ready.len()).step_by(step).filter(is_ahead).count();
        (ahead * step).min(self.ready.len()) as u32
    }

    /// Whether some call waits for a replica that has its model.
    #[inline]
    pub(crate) fn has_faithful(&self) -> bool {
        !self.faithful.is_empty()
    }

    /// Parks a call that takes the next slot in its turn.
    pub(crate) fn park(&mut self, call: u32, turn: Turn, deadline: Option<Nanos>) {
        self.ready.insert(Timer { at: turn.at, sequence: turn.sequence, index: call });
        self.watch(call, turn, deadline);
    }

    /// Parks a call that takes no slot before `until` or [`ParkedQueue::wake`].
    pub(crate) fn rest(&mut self, call: u32, turn: Turn, deadline: Option<Nanos>, until: Nanos) {
        self.resting.insert(Timer { at: until, sequence: turn.sequence, index: call });
        self.watch(call, turn, deadline);
    }

    /// Parks a call that takes no slot before `until`, whatever happens.
    pub(crate) fn pause(&mut self, call: u32, turn: Turn, deadline: Option<Nanos>, until: Nanos) {
        self.pausing.insert(Timer { at: until, sequence: turn.sequence, index: call });
        self.watch(call, turn, deadline);
    }

    /// Parks a call that waits for certain replicas until `until` or [`ParkedQueue::wake`].
    pub(crate) fn be_faithful(
        &mut self,
        call: u32,
        turn: Turn,
        deadline: Option<Nanos>,
        until: Nanos,
    ) {
        self.faithful.insert(Timer { at: until, sequence: turn.sequence, index: call });
        self.watch(call, turn, deadline);
    }

    /// Makes a resting, pausing or faithful call ready; `turn` is what it was parked with.
    pub(crate) fn wake(&mut self, call: u32, turn: Turn) {
        let was_waiting =
            self.resting.remove(call) || self.pausing.remove(call) || self.faithful.remove(call);
        if was_waiting {
            self.ready.insert(Timer { at: turn.at, sequence: turn.sequence, index: call });
        }
    }

    /// The call that has rested longest.
    #[inline]
    pub(crate) fn first_resting(&self) -> Option<u32> {
        self.resting.first().map(|timer| timer.index)
    }

    /// A call whose rest or pause is over.
    #[inline]
    pub(crate) fn rested(&self, now: Nanos) -> Option<u32> {
        self.resting.first_due(now).or_else(|| self.pausing.first_due(now))
    }

    /// A call that has been faithful long enough.
    #[inline]
    pub(crate) fn unfaithful(&self, now: Nanos) -> Option<u32> {
        self.faithful.first_due(now)
    }

    /// A call whose deadline has passed.
    #[inline]
    pub(crate) fn overdue(&self, now: Nanos) -> Option<u32> {
        self.expiry.first_due(now)
    }

    /// Removes a call, in any state.
    pub(crate) fn remove(&mut self, call: u32) {
        let was_parked = self.ready.remove(call)
            || self.resting.remove(call)
            || self.pausing.remove(call)
            || self.faithful.remove(call);
        debug_assert!(was_parked, "call {call} is not parked");
        self.expiry.remove(call);
    }

    /// The next time at which a deadline passes, a rest or a pause ends, or a faithful call gives
    /// up.
    pub(crate) fn next_wakeup(&self) -> Option<Nanos> {
        let timers = [
            self.expiry.first(),
            self.resting.first(),
            self.pausing.first(),
            self.faithful.first(),
        ];
        timers.into_iter().flatten().map(|timer| timer.at).min()
    }

    fn watch(&mut self, call: u32, turn: Turn, deadline: Option<Nanos>) {
        if let Some(at) = deadline {
            self.expiry.insert(Timer { at, sequence: turn.sequence, index: call });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parks calls given as `(arrival ms, deadline ms)`, 0 for none; returns the order they leave.
    fn order(calls: &[(u64, u64)]) -> Vec<u32> {
        let mut queue = ParkedQueue::default();
        for (call, (arrival, deadline)) in (0..).zip(calls) {
            let deadline = (*deadline > 0).then_some(Nanos::from_millis(*deadline));
            let turn = Turn::new(Nanos::from_millis(*arrival), deadline, call.into());
            queue.park(call, turn, deadline);
        }
        let mut order = Vec::new();
        while let Some((_, call)) = queue.first_ready() {
            queue.remove(call);
            order.push(call);
        }
        assert_eq!((0, None), (queue.len(), queue.next_wakeup()));
        order
    }

    #[test]
    fn the_order_is_by_deadline_within_the_horizon_and_by_arrival_beyond() {
        fn check(expected: &[u32], calls: &[(u64, u64)]) {
            assert_eq!(expected, order(calls), "{calls:?}");
        }
        check(&[0, 1, 2], &[(0, 0), (1, 0), (2, 0)]);
        check(&[1, 0], &[(0, 2_000), (1, 1_000)]);
        check(&[1, 0], &[(0, 0), (1, 1_000)]);
        // A far deadline counts like none.
        check(&[0, 1], &[(0, 3_600_000), (1, 0)]);
        // A call that arrives more than the horizon later waits behind, however urgent it is.
        check(&[0, 1], &[(0, 0), (5_001, 5_002)]);
        check(&[0, 1], &[(0, 7_000), (0, 7_000)]);
    }

    #[test]
    fn priorities_and_callers_move_a_call_by_bounded_times() {
        let turn = |arrival_s, priority, behind_s| {
            let turn = Turn::new(Nanos::from_secs(arrival_s), None, 0);
            turn.with(priority, Nanos::from_secs(behind_s))
        };
        // A step of priority is five seconds of waiting.
        assert!(turn(4, 1, 0) < turn(0, 0, 0) && turn(6, 1, 0) > turn(0, 0, 0));
        assert!(turn(4, 0, 0) < turn(0, -1, 0) && turn(6, 0, 0) > turn(0, -1, 0));
        assert!(turn(600, i8::MAX, 0) < turn(0, 0, 0) && turn(0, i8::MAX, 0) < turn(0, 126, 0));
        // A caller's further calls come later by the time that its waiting ones take, at most five
        // seconds.
        assert!(turn(1, 0, 0) < turn(0, 0, 2) && turn(3, 0, 0) > turn(0, 0, 2));
        assert!(turn(6, 0, 0) > turn(0, 0, 100));
    }

    #[test]
    fn a_resting_call_is_not_next_until_it_wakes_in_its_old_turn() {
        let mut queue = ParkedQueue::default();
        let (early, late) = (Turn::new(Nanos(0), None, 0), Turn::new(Nanos(1), None, 1));
        queue.rest(0, early, None, Nanos(10));
        queue.park(1, late, None);
        let first_ready = |queue: &ParkedQueue| queue.first_ready().map(|(_, call)| call);
        assert_eq!((Some(1), Some(0)), (first_ready(&queue), queue.first_resting()));
        assert_eq!((None, Some(0)), (queue.rested(Nanos(9)), queue.rested(Nanos(10))));
        assert_eq!(Some(Nanos(10)), queue.next_wakeup());
        queue.wake(0, early);
        assert_eq!((Some(0), None), (first_ready(&queue), queue.first_resting()));
    }

    #[test]
    fn deadlines_are_watched_for_ready_and_resting_calls() {
        let mut queue = ParkedQueue::default();
        for (call, deadline) in [(0, Nanos(30)), (1, Nanos(20))] {
            let turn = Turn::new(Nanos(0), Some(deadline), call.into());
            match call {
                0 => queue.park(call, turn, Some(deadline)),
                _ => queue.rest(call, turn, Some(deadline), Nanos(25)),
            }
        }
        assert_eq!((None, Some(1)), (queue.overdue(Nanos(19)), queue.overdue(Nanos(20))));
        queue.remove(1);
        assert_eq!(Some(Nanos(30)), queue.next_wakeup());
    }
}
