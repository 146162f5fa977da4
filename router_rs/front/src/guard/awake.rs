//! Counts the HTTP/1.1 connections of one I/O thread that keep hyper's buffers while they wait for
//! their next request.
//!
//! A connection gives its buffers back when it has waited for a while, so that a crowd of clients
//! that send one request and stay costs their buffers only for that time. Beyond a certain number,
//! each gives them back at once.

use std::cell::Cell;
use std::time::Duration;

/// A connection is idle after it has waited this long for its next request. Arbitrary: creating
/// hyper's state again takes a microsecond or two.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The number of connections per thread that may wait with their buffers: 20 KiB each, including
/// the allocator's overhead, make 20 MiB. With more clients than that, each request pays those
/// microseconds.
const AWAKE_MAX: usize = 1024;

thread_local! {
    static AWAKE: Cell<usize> = const { Cell::new(0) };
}

/// One connection's share of the number.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    is_counted: bool,
}

impl Awake {
    /// It waits for a request. Returns how long it may keep its buffers.
    pub(crate) fn begin(&mut self) -> Duration {
        if !std::mem::replace(&mut self.is_counted, true) {
            AWAKE.set(AWAKE.get() + 1);
        }
        if AWAKE.get() > AWAKE_MAX { Duration::ZERO } else { IDLE_AFTER }
    }

    /// It has a request, is idle, or is over.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            AWAKE.set(AWAKE.get() - 1);
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_a_number_nobody_waits_with_buffers() {
        let mut crowd: Vec<Awake> = (0..AWAKE_MAX).map(|_| Awake::default()).collect();
        for each in &mut crowd {
            assert_eq!(IDLE_AFTER, each.begin());
            assert_eq!(IDLE_AFTER, each.begin(), "counted once");
        }
        let mut late = Awake::default();
        assert_eq!(Duration::ZERO, late.begin());
        late.end();
        crowd[0].end();
        crowd[0].end();
        drop(crowd.pop());
        assert_eq!(IDLE_AFTER, late.begin());
        assert_eq!(IDLE_AFTER, crowd[0].begin());
        assert_eq!(Duration::ZERO, Awake::default().begin());
    }
}
