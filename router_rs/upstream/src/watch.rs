//! The thin driver of [`Keepalive`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::keepalive::{Keepalive, KeepaliveConfig, Verdict};

/// How soon a peer is checked again that neither reads nor closes after we have announced our end.
const IDLE_CLOSE: Duration = Duration::from_secs(300);

/// Reports that a peer gives no sign of life; called within the connection's `LocalRuntime`.
pub type OnSilence = Box<dyn Fn()>;

pub(super) struct Watch {
    keepalive: Keepalive,
    timer: Pin<Box<Sleep>>,
    on_silence: Option<OnSilence>,
}

/// The action that is due for the connection.
pub(super) enum Act {
    Ping,
    /// Give the connection up.
    Die(&'static str),
    /// Take no more calls.
    Retire,
}

impl Watch {
    pub(super) fn new(config: KeepaliveConfig, on_silence: Option<OnSilence>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now + config.idle));
        Self { keepalive: Keepalive::new(config, now), timer, on_silence }
    }

    /// `received`: reads that brought bytes.
    pub(super) fn poll(
        &mut self,
        received: u64,
        in_flight: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Act> {
        if in_flight > 0 && self.keepalive.is_idle() {
            self.timer.as_mut().reset(self.keepalive.on_busy(received, Instant::now()));
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            match self.keepalive.on_timer(received, in_flight, Instant::now()) {
                Verdict::Wait(until) => self.timer.as_mut().reset(until),
                Verdict::Ping(until) => {
                    self.timer.as_mut().reset(until);
                    return Poll::Ready(Act::Ping);
                }
                Verdict::Silent(until) => {
                    if let Some(on_silence) = &self.on_silence {
                        on_silence();
                    }
                    self.timer.as_mut().reset(until);
                }
                Verdict::Dead => {
                    let why = "the peer gave no sign of life: it did not answer a PING";
                    return Poll::Ready(Act::Die(why));
                }
                Verdict::Idle => {
                    self.timer.as_mut().reset(Instant::now() + IDLE_CLOSE);
                    return Poll::Ready(Act::Retire);
                }
            }
        }
    }
}
