//! Whether a replica admits a call.
//!
//! The replica's server asks when the request headers are there, before anything is handed to
//! Python. The gate counts; it knows neither calls nor time.

use std::fmt;

use crate::replica::Load;

/// Counts the calls in a replica against its limit.
///
/// A call has a weight: 1 for most, 0 for streams that are idle nearly always. Weightless calls do
/// not count against the limit, but against a bound of their own.
///
/// Invariants: `in_flight ≤ limit` and `idle_streams ≤ idle_streams_max`, unless the limit was
/// lowered, the weights of calls already inside say otherwise, or calls entered beyond it.
#[derive(Debug)]
pub struct Gate {
    /// `u32::MAX` means none.
    limit: u32,
    idle_streams_max: u32,
    in_flight: u32,
    idle_streams: u32,
}

/// The call is in. Whoever entered calls [`Gate::leave`] with the same weight, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a call that entered has to leave"]
pub struct Admission {
    /// The load, this call included.
    pub load: Load,
}

/// The call stays out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What is inside: calls, or idle streams when the refused call was one.
    pub in_flight: u32,
    /// How much may be inside.
    pub limit: u32,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the replica is full: {} in flight, at most {}", self.in_flight, self.limit)
    }
}

impl std::error::Error for Full {}

impl Gate {
    /// A gate for calls of total weight `limit` (`None`: any) and `idle_streams_max` calls of
    /// weight 0.
    pub fn new(limit: Option<u32>, idle_streams_max: u32) -> Self {
        Self { limit: limit.unwrap_or(u32::MAX), idle_streams_max, in_flight: 0, idle_streams: 0 }
    }

    /// Lets a call in, if it fits.
    pub fn try_enter(&mut self, weight: u32) -> Result<Admission, Full> {
        let (count, limit, added) = if weight == 0 {
            (&mut self.idle_streams, self.idle_streams_max, 1)
        } else {
            (&mut self.in_flight, self.limit, weight)
        };
        match count.checked_add(added).filter(|sum| *sum <= limit) {
            Some(sum) => *count = sum,
            None => {
                return Err(Full { in_flight: *count, limit });
            }
        }
        Ok(Admission { load: self.load() })
    }

    /// Lets a call in whatever the limit says, and counts it as any other.
    pub fn enter_beyond(&mut self, weight: u32) -> Admission {
        let (count, added) =
            if weight == 0 { (&mut self.idle_streams, 1) } else { (&mut self.in_flight, weight) };
        *count = count.saturating_add(added);
        Admission { load: self.load() }
    }

    /// Records that a call which entered with `weight` is over.
    ///
    /// Leaving more often than entering is a defect of the caller: an assertion in debug builds;
    /// otherwise the count stops at 0, so that it cannot wrap and shut the gate for ever.
    pub fn leave(&mut self, weight: u32) {
        let (count, removed) =
            if weight == 0 { (&mut self.idle_streams, 1) } else { (&mut self.in_flight, weight) };
        debug_assert!(*count >= removed, "weight {removed} leaves, but only {count} is inside");
        *count = count.saturating_sub(removed);
    }

    /// Changes the limit. Calls that are inside stay, also above a lowered limit.
    pub fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit.unwrap_or(u32::MAX);
    }

    /// Total weight of the calls inside.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls of weight 0 inside.
    pub fn idle_streams(&self) -> u32 {
        self.idle_streams
    }

    /// What the replica tells routers about itself.
    pub fn load(&self) -> Load {
        Load { in_flight: self.in_flight, limit: self.limit, processing: None, batch: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets calls of these weights try in turn; returns who got in and the counts after.
    fn check(expected: (&[bool], u32, u32), limit: Option<u32>, weights: &[u32]) -> Gate {
        let mut gate = Gate::new(limit, 2);
        let entered: Vec<bool> = weights.iter().map(|w| gate.try_enter(*w).is_ok()).collect();
        assert_eq!(expected, (&entered[..], gate.in_flight(), gate.idle_streams()));
        gate
    }

    #[test]
    fn weights_count_against_the_limit_and_idle_streams_against_their_bound() {
        check((&[true, true, false], 2, 0), Some(2), &[1, 1, 1]);
        check((&[true, false, true], 3, 0), Some(3), &[2, 2, 1]);
        check((&[true, true, false, true], 1, 2), Some(1), &[0, 0, 0, 1]);
        check((&[false, true], 0, 1), Some(0), &[1, 0]);
        check((&[true, true], u32::MAX, 0), None, &[u32::MAX - 1, 1]);
        check((&[true, false], u32::MAX, 0), None, &[u32::MAX, 1]);
    }

    #[test]
    fn calls_beyond_the_limit_count_as_any_other() {
        let mut gate = check((&[true, false], 1, 0), Some(1), &[1, 1]);
        assert_eq!(
            Load { in_flight: 2, limit: 1, processing: None, batch: None },
            gate.enter_beyond(1).load
        );
        let _idle = (gate.enter_beyond(0), gate.enter_beyond(0), gate.enter_beyond(0));
        assert_eq!(3, gate.idle_streams());
        gate.leave(1);
        assert!(gate.try_enter(1).is_err());
        gate.leave(1);
        assert!(gate.try_enter(1).is_ok());
    }

    #[test]
    fn a_refusal_names_the_count_and_the_limit() {
        let mut gate = check((&[true], 1, 0), Some(1), &[1]);
        let full = gate.try_enter(1).expect_err("the gate is full");
        assert_eq!(Full { in_flight: 1, limit: 1 }, full);
        assert_eq!("the replica is full: 1 in flight, at most 1", full.to_string());
    }

    #[test]
    fn who_leaves_makes_room() {
        let mut gate = check((&[true, true, true], 1, 2), Some(1), &[1, 0, 0]);
        gate.leave(1);
        gate.leave(0);
        assert_eq!((0, 1), (gate.in_flight(), gate.idle_streams()));
        let load = gate.try_enter(1).map(|admission| admission.load);
        assert_eq!(Ok(Load { in_flight: 1, limit: 1, processing: None, batch: None }), load);
    }

    #[test]
    fn a_lowered_limit_keeps_who_is_inside_and_admits_nobody_until_there_is_room() {
        let mut gate = check((&[true, true, true], 3, 0), Some(3), &[1, 1, 1]);
        gate.set_limit(Some(1));
        assert_eq!(Err(Full { in_flight: 3, limit: 1 }), gate.try_enter(1));
        for _ in 0..3 {
            gate.leave(1);
        }
        assert!(gate.try_enter(1).is_ok());
        gate.set_limit(None);
        assert!(gate.try_enter(1).is_ok());
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "only 0 is inside"))]
    fn leaving_an_empty_gate_is_a_defect_and_never_wraps() {
        let mut gate = Gate::new(Some(1), 0);
        gate.leave(1);
        assert_eq!(0, gate.in_flight());
    }
}
