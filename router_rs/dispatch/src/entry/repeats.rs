//! Retries and hedges: the deployment's side.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use router_core::{Decision, Nanos, Outcome, Release, Router, Ticket};
use router_protocol::grpc::CodeSet;

use super::DeploymentEntry;
use super::guards::{Admission, TicketGuard};
use crate::clock::nanos;
use crate::refused::Refused;

impl DeploymentEntry {
    /// Answers with these codes are retried, if their call may be.
    pub(crate) fn retry_codes(&self) -> CodeSet {
        CodeSet::from_bits(self.retry_codes.load(Ordering::Relaxed))
    }

    pub(crate) fn set_retry_codes(&self, codes: CodeSet) {
        self.retry_codes.store(codes.bits(), Ordering::Relaxed);
    }

    pub(crate) fn reoffer(self: &Arc<Self>, ticket: Ticket, outcome: Outcome) -> Admission {
        self.send_again(ticket, outcome, None, |router, now, released| {
            router.reoffer(ticket, outcome, now, released)
        })
    }

    /// Lets the router decide `again` about a call that was sent. If the deployment takes no calls,
    /// the call is over with this outcome, and is refused with `refused`, or else for the
    /// deployment's own reason.
    fn send_again(
        self: &Arc<Self>,
        ticket: Ticket,
        outcome: Outcome,
        refused: Option<Refused>,
        again: impl FnOnce(&mut Router, Nanos, &mut Vec<Release>) -> Decision,
    ) -> Admission {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        if let Some(closed) = locked.closed() {
            locked.router.complete(ticket, outcome, now, &mut locked.released);
            self.finish(guard);
            return Admission::Refused(refused.unwrap_or(closed));
        }
        let decision = again(&mut locked.router, now, &mut locked.released);
        let wakers = locked.hand_out();
        self.admit(guard, decision, wakers, now)
    }

    /// Retries a call that had started, if it may be; `pushback` is how long its replica wants it
    /// to wait.
    pub(crate) fn retry(
        self: &Arc<Self>,
        ticket: Ticket,
        outcome: Outcome,
        pushback: Option<Duration>,
    ) -> Admission {
        let pushback = pushback.map(nanos);
        self.send_again(ticket, outcome, Some(Refused::Spent), |router, now, released| {
            router.retry(ticket, outcome, pushback, now, released)
        })
    }

    pub(crate) fn hedge_after(&self) -> Option<Duration> {
        let after = self.locked.lock().router.hedge_after()?;
        Some(Duration::from_nanos(after.0))
    }

    /// A second place, elsewhere, for a call that has one.
    pub(crate) fn hedge(self: &Arc<Self>, ticket: Ticket) -> Option<TicketGuard> {
        let now = self.clock.now();
        let mut locked = self.locked.lock();
        if locked.is_removed {
            return None;
        }
        let assignment = locked.router.hedge(ticket, now)?;
        Some(self.guard(&locked, assignment))
    }
}
