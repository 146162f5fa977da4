//! Deadlines of calls, kept by the I/O thread on which they run.
//!
//! Nearly every call has a deadline and hardly any call reaches it, so setting one must cost next
//! to nothing: a place in a slab that is scanned at most every `GAP`. A tokio timer per call and
//! hop took 1.1 us of 14 (ingress and replica, 64 calls in flight, one core).

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::time::{Instant, sleep_until};

/// The least time between two scans, and so the longest delay of an alarm by design. A quarter of
/// the mesh's target for the median answer to a missed deadline (20 ms).
const GAP: Duration = Duration::from_millis(5);

struct Entry {
    at: Instant,
    is_due: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Alarms {
    entries: Slab<Entry>,
    last_look: Option<Instant>,
    /// The time of the watch's next scan; `None`: no watch is running.
    next_look: Option<Instant>,
    /// The watch, to be woken for a deadline before its next scan.
    watch: Option<Waker>,
}

thread_local! {
    static ALARMS: RefCell<Alarms> = RefCell::default();
}

/// A deadline, at most `GAP` late. It belongs to its thread; dropping it cancels it.
#[derive(Debug)]
pub struct Alarm {
    place: usize,
    // Its place is valid only on its own thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Alarm {
    /// Sets an alarm; must be called on an I/O thread.
    pub fn at(deadline: std::time::Instant) -> Self {
        let at = Instant::from_std(deadline);
        let (place, needs_watch) = ALARMS.with_borrow_mut(|alarms| alarms.set(at));
        if needs_watch {
            tokio::task::spawn_local(watch());
        }
        Self { place, _not_send: std::marker::PhantomData }
    }

    /// Ready when the deadline has passed.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ALARMS.with_borrow_mut(|alarms| {
            let entry = &mut alarms.entries[self.place];
            if entry.is_due {
                return Poll::Ready(());
            }
            if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                entry.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        ALARMS.with_borrow_mut(|alarms| drop(alarms.entries.try_remove(self.place)));
    }
}

impl Alarms {
    /// Adds an entry; true when a watch must be started.
    fn set(&mut self, at: Instant) -> (usize, bool) {
        let place = self.entries.insert(Entry { at, is_due: false, waker: None });
        let look = self.earliest_look(at);
        match self.next_look {
            Some(planned) if planned <= look => (place, false),
            Some(_) => {
                self.next_look = Some(look);
                if let Some(watch) = self.watch.take() {
                    watch.wake();
                }
                (place, false)
            }
            None => {
                self.next_look = Some(look);
                (place, true)
            }
        }
    }

    fn earliest_look(&self, at: Instant) -> Instant {
        self.last_look.map_or(at, |last| at.max(last + GAP))
    }

    /// Wakes what is due, and plans the next scan: `None` when nothing is left to watch.
    fn look(&mut self, now: Instant, due: &mut Vec<Waker>) -> Option<Instant> {
        self.last_look = Some(now);
        let mut earliest: Option<Instant> = None;
        for (_, entry) in &mut self.entries {
            if entry.is_due {
                continue;
            }
            if entry.at <= now {
                entry.is_due = true;
                due.extend(entry.waker.take());
            } else {
                earliest = Some(earliest.map_or(entry.at, |known| known.min(entry.at)));
            }
        }
        self.next_look = earliest.map(|at| at.max(now + GAP));
        self.next_look
    }
}

/// Scans the alarms when one may be due; ends when none is left.
async fn watch() {
    let mut due = Vec::new();
    let mut planned = ALARMS.with_borrow(|alarms| alarms.next_look);
    while let Some(at) = planned {
        sleep_or_replan(at).await;
        let now = Instant::now();
        planned = ALARMS.with_borrow_mut(|alarms| match alarms.next_look {
            Some(next) if next > now => Some(next),
            _ => alarms.look(now, &mut due),
        });
        for waker in due.drain(..) {
            waker.wake();
        }
    }
}

/// Sleeps until `at`, or until an earlier scan is planned.
async fn sleep_or_replan(at: Instant) {
    let mut sleep = std::pin::pin!(sleep_until(at));
    std::future::poll_fn(|context| {
        let is_replanned = ALARMS.with_borrow_mut(|alarms| {
            alarms.watch = Some(context.waker().clone());
            alarms.next_look.is_none_or(|next| next < at)
        });
        if is_replanned { Poll::Ready(()) } else { sleep.as_mut().poll(context) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::LocalSet;

    async fn lateness(after: Duration) -> Duration {
        let deadline = Instant::now() + after;
        let mut alarm = Alarm::at(deadline.into_std());
        poll_fn(|context| alarm.poll(context)).await;
        Instant::now() - deadline
    }

    fn on_one_thread(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn alarms_in_any_order_are_never_early_and_at_most_a_gap_late() {
        on_one_thread(async {
            let times = [50, 10, 30, 31, 500, 3, 49, 0, 12];
            let tasks: Vec<_> = times
                .iter()
                .map(|ms| tokio::task::spawn_local(lateness(Duration::from_millis(*ms))))
                .collect();
            for task in tasks {
                let late = task.await.expect("no panic");
                assert!(late <= GAP + Duration::from_millis(1), "{late:?} late");
            }
        });
    }

    #[test]
    fn an_earlier_alarm_does_not_wait_for_a_later_one() {
        on_one_thread(async {
            let far = tokio::task::spawn_local(lateness(Duration::from_secs(3600)));
            tokio::task::yield_now().await;
            let start = Instant::now();
            lateness(Duration::from_millis(25)).await;
            assert!(start.elapsed() < Duration::from_millis(40));
            far.abort();
        });
    }

    #[test]
    fn the_watch_ends_with_the_last_alarm_and_starts_again() {
        on_one_thread(async {
            for _ in 0..3 {
                let deadline = Instant::now() + Duration::from_millis(20);
                drop(Alarm::at(deadline.into_std()));
                tokio::time::sleep(Duration::from_millis(60)).await;
                let is_idle = ALARMS
                    .with_borrow(|alarms| alarms.entries.is_empty() && alarms.next_look.is_none());
                assert!(is_idle, "the watch went on");
                assert!(lateness(Duration::from_millis(5)).await <= GAP * 2);
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        });
    }
}
