//! Whether calls come so much faster than they are answered that keeping them is of no use.
//!
//! A queue in the router is in order of arrival, and what the router knows of calls it knows of those
//! that were answered. After a change from long calls to short ones, or to such that await something,
//! the long ones come first, and nothing is learnt until they are through. Only one thing tells the
//! router earlier: many more calls come than it sees answered. If they are of the same kind after all,
//! that is an overload in which each replica has a queue anyway, in the router or at the replica.
//!
//! A burst is none: of calls that come between two answers, few count, so it takes several answers
//! with many calls after each. Those of a burst are best kept, since some are long and others short.

/// While calls come more than so many times as fast as they are answered, it is a rush, from so many
/// for each replica on: one that is at work and one for its next answer.
const RUSH: u32 = 2;

/// The calls that wait beside those that are answered.
#[derive(Debug, Default)]
pub(crate) struct Rush {
    /// Calls that came to wait, less [`RUSH`] for each answer; never below 0.
    ahead: u32,
    /// Those of them since the last answer: at most one for each replica, and what an answer takes
    /// off.
    since_answer: u32,
    is_on: bool,
}

impl Rush {
    /// Calls go to the replicas as they come.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// One more call waits for so many replicas. Returns whether a rush begins.
    #[inline]
    pub(crate) fn on_wait(&mut self, replicas: u32) -> bool {
        if self.since_answer < replicas.saturating_add(RUSH) {
            self.since_answer += 1;
            self.ahead = self.ahead.saturating_add(1);
        }
        let begins = !self.is_on && self.ahead > replicas.saturating_mul(RUSH);
        self.is_on |= begins;
        begins
    }

    #[inline]
    pub(crate) fn on_answer(&mut self) {
        self.ahead = self.ahead.saturating_sub(RUSH);
        self.since_answer = 0;
    }

    /// A replica has nothing to do: whatever came is with the replicas by now.
    #[inline]
    pub(crate) fn on_idle(&mut self) {
        self.is_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many times, so many calls come to wait for ten replicas, and then one is answered.
    fn after(times: u32, calls: u32) -> Rush {
        let mut rush = Rush::default();
        for _ in 0..times {
            for _ in 0..calls {
                rush.on_wait(10);
            }
            rush.on_answer();
        }
        rush
    }

    #[test]
    fn it_begins_once_more_than_two_for_each_replica_came_beyond_two_for_each_answer() {
        assert_eq!([false, true], [9, 10].map(|times| after(times, 4).is_on()));
    }

    #[test]
    fn calls_that_are_answered_half_as_fast_as_they_come_are_none() {
        assert!(!after(10_000, 2).is_on());
    }

    #[test]
    fn a_burst_is_none_but_many_calls_after_each_answer_are() {
        assert!(!after(1, 1_000).is_on());
        assert!(after(3, 1_000).is_on());
    }

    #[test]
    fn it_begins_once_and_ends_when_a_replica_has_nothing_to_do() {
        let mut rush = after(10, 4);
        assert!(!rush.on_wait(10), "it has begun before");
        assert!(rush.is_on());
        rush.on_idle();
        assert!(!rush.is_on());
    }
}
