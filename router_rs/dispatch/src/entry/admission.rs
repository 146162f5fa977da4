//! How calls get places: at once, after a wait, or not at all.

use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::MutexGuard;
use router_core::{Assignment, Decision, Nanos, Offer, ReplicaId, WaiterId};
use router_upstream::target::Target;

use super::guards::{Admission, TicketGuard, WaiterGuard};
use super::{DeploymentEntry, Locked, Waiting, Wakers, Wakeup, wake_all};
use crate::refused::{Crowd, Refused};
use crate::wish::Wish;

impl DeploymentEntry {
    /// Asks for a replica for a new call. On an I/O thread only.
    pub(crate) fn offer(self: &Arc<Self>, wish: &Wish<'_>) -> Admission {
        let now = self.clock.now();
        let deadline = wish.deadline.map(|deadline| self.clock.at(deadline));
        if !wish.model.is_empty() || !wish.cache_keys.is_empty() || self.hears_costs() {
            self.listen_to_loads(now);
        }
        if !wish.cache_keys.is_empty() {
            self.loads.name_keys(now);
        }
        let mut locked = self.locked.lock();
        if let Some(refused) = locked.closed() {
            return Admission::Refused(refused);
        }
        let decision = locked.router.offer(wish.offer(deadline), now);
        self.admit(locked, decision, Wakers::new(), now)
    }

    /// A place at the replica with that name, whatever its load; `None` if it is not a member.
    pub(crate) fn pin(
        self: &Arc<Self>,
        replica_id: &str,
        model: &str,
        cache_keys: &[u64],
    ) -> Option<TicketGuard> {
        let now = self.clock.now();
        let mut locked = self.locked.lock();
        let is_it = |(_, target): &&(ReplicaId, Arc<Target>)| {
            target.as_replica().is_some_and(|replica| replica.replica_id == replica_id)
        };
        let id = locked.members.iter().find(is_it)?.0;
        let offer = Offer { model, cache_keys, ..Offer::default() };
        let assignment = locked.router.pin(id, offer, now)?;
        Some(self.guard(&locked, assignment))
    }

    /// Whether a parked call's wait is over. `Ready` is returned once; the waiter is forgotten
    /// then.
    pub(in crate::entry) fn poll_released(
        self: &Arc<Self>,
        waiter: WaiterId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<TicketGuard, Refused>> {
        let mut locked = self.locked.lock();
        match locked.waiting.get_mut(&waiter) {
            Some(Waiting::Parked(waker)) => {
                *waker = Some(cx.waker().clone());
                let needs_ticker = locked.ticker.is_none() && locked.router.next_wakeup().is_some();
                if needs_ticker {
                    locked.ticker = Some(Nanos::ZERO);
                }
                drop(locked);
                if needs_ticker {
                    self.spawn_ticker();
                }
                Poll::Pending
            }
            Some(Waiting::Over(wakeup)) => {
                let wakeup = *wakeup;
                locked.waiting.remove(&waiter);
                Poll::Ready(match wakeup {
                    Wakeup::Send(assignment) => Ok(self.guard(&locked, assignment)),
                    Wakeup::Expired => Err(Refused::Expired(Crowd::of(&locked.router))),
                    Wakeup::Unreachable => Err(Refused::Unreachable(Crowd::of(&locked.router))),
                    Wakeup::Closed(refused) => Err(refused),
                })
            }
            None => {
                debug_assert!(false, "{waiter:?} was polled after its end");
                Poll::Ready(Err(Refused::Removed))
            }
        }
    }

    pub(super) fn admit(
        self: &Arc<Self>,
        mut locked: MutexGuard<'_, Locked>,
        decision: Decision,
        mut wakers: Wakers,
        now: Nanos,
    ) -> Admission {
        let admission = match decision {
            Decision::Send(assignment) => Admission::Send(self.guard(&locked, assignment)),
            Decision::Parked(waiter) => {
                locked.waiting.insert(waiter, Waiting::Parked(None));
                locked.tell_slow(&mut wakers);
                Admission::Parked(WaiterGuard::new(Arc::clone(self), waiter, now))
            }
            Decision::Refused(refusal) => Admission::Refused(Refused::of(refusal, &locked.router)),
        };
        self.tell_ticker(&mut locked, &mut wakers);
        let is_asking = self.move_asks(&mut locked);
        drop(locked);
        wake_all(wakers);
        if is_asking {
            self.listen_to_loads(now);
        }
        admission
    }

    pub(super) fn guard(self: &Arc<Self>, locked: &Locked, assignment: Assignment) -> TicketGuard {
        let target = locked.target_of(assignment.replica);
        TicketGuard::new(Arc::clone(self), assignment, target)
    }
}
