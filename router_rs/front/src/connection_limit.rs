//! Decides whether there is room for one more connection.
//!
//! A process has a limit on open descriptors of all kinds: clients, connections to replicas, and
//! those that start and watch replicas and serve the mesh. Clients never get the last quarter of
//! them, no matter what uses the others. The kernel gives a new descriptor the lowest free number,
//! so at least that many are open. Unless some were closed at this moment, exactly that many are.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::Front;
use crate::counters::ConnectionCount;
use crate::idle::Room;
use crate::limits::FrontLimits;

/// The part of all descriptors that clients do not get. Arbitrary: of the usual 1 024 it is 256,
/// which a controller with a dozen replicas and four I/O threads has never reached.
const RESERVED_PART: u64 = 4;

/// The most that is reserved. Arbitrary: connections to 64 replicas from four threads.
const RESERVED_MAX: u64 = 1024;

/// The count may exceed its bound by this many connections that were asked to close but have not
/// done so. Arbitrary: two turns of a listener.
const LEAVING_MAX: u64 = 32;

/// How many connections each thread closes when hardly a descriptor is left. New connections take
/// the descriptors that become free, so with fewer all of them would have to wait. Arbitrary: the
/// new connections of one turn.
const MADE_AT_THE_BRIM: u32 = 16;

/// The time in which all places may change hands once. Arbitrary: a few round trips of a slow
/// network, in which a client says what it wants.
const TURNOVER: Duration = Duration::from_millis(250);

/// The pause while connections that were asked to close have not done so. Arbitrary: a few turns of
/// a busy machine.
const BRIMFUL_PAUSE: Duration = Duration::from_millis(20);

/// The resolution of timers.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// How crowded it is when a connection arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// There is room.
    Free,
    /// It is full: this many others must close for it.
    Crowded(u32),
    /// Half of the reserve is in use, and new connections may not use the other half. Many others
    /// must close, and so must this one.
    Brimful,
}

/// A connection that may come in.
#[derive(Debug)]
pub struct PendingConnection {
    front: Arc<Front>,
    count: ConnectionCount,
    crowd: Crowd,
}

/// How fast a listener accepts connections that displace others. Without it, a client that
/// reconnects as soon as it is displaced would displace all others before they have sent a request.
/// The rest of such a crowd waits in the kernel's queue.
#[derive(Debug)]
pub struct Pace {
    step: Duration,
    owed: Duration,
}

// === impl FrontLimits ===

impl FrontLimits {
    /// The number of connections for which there are descriptors; fewer if much else is open.
    pub fn connections_bound(&self) -> u64 {
        self.connections_max.min(self.descriptors_max - reserved(self.descriptors_max))
    }
}

fn reserved(descriptors_max: u64) -> u64 {
    (descriptors_max / RESERVED_PART).min(RESERVED_MAX)
}

// === impl Crowd ===

impl Crowd {
    /// `before`: the number of connections without the new one.
    fn at(limits: &FrontLimits, before: u64, descriptor: RawFd) -> Self {
        let open = u64::try_from(descriptor).unwrap_or(u64::MAX);
        let free = limits.descriptors_max.saturating_sub(open);
        let reserved = reserved(limits.descriptors_max);
        let bound = limits.connections_bound();
        if free <= reserved / 2 {
            Crowd::Brimful
        } else if free <= reserved || before >= bound + LEAVING_MAX {
            // Something else uses descriptors meant for clients, or these close slowly: reduce
            // their number.
            Crowd::Crowded(2)
        } else if before >= bound {
            Crowd::Crowded(1)
        } else {
            Crowd::Free
        }
    }
}

// === impl PendingConnection ===

impl PendingConnection {
    /// Call it for every accepted connection.
    pub fn new(front: &Arc<Front>, stream: &TcpStream) -> Self {
        let (count, before) = ConnectionCount::new(&front.counters);
        let crowd = Crowd::at(front.limits(), before, stream.as_raw_fd());
        Self { front: Arc::clone(front), count, crowd }
    }

    /// Whether there is room without closing another one.
    pub fn is_free(&self) -> bool {
        self.crowd == Crowd::Free
    }

    /// Admits it if there is room or an idle connection of this thread can be closed for it.
    ///
    /// # Errors
    /// Itself, if none on this thread can be closed. Drop it if no other thread has one either.
    pub fn enter(self) -> Result<ConnectionCount, Self> {
        let (wanted, is_welcome) = match self.crowd {
            Crowd::Free => return Ok(self.count),
            Crowd::Crowded(wanted) => (wanted, true),
            Crowd::Brimful => (MADE_AT_THE_BRIM, false),
        };
        let room = Room::of(&self.front);
        let made = (0..wanted).filter(|_| room.make_room()).count();
        if made > 0 && is_welcome { Ok(self.count) } else { Err(self) }
    }

    /// Closes it.
    pub fn refuse(self) {
        self.front.counters.connections_refused.count();
    }
}

// === impl Pace ===

impl Pace {
    pub fn new(front: &Front) -> Self {
        let places = u32::try_from(front.limits().connections_bound()).unwrap_or(u32::MAX).max(1);
        Self { step: TURNOVER / places, owed: Duration::ZERO }
    }

    /// How long the next connection has to wait.
    pub fn after(&mut self, pending: &PendingConnection) -> Duration {
        match pending.crowd {
            Crowd::Free => return Duration::ZERO,
            Crowd::Crowded(_) => {}
            Crowd::Brimful => return BRIMFUL_PAUSE,
        }
        self.owed += self.step;
        if self.owed < PAUSE_MIN { Duration::ZERO } else { std::mem::take(&mut self.owed) }
    }
}

/// Closes some of this thread's idle connections, because no descriptor was left for a
/// new one.
pub fn make_room(front: &Arc<Front>) {
    let room = Room::of(front);
    for _ in 0..MADE_AT_THE_BRIM {
        room.make_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections_max: u64, descriptors_max: u64) -> FrontLimits {
        FrontLimits { connections_max, descriptors_max, ..FrontLimits::default() }
    }

    #[test]
    fn a_quarter_of_the_descriptors_is_not_for_clients() {
        for (configured, descriptors, expected) in [
            (20_000, 1024, 768),
            (20_000, 20_000, 18_976),
            (20_000, 1_048_576, 20_000),
            (20_000, u64::MAX, 20_000),
            (100, 1024, 100),
            (u64::MAX, 256, 192),
        ] {
            assert_eq!(expected, limits(configured, descriptors).connections_bound());
        }
    }

    #[test]
    fn the_number_of_a_descriptor_says_that_as_many_are_open() {
        let (derived, configured) = (limits(1000, 1024), limits(100, 1024));
        for (limits, before, descriptor, expected) in [
            (&derived, 0, 20, Crowd::Free),
            (&derived, 747, 767, Crowd::Free),
            (&derived, 748, 768, Crowd::Crowded(2)),
            (&derived, 10, 895, Crowd::Crowded(2)),
            (&derived, 10, 896, Crowd::Brimful),
            (&derived, 10, 1023, Crowd::Brimful),
            (&derived, 767, 500, Crowd::Free),
            (&derived, 768, 500, Crowd::Crowded(1)),
            (&derived, 800, 500, Crowd::Crowded(2)),
            (&configured, 99, 500, Crowd::Free),
            (&configured, 100, 500, Crowd::Crowded(1)),
            (&configured, 132, 500, Crowd::Crowded(2)),
        ] {
            assert_eq!(expected, Crowd::at(limits, before, descriptor), "{before}, {descriptor}");
        }
    }
}
