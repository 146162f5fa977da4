//! Points that addresses collect, and lose again one by one.
//!
//! An address is identified by a hash that clients cannot predict; addresses with the same hash
//! count as one. Places are few, so an address with few points loses its place to one that keeps
//! offending.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The number of addresses remembered at once. Arbitrary.
const PLACES: usize = 512;

/// How points count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Up to this many have no effect.
    pub free_points: u32,
    /// Further ones are not counted.
    pub points_max: u32,
    /// The time in which one point is forgotten.
    pub recovery: Duration,
}

/// A line in which connections of one address wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The time from one to the next.
    pub step: Duration,
    /// When the line is full, new connections are inserted into its second half.
    pub wait_max: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Addresses {
    rules: Rules,
    hasher: RandomState,
    places: Mutex<Box<[Place]>>,
}

/// Empty while `points` is 0.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    points: u32,
    /// Since when these are being forgotten one by one.
    since: Instant,
    /// When the last connection in its line is due.
    last_due: Instant,
}

// === impl Addresses ===

impl Addresses {
    pub(crate) fn new(rules: Rules, now: Instant) -> Self {
        let place = Place { hash: 0, points: 0, since: now, last_due: now };
        let places = Mutex::new(vec![place; PLACES].into());
        Self { rules, hasher: RandomState::new(), places }
    }

    pub(crate) fn add(&self, address: IpAddr, points: u32, now: Instant) {
        let hash = self.hash(address);
        let place = &mut self.places.lock()[hash as usize % PLACES];
        place.forget(self.rules.recovery, now);
        if place.points == 0 {
            *place = Place { hash, points, since: now, last_due: now };
        } else if place.hash == hash {
            place.points = (place.points + points).min(self.rules.points_max);
        } else {
            // An address that keeps offending gets the place in the end.
            place.points = place.points.saturating_sub(points);
        }
    }

    /// Takes points away, in addition to those that are forgotten.
    pub(crate) fn forgive(&self, address: IpAddr, points: u32) {
        let hash = self.hash(address);
        let place = &mut self.places.lock()[hash as usize % PLACES];
        if place.hash == hash {
            place.points = place.points.saturating_sub(points);
        }
    }

    /// Whether the address has more points than are free.
    pub(crate) fn has(&self, address: IpAddr, now: Instant) -> bool {
        self.look(address, now, |_| ()).is_some()
    }

    /// Like `has`; if so, how long a new connection has to wait behind the others.
    pub(crate) fn queue(&self, address: IpAddr, line: Line, now: Instant) -> Option<Duration> {
        self.look(address, now, |place| {
            let due = (place.last_due + line.step).max(now);
            let is_full = due > now + line.wait_max;
            place.last_due = if is_full { now + line.wait_max / 2 } else { due };
            place.last_due - now
        })
    }

    fn look<T>(&self, address: IpAddr, now: Instant, what: impl Fn(&mut Place) -> T) -> Option<T> {
        let hash = self.hash(address);
        let place = &mut self.places.lock()[hash as usize % PLACES];
        place.forget(self.rules.recovery, now);
        let is_beyond = place.hash == hash && place.points > self.rules.free_points;
        is_beyond.then(|| what(place))
    }

    /// All addresses of an IPv6 network count as one: a single host has many of them.
    fn hash(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.hasher.hash_one(address.octets()),
            IpAddr::V6(address) => self.hasher.hash_one(&address.segments()[..4]),
        }
    }
}

impl Place {
    fn forget(&mut self, recovery: Duration, now: Instant) {
        let passed_ms = now.saturating_duration_since(self.since).as_millis();
        let forgotten = u32::try_from(passed_ms / recovery.as_millis()).unwrap_or(u32::MAX);
        self.points = self.points.saturating_sub(forgotten);
        self.since = if self.points == 0 { now } else { self.since + recovery * forgotten };
    }
}
