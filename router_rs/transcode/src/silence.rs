//! Notices when a client has been sent nothing for a while, so that a keep-alive message can be
//! sent: proxies and clients close connections that are silent for long.

use std::task::{Context, Poll};
use std::time::Duration;

use router_io::Alarm;
use tokio::time::Instant;

/// The time since a client was last sent something, to half of the limit. A piece of an answer sets
/// no timer and reads no clock.
#[derive(Debug)]
pub(super) struct Silence {
    half: Duration,
    /// Something was sent since the alarm was set.
    has_spoken: bool,
    alarm: Option<Alarm>,
}

// === impl Silence ===

impl Silence {
    /// `limit`: the longest time in which nothing is sent.
    pub(super) fn new(limit: Duration) -> Self {
        Self { half: limit / 2, has_spoken: true, alarm: None }
    }

    /// Something is sent.
    pub(super) fn on_output(&mut self) {
        self.has_spoken = true;
    }

    /// Ready when nothing has been sent for at least half of the limit, and at most all of it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let half = self.half;
            let alarm =
                self.alarm.get_or_insert_with(|| Alarm::at((Instant::now() + half).into_std()));
            if alarm.poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.alarm = None;
            if !std::mem::take(&mut self.has_spoken) {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::LocalSet;

    use super::*;

    fn on_one_thread(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn silence_is_noticed_within_the_limit_and_not_before_half_of_it() {
        on_one_thread(async {
            let limit = Duration::from_secs(10);
            let mut silence = Silence::new(limit);
            for output_after_s in [0, 1, 4] {
                let begun = Instant::now();
                let mut spoken = begun;
                if output_after_s > 0 {
                    let until = begun + Duration::from_secs(output_after_s);
                    let wait = tokio::time::timeout_at(until, poll_fn(|cx| silence.poll(cx)));
                    assert!(wait.await.is_err(), "silence after {output_after_s} s");
                    spoken = Instant::now();
                }
                silence.on_output();
                poll_fn(|cx| silence.poll(cx)).await;
                let lasted = spoken.elapsed();
                let slack = Duration::from_millis(20);
                assert!(lasted + slack >= limit / 2 && lasted <= limit + slack, "{lasted:?}");
            }
        });
    }
}
