//! The connectivity of a channel to an address: its state, its backoff, and its watchers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use router_core::SplitMix64;

use crate::link::{Event, EventSink};

/// Numbered as `grpc.ChannelConnectivity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Connectivity {
    Idle = 0,
    Connecting = 1,
    Ready = 2,
    TransientFailure = 3,
    Shutdown = 4,
}

/// gRPC's connection backoff protocol: growth, jitter in percent.
const BACKOFF_GROWTH: f64 = 1.6;
const BACKOFF_JITTER_PERCENT: u32 = 20;

/// How long a channel waits between dials that fail, before jitter. The default is that of gRPC's
/// connection backoff protocol.
#[derive(Clone, Copy, Debug)]
pub struct ReconnectBackoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(120) }
    }
}

/// Shared by the channel's user and its I/O thread.
#[derive(Debug)]
pub(super) struct Tracker {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Connectivity,
    backoff: Option<Backoff>,
    watchers: Vec<Watcher>,
    random: SplitMix64,
    times: ReconnectBackoff,
}

/// No dial before `until`.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    pub until: Instant,
    /// Why the last dial failed.
    pub reason: String,
    wait: Duration,
}

#[derive(Debug)]
struct Watcher {
    sink: Arc<dyn EventSink>,
    token: u64,
    last: Connectivity,
}

impl Tracker {
    /// `seed` spreads the dials of many channels to one failed server.
    pub(super) fn new(seed: u64, times: ReconnectBackoff) -> Self {
        let inner = Inner {
            state: Connectivity::Idle,
            backoff: None,
            watchers: Vec::new(),
            random: SplitMix64::new(seed),
            times,
        };
        Self { inner: Mutex::new(inner) }
    }

    pub(super) fn state(&self) -> Connectivity {
        self.inner.lock().state
    }

    /// The wait after the last failure, while it lasts.
    pub(super) fn backoff(&self, now: Instant) -> Option<Backoff> {
        let inner = self.inner.lock();
        let is_failed = inner.state == Connectivity::TransientFailure;
        inner.backoff.clone().filter(|backoff| is_failed && now < backoff.until)
    }

    /// Changes the state; `Shutdown` is final.
    pub(super) fn enter(&self, state: Connectivity) {
        let mut inner = self.inner.lock();
        if state == Connectivity::Ready {
            inner.backoff = None;
        }
        inner.enter(state);
    }

    /// The connection ended: the next call dials again.
    pub(super) fn on_closed(&self) {
        let mut inner = self.inner.lock();
        if inner.state == Connectivity::Ready {
            inner.enter(Connectivity::Idle);
        }
    }

    /// A dial failed. Everyone who waited for it reports this; only the first report counts.
    pub(super) fn on_failed(&self, reason: String, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.state != Connectivity::Connecting {
            return;
        }
        let ReconnectBackoff { initial, max } = inner.times;
        let last = inner.backoff.as_ref();
        let wait = last.map_or(initial, |last| last.wait.mul_f64(BACKOFF_GROWTH)).min(max);
        let percent = 100 - BACKOFF_JITTER_PERCENT + inner.random.below(2 * BACKOFF_JITTER_PERCENT);
        let until = now + wait * percent / 100;
        inner.backoff = Some(Backoff { until, reason, wait });
        inner.enter(Connectivity::TransientFailure);
    }

    /// Sends one `State` event when the state differs from `last`, now or later.
    pub(super) fn watch(&self, sink: Arc<dyn EventSink>, token: u64, last: u8) {
        let mut inner = self.inner.lock();
        if inner.state as u8 == last {
            let last = inner.state;
            inner.watchers.push(Watcher { sink, token, last });
        } else {
            sink.push(token, Event::State(inner.state as u8));
        }
    }
}

impl Inner {
    fn enter(&mut self, state: Connectivity) {
        if self.state == Connectivity::Shutdown || self.state == state {
            return;
        }
        self.state = state;
        self.watchers.retain(|watcher| {
            let is_waiting = watcher.last == state;
            if !is_waiting {
                watcher.sink.push(watcher.token, Event::State(state as u8));
            }
            is_waiting
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<(u64, u8)>>);

    impl EventSink for Seen {
        fn push(&self, token: u64, event: Event) {
            let Event::State(state) = event else { panic!("{event:?} is no state") };
            self.0.lock().push((token, state));
        }
    }

    #[test]
    fn failures_back_off_longer_each_time_until_one_success() {
        fails_with(ReconnectBackoff::default(), [1.0, 1.6, 2.56]);
        let (initial, max) = (Duration::from_millis(50), Duration::from_millis(100));
        fails_with(ReconnectBackoff { initial, max }, [0.05, 0.08, 0.1]);
    }

    fn fails_with(times: ReconnectBackoff, expected_s: [f64; 3]) {
        let tracker = Tracker::new(1, times);
        let now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..3 {
            tracker.enter(Connectivity::Connecting);
            tracker.on_failed("refused".to_owned(), now);
            tracker.on_failed("refused".to_owned(), now);
            waits.push(tracker.backoff(now).unwrap().until - now);
        }
        for (wait, expected) in waits.iter().zip(expected_s) {
            let ratio = wait.as_secs_f64() / expected;
            assert!((0.79..=1.21).contains(&ratio), "{waits:?}");
        }
        assert!(tracker.backoff(now + times.max * 2).is_none());
        tracker.enter(Connectivity::Ready);
        assert!(tracker.backoff(now).is_none());
    }

    #[test]
    fn a_watcher_is_told_once_and_nothing_follows_shutdown() {
        let tracker = Tracker::new(1, ReconnectBackoff::default());
        let seen = Arc::new(Seen::default());
        tracker.watch(seen.clone(), 1, Connectivity::Idle as u8);
        tracker.watch(seen.clone(), 2, Connectivity::Ready as u8);
        assert_eq!(vec![(2, 0)], *seen.0.lock());
        tracker.enter(Connectivity::Connecting);
        tracker.enter(Connectivity::Shutdown);
        tracker.enter(Connectivity::Ready);
        assert_eq!(vec![(2, 0), (1, 1)], *seen.0.lock());
        assert_eq!(Connectivity::Shutdown, tracker.state());
    }
}
