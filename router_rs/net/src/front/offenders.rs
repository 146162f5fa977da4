//! Remembers the addresses whose connections had to be ended for what they sent.
//!
//! Each connection begins with rations of its own, so one that is ended and made anew would have
//! them again and again. While an address goes on like that, its new connections are read a little
//! later and may have fewer streams. None is closed for it: behind one address there may be many
//! people.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Addresses that are remembered at once. Arbitrary.
const PLACES: usize = 512;

/// So many points may be lost before the next connection has to wait. Arbitrary: two floods, or what
/// many clients behind one address do that speak the wrong protocol.
const FREE_POINTS: u32 = 59;

/// More of them count no more, so that all is forgotten within half a minute.
const POINTS_MAX: u32 = 3 * FREE_POINTS;

/// One is forgotten in so long. Arbitrary.
const RECOVERY: Duration = Duration::from_millis(150);

/// How long a new connection waits then before anything of it is read. Arbitrary: a flood that
/// costs ten milliseconds is a hundredth of its thread then, and people wait as long for a page.
pub(super) const WAIT: Duration = Duration::from_secs(1);

/// What a connection had to be ended for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offence {
    /// What it sent means nothing.
    Malformed,
    /// It sent more than any client does.
    Flood,
}

/// See the module's documentation. An address is known by a hash of it, which strangers cannot
/// foretell; two of the same hash are one.
#[derive(Debug)]
pub(super) struct Offenders {
    hasher: RandomState,
    places: Mutex<Box<[Place]>>,
}

/// Empty while `points` is 0.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    points: u32,
    /// Since when these are forgotten one by one.
    since: Instant,
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

// === impl Offenders ===

impl Offenders {
    pub(super) fn new(now: Instant) -> Self {
        let place = Place { hash: 0, points: 0, since: now };
        let places = Mutex::new(vec![place; PLACES].into());
        Self { hasher: RandomState::new(), places }
    }

    /// A connection of `address` had to be ended.
    pub(super) fn add(&self, address: IpAddr, offence: Offence, now: Instant) {
        let (hash, points) = (self.hash(address), offence.points());
        let place = &mut self.places.lock()[hash as usize % PLACES];
        place.forget(now);
        if place.points == 0 {
            *place = Place { hash, points, since: now };
        } else if place.hash == hash {
            place.points = (place.points + points).min(POINTS_MAX);
        } else {
            // Whoever goes on gets the place in the end.
            place.points = place.points.saturating_sub(points);
        }
    }

    /// Whether a new connection of `address` has to wait.
    pub(super) fn has(&self, address: IpAddr, now: Instant) -> bool {
        let hash = self.hash(address);
        let place = &mut self.places.lock()[hash as usize % PLACES];
        place.forget(now);
        place.hash == hash && place.points > FREE_POINTS
    }

    /// Networks of IPv6 are one: a single host has all the addresses of its own.
    fn hash(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.hasher.hash_one(address.octets()),
            IpAddr::V6(address) => self.hasher.hash_one(&address.segments()[..4]),
        }
    }
}

impl Place {
    fn forget(&mut self, now: Instant) {
        let passed_ms = now.saturating_duration_since(self.since).as_millis();
        let forgotten = u32::try_from(passed_ms / RECOVERY.as_millis()).unwrap_or(u32::MAX);
        self.points = self.points.saturating_sub(forgotten);
        self.since = if self.points == 0 { now } else { self.since + RECOVERY * forgotten };
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
        let (offenders, one) = (Offenders::new(now), address("192.0.2.1"));
        for _ in 0..FREE_POINTS {
            offenders.add(one, Offence::Malformed, now);
            assert!(!offenders.has(one, now));
        }
        offenders.add(one, Offence::Malformed, now);
        assert!(offenders.has(one, now));
        assert!(!offenders.has(address("192.0.2.2"), now), "somebody else");
        assert!(offenders.has(one, now + RECOVERY / 2));
        assert!(!offenders.has(one, now + RECOVERY));
    }

    #[test]
    fn a_flood_is_forgotten_within_half_a_minute() {
        let now = Instant::now();
        let (offenders, one) = (Offenders::new(now), address("192.0.2.1"));
        offenders.add(one, Offence::Flood, now);
        assert!(!offenders.has(one, now));
        for _ in 0..10_000 {
            offenders.add(one, Offence::Flood, now);
        }
        assert!(offenders.has(one, now + Duration::from_secs(15)));
        assert!(!offenders.has(one, now + Duration::from_secs(30)));
    }

    #[test]
    fn one_that_goes_on_more_slowly_than_is_forgotten_never_waits() {
        let begun = Instant::now();
        let (offenders, one) = (Offenders::new(begun), address("192.0.2.1"));
        for round in 0..1000 {
            let now = begun + RECOVERY * round;
            offenders.add(one, Offence::Malformed, now);
            assert!(!offenders.has(one, now));
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_a_mapped_address_is_what_it_maps() {
        let now = Instant::now();
        for (offender, same, other) in [
            ("2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"),
            ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ] {
            let offenders = Offenders::new(now);
            for _ in 0..2 {
                offenders.add(address(offender), Offence::Flood, now);
            }
            assert!(offenders.has(address(same), now));
            assert!(!offenders.has(address(other), now));
        }
    }

    #[test]
    fn crowds_of_offenders_hide_none_that_goes_on() {
        let now = Instant::now();
        let offenders = Offenders::new(now);
        for index in 0..100_000_u32 {
            offenders.add(std::net::Ipv4Addr::from_bits(index).into(), Offence::Flood, now);
        }
        let one = address("192.0.2.1");
        for _ in 0..POINTS_MAX {
            offenders.add(one, Offence::Flood, now);
        }
        assert!(offenders.has(one, now));
    }
}
