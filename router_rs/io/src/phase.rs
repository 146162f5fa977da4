//! The phase in the life of a server or a front, as its connections learn it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::watch;

/// Phases only ever go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// No new connection, GOAWAY on the others; calls in flight continue.
    Draining,
    /// Calls still in flight are answered `UNAVAILABLE`.
    Stopped,
}

type Change = Pin<Box<dyn Future<Output = (Phase, watch::Receiver<Phase>)>>>;

/// Notifies one connection of the phases, starting after `Serving`.
pub struct Phases {
    change: Change,
}

impl std::fmt::Debug for Phases {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Phases").finish_non_exhaustive()
    }
}

// === impl Phases ===

impl Phases {
    pub fn new(receiver: watch::Receiver<Phase>) -> Self {
        Self { change: Box::pin(next(receiver, Phase::Serving)) }
    }

    /// The next later phase; one may be skipped. Poll it until it is pending.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let (phase, receiver) = ready!(self.change.as_mut().poll(cx));
        self.change = Box::pin(next(receiver, phase));
        Poll::Ready(phase)
    }
}

/// Waits for a phase later than `current`; forever after the last one.
async fn next(
    mut receiver: watch::Receiver<Phase>,
    current: Phase,
) -> (Phase, watch::Receiver<Phase>) {
    let next = receiver.wait_for(|phase| *phase > current).await.map(|phase| *phase);
    match next {
        Ok(phase) => (phase, receiver),
        // The sender is gone.
        Err(_) if current < Phase::Stopped => (Phase::Stopped, receiver),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn heard(phases: &mut Phases) -> Option<Phase> {
        poll_fn(|cx| phases.poll_next(cx)).now_or_never()
    }

    #[test]
    fn each_phase_is_heard_once_and_the_last_one_when_the_owner_is_gone() {
        let owner = watch::Sender::new(Phase::Serving);
        let mut phases = Phases::new(owner.subscribe());
        assert_eq!(None, heard(&mut phases));
        owner.send_replace(Phase::Draining);
        assert_eq!(Some(Phase::Draining), heard(&mut phases));
        assert_eq!(None, heard(&mut phases));
        drop(owner);
        assert_eq!(Some(Phase::Stopped), heard(&mut phases));
        assert_eq!(None, heard(&mut phases));
    }

    #[test]
    fn who_listens_late_hears_the_latest() {
        let owner = watch::Sender::new(Phase::Serving);
        let mut phases = Phases::new(owner.subscribe());
        owner.send_replace(Phase::Draining);
        owner.send_replace(Phase::Stopped);
        assert_eq!(Some(Phase::Stopped), heard(&mut phases));
        assert_eq!(None, heard(&mut phases));
    }
}
