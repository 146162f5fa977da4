//! Guards that keep the router's counts exact, however a call ends: return, cancel or panic.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::HeaderValue;
use router_core::{Assignment, Nanos, Outcome, Ticket, WaiterId};
use router_protocol::grpc::CodeSet;
use router_upstream::target::Target;

use super::DeploymentEntry;
use crate::refused::Refused;
use crate::tally::STREAM_MIN;

/// The outcome for a call that asked for a replica.
#[derive(Debug)]
pub(crate) enum Admission {
    Send(TicketGuard),
    Parked(WaiterGuard),
    Refused(Refused),
}

/// A place at a replica. Completed exactly once: by its methods, or as cancelled when dropped.
#[derive(Debug)]
pub(crate) struct TicketGuard {
    entry: Arc<DeploymentEntry>,
    ticket: Option<Ticket>,
    target: Arc<Target>,
    is_leased: bool,
    sent_at: Nanos,
}

impl TicketGuard {
    pub(crate) fn new(
        entry: Arc<DeploymentEntry>,
        assignment: Assignment,
        target: Arc<Target>,
    ) -> Self {
        let Assignment { ticket, is_leased, sent_at, .. } = assignment;
        Self { entry, ticket: Some(ticket), target, is_leased, sent_at }
    }

    /// The deployment to which the place belongs.
    pub(crate) fn entry(&self) -> &DeploymentEntry {
        &self.entry
    }

    /// Answers with these codes are retried, if their call may be.
    pub(crate) fn retry_codes(&self) -> CodeSet {
        self.entry.retry_codes()
    }

    /// The name under which the replica keeps the place, if it does.
    pub(crate) fn asker(&self) -> Option<&HeaderValue> {
        self.is_leased.then(|| self.entry.asker())
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Since when the call has the place.
    pub(crate) fn sent_at(&self) -> Nanos {
        self.sent_at
    }

    /// Gives the place back, once; returns the current time.
    pub(crate) fn complete(&mut self, outcome: Outcome) -> Nanos {
        match self.ticket.take() {
            Some(ticket) => self.entry.complete(ticket, outcome),
            None => self.entry.now(),
        }
    }

    /// Like [`TicketGuard::complete`], for an answer whose first data came at the given time.
    pub(crate) fn complete_begun(
        &mut self,
        outcome: Outcome,
        first_data_at: Option<Instant>,
    ) -> Nanos {
        let outcome = match (outcome, first_data_at) {
            (Outcome::Done { load, is_failure, .. }, Some(at)) if at.elapsed() >= STREAM_MIN => {
                let first_message_at = Some(self.entry.clock.at(at));
                Outcome::Done { load, is_failure, first_message_at }
            }
            (outcome, _) => outcome,
        };
        self.complete(outcome)
    }

    /// Gives the place back and asks for another; only for calls that did not start.
    pub(crate) fn reoffer(mut self, outcome: Outcome) -> Admission {
        match self.ticket.take() {
            Some(ticket) => self.entry.reoffer(ticket, outcome),
            None => Admission::Refused(Refused::Spent),
        }
    }
}

impl TicketGuard {
    /// A second place for the call, elsewhere, if it may have one.
    pub(crate) fn hedge(&self) -> Option<TicketGuard> {
        self.ticket.and_then(|ticket| self.entry.hedge(ticket))
    }

    /// The delay after which the call should ask for a second place; `None`: never.
    pub(crate) fn hedge_after(&self) -> Option<Duration> {
        self.entry.hedge_after()
    }

    /// Gives back the place of a call that had started, and asks for another attempt.
    pub(crate) fn retry(mut self, outcome: Outcome, pushback: Option<Duration>) -> Admission {
        match self.ticket.take() {
            Some(ticket) => self.entry.retry(ticket, outcome, pushback),
            None => Admission::Refused(Refused::Spent),
        }
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.entry.complete(ticket, Outcome::Cancelled);
        }
    }
}

/// A parked call. Abandoned if dropped before its release was taken.
#[derive(Debug)]
pub(crate) struct WaiterGuard {
    entry: Arc<DeploymentEntry>,
    waiter: Option<WaiterId>,
    since: Nanos,
}

impl WaiterGuard {
    pub(crate) fn new(entry: Arc<DeploymentEntry>, waiter: WaiterId, since: Nanos) -> Self {
        Self { entry, waiter: Some(waiter), since }
    }

    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Ready once; must be polled within a `LocalRuntime`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<TicketGuard, Refused>> {
        let Some(waiter) = self.waiter else { return Poll::Ready(Err(Refused::Removed)) };
        let released = self.entry.poll_released(waiter, cx);
        if released.is_ready() {
            self.waiter = None;
        }
        released
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.entry.abandon(waiter);
        }
    }
}
