//! The pauses of a connection whose address is suspect: one after each turn, until the offences of
//! its address are forgotten.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::guard::penalty_box::FORGOTTEN_AFTER;

/// How long such a connection is left unread after each turn, so that it brings 12 to 24 MB a
/// second. Arbitrary: a flood that ends after ten megabytes takes the thread 10 ms, and with the
/// pauses other connections wait for at most a fiftieth of that.
const PAUSE: Duration = Duration::from_millis(4);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Suspicion {
    begun: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Suspicion {
    /// The connection begins.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), pause: None }
    }

    /// Ready when the pause after a turn is over; returns whether there is one after the next turn,
    /// too.
    pub(crate) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(cx));
        self.pause = None;
        Poll::Ready(self.begun.elapsed() < FORGOTTEN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_turn_is_followed_by_a_pause_until_all_is_forgotten() {
        let begun = Instant::now();
        let mut suspicion = Suspicion::new();
        let mut pauses = 1;
        while poll_fn(|cx| suspicion.poll_pause(cx)).await {
            assert_eq!(PAUSE * pauses, begun.elapsed());
            pauses += 1;
        }
        assert_eq!(PAUSE * pauses, begun.elapsed());
        assert!(begun.elapsed() >= FORGOTTEN_AFTER);
        assert!(begun.elapsed() < FORGOTTEN_AFTER + PAUSE);
    }
}
