//! Whether the replicas of a deployment work on one call at a time, by their own word.
//!
//! A replica says with an answer how long it worked on that call and could work on no other one
//! meanwhile ([`Load::alone`](crate::Load)): an event loop that the call held from its start to its
//! end. Where nearly all of their time is of that kind, more calls at a replica would only wait
//! there, bound to it, so the router keeps them and binds them late (Ousterhout and others,
//! "Sparrow: distributed, low latency scheduling", 2013).
//!
//! This is not inferred from throughput, which would need more calls at a replica than it is given.
//! The evidence comes from whatever calls are there: one that awaits something says at its end that
//! others would have found room beside it, and the replica says so at once to a router that asks
//! ([`LeaseRequest`](crate::LeaseRequest)).

use crate::rush::Rush;
use crate::time::Nanos;

/// The part of the replicas' time that may be lost by keeping calls from them.
const LOSS_MAX: f64 = 1.0 / 32.0;
/// The weight of one answer: the last 64 count most, twice as many as [`LOSS_MAX`] is one of.
const WEIGHT: f64 = 1.0 / 64.0;
/// Fewer answers prove nothing; about so many make the mean of the last few.
const ANSWERS_MIN: u32 = 8;
/// If the last few calls take less than this part of the usual work, that is another mix, to which what
/// was learnt before does not apply: beside short calls the way to a replica is long, and it would
/// idle for lack of one in reserve.
const SHORTER: f64 = 1.0 / 4.0;
/// One call in reserve bridges the gap to the next one up to this part of a call's work. Beyond that
/// the replica would idle in spite of it whenever the reserve is shorter than the gap.
const RESERVE_GAP_MAX: f64 = 1.0 / 4.0;
/// A call that takes more than so many times the mean is long: what waits behind it waits for long.
const LONG: f64 = 2.0;
/// A replica that answers nothing for so many times a call's work may take one more call, and another
/// one each time that passes again: that it idles may have got lost on the way.
const PATIENCE: f64 = 16.0;

/// The state of late binding in a fleet.
#[derive(Debug)]
pub(crate) struct Late {
    /// The policy binds calls late.
    pub(crate) is_on: bool,
    pub(crate) exclusive: Exclusive,
    /// When the first replica takes one call more because it is silent.
    pub(crate) eases_at: Option<Nanos>,
    pub(crate) rush: Rush,
}

impl Late {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, exclusive: Exclusive::default(), eases_at: None, rush: Rush::default() }
    }
}

/// The evidence of one deployment.
#[derive(Debug, Default)]
pub(crate) struct Exclusive {
    /// Time and number of the last answers: of those that came from a replica that could work on
    /// nothing else, and of the others.
    alone_ns: f64,
    other_ns: f64,
    alone: f64,
    other: f64,
    /// Mean work of a call that was alone.
    work_ns: f64,
    /// The same of the last few.
    recent_ns: f64,
    answers: u32,
}

impl Exclusive {
    /// A call was answered that was at its replica for `took`.
    #[inline]
    pub(crate) fn on_answer(&mut self, took: Nanos, alone: Option<Nanos>) {
        self.alone_ns -= self.alone_ns * WEIGHT;
        self.other_ns -= self.other_ns * WEIGHT;
        self.alone -= self.alone * WEIGHT;
        self.other -= self.other * WEIGHT;
        let Some(work) = alone else {
            self.other_ns += took.0 as f64;
            self.other += 1.0;
            return;
        };
        let work_ns = work.0.max(1) as f64;
        let weight = if self.answers == 0 { 1.0 } else { WEIGHT };
        self.work_ns += (work_ns - self.work_ns) * weight;
        self.recent_ns += (work_ns - self.recent_ns) * weight.max(1.0 / f64::from(ANSWERS_MIN));
        if self.recent_ns < self.work_ns * SHORTER {
            self.work_ns = self.recent_ns;
        }
        self.alone_ns += work_ns;
        self.alone += 1.0;
        self.answers = self.answers.saturating_add(1);
    }

    /// A replica idles beside the calls that it has.
    pub(crate) fn on_idle(&mut self) {
        self.other += 1.0;
    }

    /// Next to all of the time, and next to all of the calls, left no room for another one.
    #[inline]
    pub(crate) fn is_proven(&self) -> bool {
        self.answers >= ANSWERS_MIN
            && self.other_ns <= self.alone_ns * LOSS_MAX
            && self.other <= self.alone * LOSS_MAX
    }

    /// How many calls keep a replica busy that has answered nothing for so long, when a freed place
    /// waits `gap_ns` for the next call; more of them would only wait there. `None`: any number.
    ///
    /// Nothing is kept in reserve behind a long call.
    #[inline]
    pub(crate) fn enough(&self, gap_ns: f64, quiet: Nanos) -> Option<u32> {
        if !self.is_proven() || gap_ns <= 0.0 {
            return None;
        }
        let gap = gap_ns / self.work_ns;
        if gap <= LOSS_MAX {
            return Some(1);
        }
        (gap <= RESERVE_GAP_MAX).then_some(if self.is_long(quiet) { 1 } else { 2 })
    }

    /// A call that was begun so long ago takes longer than most.
    #[inline]
    pub(crate) fn is_long(&self, quiet: Nanos) -> bool {
        quiet.0 as f64 > self.work_ns * LONG
    }

    /// How long a replica may answer nothing until it may take one call more.
    #[inline]
    pub(crate) fn patience(&self) -> Nanos {
        Nanos((self.work_ns * PATIENCE) as u64 + 1)
    }

    /// Mean work of a call; 0: unknown.
    pub(crate) fn work_ns(&self) -> f64 {
        self.work_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Nanos = Nanos::from_millis(10);

    fn after(alone: u32) -> Exclusive {
        let mut exclusive = Exclusive::default();
        for _ in 0..alone {
            exclusive.on_answer(WORK, Some(WORK));
        }
        exclusive
    }

    #[test]
    fn it_takes_some_answers_and_one_call_that_awaits_for_long_is_enough_against_it() {
        assert!(!after(ANSWERS_MIN - 1).is_proven());
        let mut exclusive = after(1_000);
        assert!(exclusive.is_proven());
        exclusive.on_answer(Nanos::from_millis(300), None);
        assert!(!exclusive.is_proven());
    }

    /// Long calls that held the loop do not outweigh many short ones that did not.
    #[test]
    fn three_of_a_hundred_calls_are_enough_against_it_however_short() {
        let mut exclusive = after(1_000);
        exclusive.on_answer(Nanos(1), None);
        assert!(exclusive.is_proven());
        exclusive.on_answer(Nanos(1), None);
        exclusive.on_answer(Nanos(1), None);
        assert!(!exclusive.is_proven());
    }

    #[test]
    fn replicas_that_idle_beside_their_calls_are_enough_against_it() {
        let mut exclusive = after(1_000);
        (0..3).for_each(|_| exclusive.on_idle());
        assert!(!exclusive.is_proven());
        (0..100).for_each(|_| exclusive.on_answer(WORK, Some(WORK)));
        assert!(exclusive.is_proven(), "what was otherwise is forgotten");
    }

    #[test]
    fn the_longer_the_way_the_more_calls_keep_a_replica_busy() {
        let enough = |gap_ms: f64| after(100).enough(gap_ms * 1e6, Nanos::ZERO);
        assert_eq!([Some(1), Some(2), None], [0.3, 0.4, 2.6].map(enough));
        assert_eq!(None, after(1).enough(1.0, Nanos::ZERO));
        assert_eq!(None, after(100).enough(0.0, Nanos::ZERO), "the way is not known");
    }

    /// Else each of them idles for the way of the next one, until the mean has followed.
    #[test]
    fn after_long_calls_short_ones_soon_have_one_in_reserve() {
        let mut exclusive = after(1_000);
        let short = Nanos::from_millis(1);
        for _ in 0..24 {
            exclusive.on_answer(short, Some(short));
        }
        assert_eq!(Some(2), exclusive.enough(0.2e6, Nanos::ZERO));
    }

    #[test]
    fn nothing_is_kept_in_reserve_behind_a_long_call() {
        let enough = |quiet_ms| after(100).enough(1e6, Nanos::from_millis(quiet_ms));
        assert_eq!([Some(2), Some(1)], [20, 21].map(enough));
    }
}
