//! Calls that are sent more than once: the deployment's side.

use std::sync::Arc;
use std::time::Duration;

use router_core::{Outcome, Ticket};

use super::{Admission, DeploymentEntry, Refused};
use crate::dispatch::guards::TicketGuard;
use crate::dispatch::settings;

impl DeploymentEntry {
    /// Sends a call that started once more, if it may; `pushback` is how long its replica wants it
    /// to wait.
    pub(in crate::dispatch) fn retry(
        self: &Arc<Self>,
        ticket: Ticket,
        outcome: Outcome,
        pushback: Option<Duration>,
    ) -> Admission {
        let now = self.clock.now();
        let pushback = pushback.map(settings::nanos);
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        if locked.is_removed {
            locked.router.complete(ticket, outcome, now, &mut locked.released);
            self.finish(guard);
            return Admission::Refused(Refused::Spent);
        }
        let released = &mut locked.released;
        let decision = locked.router.retry(ticket, outcome, pushback, now, released);
        let wakers = locked.hand_out();
        self.admit(guard, decision, wakers)
    }

    pub(in crate::dispatch) fn hedge_after(&self) -> Option<Duration> {
        let after = self.locked.lock().router.hedge_after()?;
        Some(Duration::from_nanos(after.0))
    }

    /// A second place, elsewhere, for a call that has one.
    pub(in crate::dispatch) fn hedge(self: &Arc<Self>, ticket: Ticket) -> Option<TicketGuard> {
        let now = self.clock.now();
        let mut locked = self.locked.lock();
        if locked.is_removed {
            return None;
        }
        let assignment = locked.router.hedge(ticket, now)?;
        Some(self.guard(&locked, assignment))
    }
}
