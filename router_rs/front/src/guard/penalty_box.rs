//! Remembers the addresses whose connections had to be closed for offences.
//!
//! Each connection begins with rate limits of its own, so a client that reconnects gets them again
//! each time. While an address goes on like that, its new connections are read a little later, then
//! only after pauses until its past offences are forgotten, and may have fewer streams. None is
//! closed for it: many people may share one address.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::guard::addresses::{Addresses, Rules};

/// Points without effect; with more, the next connection has to wait. Arbitrary: two floods, or the
/// connections of many clients behind one address that speak the wrong protocol.
const FREE_POINTS: u32 = 59;

/// Further points are not counted, so that all is forgotten within half a minute.
const POINTS_MAX: u32 = 3 * FREE_POINTS;

/// The time in which one point is forgotten. Arbitrary.
const RECOVERY: Duration = Duration::from_millis(150);

/// After this time, everything before a connection is forgotten.
pub(crate) const FORGOTTEN_AFTER: Duration = RECOVERY.saturating_mul(POINTS_MAX);

/// How long a new connection then waits before it is read. Arbitrary: a flood that costs ten
/// milliseconds then takes a hundredth of its thread, and people wait as long for a page.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// Why a connection had to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offence {
    /// It sent malformed input.
    Malformed,
    /// It sent more than any legitimate client does.
    Flood,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct PenaltyBox {
    addresses: Addresses,
}

// === impl Offence ===

impl Offence {
    fn points(self) -> u32 {
        match self {
            Offence::Malformed => 1,
            Offence::Flood => 30,
        }
    }
}

// === impl PenaltyBox ===

impl PenaltyBox {
    pub(crate) fn new(now: Instant) -> Self {
        let rules = Rules { free_points: FREE_POINTS, points_max: POINTS_MAX, recovery: RECOVERY };
        Self { addresses: Addresses::new(rules, now) }
    }

    /// Records that a connection of `address` had to be closed.
    pub(crate) fn add(&self, address: IpAddr, offence: Offence, now: Instant) {
        self.addresses.add(address, offence.points(), now);
    }

    /// Whether a new connection of `address` has to wait.
    pub(crate) fn has(&self, address: IpAddr, now: Instant) -> bool {
        self.addresses.has(address, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn some_offences_are_free_and_more_are_forgotten_in_time() {
        let now = Instant::now();
        let (penalty_box, one) = (PenaltyBox::new(now), address("192.0.2.1"));
        for _ in 0..FREE_POINTS {
            penalty_box.add(one, Offence::Malformed, now);
            assert!(!penalty_box.has(one, now));
        }
        penalty_box.add(one, Offence::Malformed, now);
        assert!(penalty_box.has(one, now));
        assert!(!penalty_box.has(address("192.0.2.2"), now), "somebody else");
        assert!(penalty_box.has(one, now + RECOVERY / 2));
        assert!(!penalty_box.has(one, now + RECOVERY));
    }

    #[test]
    fn a_flood_is_forgotten_within_half_a_minute() {
        let now = Instant::now();
        let (penalty_box, one) = (PenaltyBox::new(now), address("192.0.2.1"));
        penalty_box.add(one, Offence::Flood, now);
        assert!(!penalty_box.has(one, now));
        for _ in 0..10_000 {
            penalty_box.add(one, Offence::Flood, now);
        }
        assert!(penalty_box.has(one, now + Duration::from_secs(15)));
        assert!(!penalty_box.has(one, now + Duration::from_secs(30)));
    }

    #[test]
    fn one_that_goes_on_more_slowly_than_is_forgotten_never_waits() {
        let begun = Instant::now();
        let (penalty_box, one) = (PenaltyBox::new(begun), address("192.0.2.1"));
        for round in 0..1000 {
            let now = begun + RECOVERY * round;
            penalty_box.add(one, Offence::Malformed, now);
            assert!(!penalty_box.has(one, now));
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_a_mapped_address_is_what_it_maps() {
        let now = Instant::now();
        for (offender, same, other) in [
            ("2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"),
            ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ] {
            let penalty_box = PenaltyBox::new(now);
            for _ in 0..2 {
                penalty_box.add(address(offender), Offence::Flood, now);
            }
            assert!(penalty_box.has(address(same), now));
            assert!(!penalty_box.has(address(other), now));
        }
    }

    #[test]
    fn crowds_of_offences_hide_none_that_goes_on() {
        let now = Instant::now();
        let penalty_box = PenaltyBox::new(now);
        for index in 0..100_000_u32 {
            penalty_box.add(std::net::Ipv4Addr::from_bits(index).into(), Offence::Flood, now);
        }
        let one = address("192.0.2.1");
        for _ in 0..POINTS_MAX {
            penalty_box.add(one, Offence::Flood, now);
        }
        assert!(penalty_box.has(one, now));
    }
}
