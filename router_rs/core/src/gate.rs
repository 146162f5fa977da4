//! Whether a replica admits a call.
//!
//! The replica's server asks when the request headers have arrived, before anything is handed to
//! Python. The gate only counts calls; it does not know their identity.
//!
//! A router that was refused may *ask* (design decision 7): the next free place goes to the oldest
//! ask, as a *lease*. Until the lease expires, the place counts as taken, and only its router's
//! next call gets it. So a waiting call is not overtaken by one that happens to arrive, and no call
//! is woken in vain.

use std::collections::VecDeque;
use std::fmt;

use crate::replica::Load;
use crate::time::Nanos;

/// How long a place is kept for a router that has asked: several round trips inside a zone, and
/// short compared with a call that is worth routing (design decision 7).
pub const LEASE_TIME: Nanos = Nanos::from_millis(20);

/// Asks beyond this are dropped; their routers try again after a backoff. Arbitrary: more routers
/// than a replica should have.
const ASKS_MAX: usize = 1024;

/// Identifies a router that asks, the same for all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskerId(pub u64);

/// A place that is kept for a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The router.
    pub asker: AskerId,
    /// Its expiry.
    pub until: Nanos,
}

/// Counts the calls in a replica against its limit.
///
/// A call has a weight: 1 for most, 0 for streams that are nearly always idle. Weightless calls do
/// not count against the limit, but against a bound of their own.
///
/// Invariants: `in_flight + leases ≤ limit` and `idle_streams ≤ idle_streams_max`, unless the limit
/// was lowered, the weights of calls already inside differ, or calls entered beyond it. No router
/// asks twice. While a router asks and holds no lease, there is no room.
#[derive(Debug)]
pub struct Gate {
    /// `u32::MAX` means none.
    limit: u32,
    idle_streams_max: u32,
    in_flight: u32,
    idle_streams: u32,
    /// Counts calls that have entered, and begins again after 2^32.
    entered: u32,
    /// In order of arrival.
    asks: VecDeque<AskerId>,
    /// In order of expiry.
    leases: VecDeque<Lease>,
}

/// The call is in. Its owner calls [`Gate::leave`] with the same weight, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a call that entered has to leave"]
pub struct Admission {
    /// The load, this call included.
    pub load: Load,
}

/// The call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The number inside: of calls, or of idle streams if the refused call was one.
    pub in_flight: u32,
    /// The limit.
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
        Self {
            limit: limit.unwrap_or(u32::MAX),
            idle_streams_max,
            in_flight: 0,
            idle_streams: 0,
            entered: 0,
            asks: VecDeque::new(),
            leases: VecDeque::new(),
        }
    }

    /// Admits a call, if it fits.
    pub fn try_enter(&mut self, weight: u32) -> Result<Admission, Full> {
        let leased = self.leases.len() as u32;
        let (count, limit, added, kept) = if weight == 0 {
            (&mut self.idle_streams, self.idle_streams_max, 1, 0)
        } else {
            (&mut self.in_flight, self.limit, weight, leased)
        };
        let taken = count.saturating_add(kept);
        if taken.checked_add(added).is_none_or(|sum| sum > limit) {
            return Err(Full { in_flight: taken, limit });
        }
        *count += added;
        self.entered = self.entered.wrapping_add(1);
        Ok(Admission { load: self.load() })
    }

    /// Like [`Gate::try_enter`], for a call of a router that may hold a lease; uses it up.
    pub fn try_enter_leased(&mut self, weight: u32, asker: AskerId) -> Result<Admission, Full> {
        if weight > 0
            && let Some(index) = self.leases.iter().position(|lease| lease.asker == asker)
        {
            self.leases.remove(index);
        }
        self.try_enter(weight)
    }

    /// Admits a call regardless of the limit, and counts it like any other.
    pub fn enter_beyond(&mut self, weight: u32) -> Admission {
        let (count, added) =
            if weight == 0 { (&mut self.idle_streams, 1) } else { (&mut self.in_flight, weight) };
        *count = count.saturating_add(added);
        self.entered = self.entered.wrapping_add(1);
        Admission { load: self.load() }
    }

    /// The number of calls that have entered; it begins again after 2^32.
    pub fn entered(&self) -> u32 {
        self.entered
    }

    /// Records that a call which entered with `weight` is over.
    ///
    /// Leaving more often than entering is a bug of the caller: an assertion in debug builds;
    /// otherwise the count stops at 0, so that it cannot wrap and shut the gate forever.
    pub fn leave(&mut self, weight: u32) {
        let (count, removed) =
            if weight == 0 { (&mut self.idle_streams, 1) } else { (&mut self.in_flight, weight) };
        debug_assert!(*count >= removed, "weight {removed} leaves, but only {count} is inside");
        *count = count.saturating_sub(removed);
    }

    /// A router wants a place as soon as there is one. Asking again changes nothing.
    ///
    /// Returns whether the ask is kept. Call [`Gate::grant`] after it.
    pub fn ask(&mut self, asker: AskerId) -> bool {
        if self.asks.contains(&asker) {
            return true;
        }
        let has_room = self.asks.len() < ASKS_MAX;
        if has_room {
            self.asks.push_back(asker);
        }
        has_room
    }

    /// A router no longer wants a place; one kept for it becomes free. Call [`Gate::grant`] after
    /// it.
    pub fn withdraw(&mut self, asker: AskerId) {
        self.asks.retain(|waiting| *waiting != asker);
        self.leases.retain(|lease| lease.asker != asker);
    }

    /// Ends expired leases, and gives free places to routers that ask, the oldest ask first. Call
    /// it after anything that may have made room. Each lease appears in `granted` once.
    pub fn grant(&mut self, now: Nanos, granted: &mut Vec<Lease>) {
        while self.leases.front().is_some_and(|lease| lease.until <= now) {
            self.leases.pop_front();
        }
        while self.has_room() {
            let Some(asker) = self.asks.pop_front() else { return };
            let lease = Lease { asker, until: now.saturating_add(LEASE_TIME) };
            self.leases.push_back(lease);
            granted.push(lease);
        }
    }

    /// Whether a router asks or holds a lease, so that [`Gate::grant`] may have an effect.
    #[inline]
    pub fn is_asked(&self) -> bool {
        !self.asks.is_empty() || !self.leases.is_empty()
    }

    /// When the first lease ends.
    pub fn next_lease_end(&self) -> Option<Nanos> {
        self.leases.front().map(|lease| lease.until)
    }

    fn has_room(&self) -> bool {
        u64::from(self.in_flight) + (self.leases.len() as u64) < u64::from(self.limit)
    }

    /// Changes the limit. Calls that are inside stay, even above a lowered limit.
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

    /// The load that the replica reports to routers. A lease counts as a call.
    pub fn load(&self) -> Load {
        let in_flight = self.in_flight.saturating_add(self.leases.len() as u32);
        Load {
            in_flight,
            limit: self.limit,
            processing: None,
            alone: None,
            batch: None,
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of these weights try to enter in turn; returns which did, and the counts after.
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
            Load { in_flight: 2, limit: 1, processing: None, alone: None, batch: None, cost: None },
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
        assert_eq!(
            Ok(Load {
                in_flight: 1,
                limit: 1,
                processing: None,
                alone: None,
                batch: None,
                cost: None
            }),
            load
        );
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

    /// The leases that `grant` hands out, by the number of who asked.
    fn granted(gate: &mut Gate, now: Nanos) -> Vec<u64> {
        let mut granted = Vec::new();
        gate.grant(now, &mut granted);
        assert!(granted.iter().all(|lease| lease.until == now.saturating_add(LEASE_TIME)));
        granted.into_iter().map(|lease| lease.asker.0).collect()
    }

    fn full_gate(limit: u32) -> Gate {
        let mut gate = Gate::new(Some(limit), 2);
        for _ in 0..limit {
            let _inside = gate.try_enter(1).expect("there is room");
        }
        gate
    }

    #[test]
    fn a_freed_place_is_kept_for_the_oldest_ask_and_nobody_else() {
        let mut gate = full_gate(2);
        assert!(gate.ask(AskerId(7)) && gate.ask(AskerId(8)) && gate.ask(AskerId(7)));
        assert!(granted(&mut gate, Nanos::ZERO).is_empty());
        gate.leave(1);
        assert_eq!(vec![7], granted(&mut gate, Nanos(1)));
        assert_eq!((1, 2), (gate.in_flight(), gate.load().in_flight));
        assert_eq!(Err(Full { in_flight: 2, limit: 2 }), gate.try_enter(1));
        assert!(gate.try_enter_leased(1, AskerId(8)).is_err());
        assert!(gate.try_enter_leased(1, AskerId(7)).is_ok());
        assert!(gate.try_enter_leased(1, AskerId(7)).is_err(), "a lease is for one call");
        gate.leave(1);
        assert_eq!(vec![8], granted(&mut gate, Nanos(2)));
    }

    #[test]
    fn a_lease_that_is_not_used_goes_to_the_next_and_then_to_anybody() {
        let mut gate = full_gate(1);
        assert!(gate.ask(AskerId(1)) && gate.ask(AskerId(2)));
        gate.leave(1);
        assert_eq!(vec![1], granted(&mut gate, Nanos::ZERO));
        assert_eq!(Some(LEASE_TIME), gate.next_lease_end());
        assert!(granted(&mut gate, Nanos(LEASE_TIME.0 - 1)).is_empty());
        assert_eq!(vec![2], granted(&mut gate, LEASE_TIME));
        assert!(granted(&mut gate, LEASE_TIME.saturating_add(LEASE_TIME)).is_empty());
        assert!(!gate.is_asked() && gate.try_enter(1).is_ok());
    }

    #[test]
    fn who_withdraws_leaves_no_lease_behind() {
        let mut gate = full_gate(1);
        assert!(gate.ask(AskerId(1)) && gate.ask(AskerId(2)));
        gate.leave(1);
        assert_eq!(vec![1], granted(&mut gate, Nanos::ZERO));
        gate.withdraw(AskerId(1));
        assert_eq!(vec![2], granted(&mut gate, Nanos::ZERO));
        gate.withdraw(AskerId(2));
        assert!(!gate.is_asked());
    }

    #[test]
    fn an_ask_at_a_gate_with_room_is_granted_at_once_and_asks_are_bounded() {
        let mut gate = Gate::new(Some(1), 0);
        assert!(gate.ask(AskerId(0)));
        assert_eq!(vec![0], granted(&mut gate, Nanos::ZERO));
        let kept = (1..=ASKS_MAX as u64 + 5).filter(|asker| gate.ask(AskerId(*asker))).count();
        assert_eq!(ASKS_MAX, kept);
    }

    #[test]
    fn idle_streams_need_no_lease() {
        let mut gate = full_gate(1);
        assert!(gate.ask(AskerId(1)));
        gate.leave(1);
        assert_eq!(vec![1], granted(&mut gate, Nanos::ZERO));
        assert!(gate.try_enter_leased(0, AskerId(1)).is_ok());
        assert_eq!(2, gate.load().in_flight + gate.idle_streams());
    }
}
