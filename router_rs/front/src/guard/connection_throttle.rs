//! Remembers the addresses whose connections send no request.
//!
//! A connection costs its thread as much as several requests, so a crowd of clients that reconnect
//! immediately, or only make handshakes, keeps it from its work. While an address goes on like
//! that, its new connections wait in a line for up to a few seconds before they are read. None is
//! closed for it. Connections that send requests make up for others, since many people may share
//! one address.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::guard::addresses::{Addresses, Line, Rules};

/// Points without effect. Arbitrary: that many people who connect at once are served at once.
const FREE_POINTS: u32 = 1000;

/// Further points are not counted, so that all is forgotten within seconds.
const POINTS_MAX: u32 = 2 * FREE_POINTS;

/// The time in which one point is forgotten. A hundred useless connections a second cost a thread a
/// hundredth of its time; more than that is not a health probe.
const RECOVERY: Duration = Duration::from_millis(10);

/// The time from one connection in the line to the next, for each point. It is half the time in
/// which a point is forgotten, so that a waiting crowd is forgotten only if most of it does
/// something useful.
const STEP: Duration = Duration::from_millis(5);

/// The longest wait. Arbitrary: half of the time that gRPC's clients give a new connection.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// One point stands for a connection; one with TLS costs as much as several.
const TLS_POINTS: u32 = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ConnectionThrottle {
    addresses: Addresses,
}

/// One connection, from its arrival to its end.
#[derive(Debug)]
pub(crate) struct ThrottledConnection {
    connection_throttle: Arc<ConnectionThrottle>,
    /// `None`: the peer is a proxy, which does not identify the client.
    address: Option<IpAddr>,
    points: u32,
    has_asked: Cell<bool>,
}

// === impl ConnectionThrottle ===

impl ConnectionThrottle {
    pub(crate) fn new(now: Instant) -> Self {
        let rules = Rules { free_points: FREE_POINTS, points_max: POINTS_MAX, recovery: RECOVERY };
        Self { addresses: Addresses::new(rules, now) }
    }

    fn queue(&self, address: IpAddr, points: u32, now: Instant) -> Option<Duration> {
        let line = Line { step: STEP * points, wait_max: WAIT_MAX };
        self.addresses.queue(address, line, now)
    }

    /// Counts a new connection, whose purpose is not known yet.
    fn on_come(&self, address: IpAddr, points: u32, now: Instant) {
        self.addresses.add(address, points, now);
    }

    /// It has sent a request, which makes up for another connection, too.
    fn on_request(&self, address: IpAddr, points: u32) {
        self.addresses.forgive(address, 2 * points);
    }
}

// === impl ThrottledConnection ===

impl ThrottledConnection {
    /// Counts a new connection.
    pub(crate) fn new(
        connection_throttle: &Arc<ConnectionThrottle>,
        address: Option<IpAddr>,
        is_tls: bool,
    ) -> Self {
        let points = if is_tls { TLS_POINTS } else { 1 };
        Self {
            connection_throttle: Arc::clone(connection_throttle),
            address,
            points,
            has_asked: Cell::new(false),
        }
    }

    /// How long it has to wait before it is read.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let (connection_throttle, address) = (&self.connection_throttle, self.address?);
        connection_throttle.on_come(address, self.points, now);
        connection_throttle.queue(address, self.points, now)
    }

    /// Its client has sent a request.
    pub(crate) fn on_request(&self) {
        let Some(address) = self.address else { return };
        if !self.has_asked.replace(true) {
            self.connection_throttle.on_request(address, self.points);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// A crowd that arrives at one moment: how long the last connection waits.
    fn crowd(
        connection_throttle: &ConnectionThrottle,
        count: u32,
        points: u32,
        now: Instant,
    ) -> Option<Duration> {
        let waits = (0..count).map(|_| {
            connection_throttle.on_come(ONE, points, now);
            connection_throttle.queue(ONE, points, now)
        });
        waits.last().expect("a crowd is not empty")
    }

    #[test]
    fn some_that_come_for_nothing_are_free() {
        let now = Instant::now();
        let connection_throttle = ConnectionThrottle::new(now);
        assert_eq!(None, crowd(&connection_throttle, FREE_POINTS, 1, now));
        assert_eq!(Some(STEP), crowd(&connection_throttle, 1, 1, now));
        assert_eq!(Some(STEP * 2), crowd(&connection_throttle, 1, 1, now));
        assert_eq!(None, connection_throttle.queue(OTHER, 1, now), "somebody else");
        assert_eq!(None, connection_throttle.queue(ONE, 1, now + RECOVERY * 2));
    }

    #[test]
    fn a_line_that_is_full_is_filled_again_from_its_middle() {
        let now = Instant::now();
        let connection_throttle = ConnectionThrottle::new(now);
        let room = (WAIT_MAX.as_millis() / STEP.as_millis()) as u32;
        assert_eq!(Some(WAIT_MAX), crowd(&connection_throttle, FREE_POINTS + room, 1, now));
        assert_eq!(Some(WAIT_MAX / 2), crowd(&connection_throttle, 1, 1, now));
        assert_eq!(Some(WAIT_MAX), crowd(&connection_throttle, room / 2, 1, now));
        let later = now + WAIT_MAX / 10;
        assert_eq!(Some(WAIT_MAX / 10 * 9 + STEP), crowd(&connection_throttle, 1, 1, later));
        assert_eq!(None, crowd(&connection_throttle, 1, 1, now + 2 * WAIT_MAX), "all is forgotten");
    }

    #[test]
    fn tls_counts_and_waits_as_several() {
        let now = Instant::now();
        let connection_throttle = ConnectionThrottle::new(now);
        assert_eq!(None, crowd(&connection_throttle, FREE_POINTS / TLS_POINTS, TLS_POINTS, now));
        assert_eq!(Some(STEP * TLS_POINTS), crowd(&connection_throttle, 1, TLS_POINTS, now));
    }

    #[test]
    fn those_that_ask_for_something_make_up_for_others() {
        let now = Instant::now();
        let connection_throttle = ConnectionThrottle::new(now);
        for _ in 0..10 * FREE_POINTS {
            assert_eq!(None, crowd(&connection_throttle, 2, 1, now));
            connection_throttle.on_request(ONE, 1);
        }
    }

    #[test]
    fn a_crowd_that_waits_in_its_line_is_not_forgotten() {
        let begun = Instant::now();
        let connection_throttle = ConnectionThrottle::new(begun);
        let mut wait = crowd(&connection_throttle, 2 * FREE_POINTS, 1, begun).expect("too many");
        let mut now = begun + wait;
        crowd(&connection_throttle, FREE_POINTS, 1, now);
        for _ in 0..10_000 {
            wait = crowd(&connection_throttle, 1, 1, now).expect("it goes on");
            now += wait.min(STEP);
        }
    }
}
