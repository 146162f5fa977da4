//! Time in the unit of routers.

use std::time::{Duration, Instant};

use router_core::Nanos;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(self) -> Nanos {
        self.at(Instant::now())
    }

    pub(super) fn at(self, instant: Instant) -> Nanos {
        nanos(instant.saturating_duration_since(self.start))
    }

    pub(super) fn instant(self, at: Nanos) -> Instant {
        self.start + Duration::from_nanos(at.0)
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
