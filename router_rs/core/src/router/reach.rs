//! Deployments none of whose replicas can be reached: their calls do not wait for ever.
//!
//! A controller that lives takes a dead replica out of the membership, and starts another one. Where
//! it is gone too nobody does, and a call without a deadline would be tried until its caller ends.

use super::fleet::Fleet;
use super::{Release, Router, State, WaiterId};
use crate::time::Nanos;

impl Fleet {
    /// No connection to the replica in `slot`.
    pub(super) fn on_unreached(&mut self, slot: u32, now: Nanos) {
        self.replicas[slot as usize].is_unreached = true;
        self.look_at_reach(now);
    }

    /// The replica in `slot` has been there, however it answered.
    #[inline]
    pub(super) fn on_reached(&mut self, slot: u32) {
        let replica = &mut self.replicas[slot as usize];
        if replica.is_unreached {
            replica.is_unreached = false;
            self.unreached_since = None;
        }
    }

    /// Something has changed in which replicas there are, or which can be reached.
    pub(super) fn look_at_reach(&mut self, now: Nanos) {
        let mut members = self.replicas.iter().filter(|replica| replica.is_member).peekable();
        let is_unreached = members.peek().is_some()
            && members.all(|replica| replica.is_unreached || replica.health.is_silent());
        if is_unreached {
            self.unreached_since.get_or_insert(now);
        } else {
            self.unreached_since = None;
        }
    }
}

impl Router {
    /// When the first of the calls that wait is given up, if no replica can be reached until then.
    pub(super) fn gives_up_at(&self) -> Option<Nanos> {
        let since = self.fleet.unreached_since?;
        self.ends_of_patience(since).map(|(_, at)| at).min()
    }

    /// Ends the wait of calls during all of which, for as long as that may be, no replica could be
    /// reached.
    pub(super) fn give_up(&mut self, now: Nanos, released: &mut Vec<Release>) {
        let Some(since) = self.fleet.unreached_since else { return };
        let over = self.ends_of_patience(since).filter(|(_, at)| *at <= now);
        let over: Vec<u32> = over.map(|(index, _)| index).collect();
        for index in over {
            released.push(Release::Unreachable { waiter: WaiterId(self.calls.key_at(index)) });
            self.turn_away(index, now);
            self.totals.unreachable += 1;
        }
    }

    /// The calls that wait, and when each is given up, where no replica could be reached `since`.
    fn ends_of_patience(&self, since: Nanos) -> impl Iterator<Item = (u32, Nanos)> {
        let waiting = self.calls.occupied().filter(|(_, call)| matches!(call.state, State::Parked));
        let patience = self.config.unreachable_max;
        waiting
            .map(move |(index, call)| (index, call.offered_at.max(since).saturating_add(patience)))
    }
}

#[cfg(test)]
mod tests {
    use crate::membership::{ReplicaId, ReplicaSpec, Tier};
    use crate::router::{Assignment, Decision, Offer, Outcome, Release, Router, RouterConfig};
    use crate::time::Nanos;

    const PATIENCE: Nanos = Nanos::from_secs(20);

    fn members(ids: &[u64]) -> Vec<ReplicaSpec> {
        let spec = |id: &u64| ReplicaSpec { id: ReplicaId(*id), tier: Tier::Any, capacity: 1 };
        ids.iter().map(spec).collect()
    }

    fn router(ids: &[u64]) -> Router {
        let mut router =
            Router::new(RouterConfig { unreachable_max: PATIENCE, ..RouterConfig::default() });
        router.apply(&members(ids), Nanos::ZERO, &mut Vec::new());
        router
    }

    /// Offers so many calls, and lets every attempt fail to connect until `until` or until all calls
    /// are over; returns when each was given up.
    fn play(router: &mut Router, calls: usize, now: Nanos, until: Nanos) -> Vec<Nanos> {
        let (mut now, mut over) = (now, Vec::new());
        let mut decisions: Vec<Decision> =
            (0..calls).map(|_| router.offer(Offer::default(), now)).collect();
        while now <= until {
            let mut released = Vec::new();
            if let Some(decision) = decisions.pop() {
                if let Decision::Send(Assignment { ticket, .. }) = decision {
                    let outcome = Outcome::ConnectFailed;
                    decisions.push(router.reoffer(ticket, outcome, now, &mut released));
                }
            } else if let Some(at) = router.next_wakeup() {
                now = now.max(at);
                router.tick(now, &mut released);
            } else {
                break;
            }
            for release in released {
                match release {
                    Release::Send { assignment, .. } => decisions.push(Decision::Send(assignment)),
                    Release::Unreachable { .. } => over.push(now),
                    Release::Expired { .. } => panic!("no call has a deadline"),
                }
            }
        }
        over
    }

    #[test]
    fn calls_without_a_deadline_end_where_no_replica_can_be_reached() {
        let mut router = router(&[1, 2]);
        let over = play(&mut router, 10, Nanos::ZERO, Nanos::from_secs(100));
        assert_eq!(10, over.len(), "{over:?}");
        let late = PATIENCE.saturating_add(Nanos::from_secs(1));
        assert!(over.iter().all(|at| (PATIENCE..late).contains(at)), "{over:?}");
        assert_eq!((0, 10), (router.waiting(), router.stats().unreachable));
    }

    #[test]
    fn a_call_that_comes_later_has_as_long() {
        let mut router = router(&[1]);
        play(&mut router, 1, Nanos::ZERO, Nanos::from_secs(100));
        let start = Nanos::from_secs(1_000);
        let over = play(&mut router, 1, start, Nanos::from_secs(2_000));
        assert!(over[0] >= start.saturating_add(PATIENCE), "{over:?}");
    }

    #[test]
    fn they_wait_on_while_one_replica_can_be_reached() {
        let mut router = router(&[1, 2]);
        let busy = router.pin(ReplicaId(2), Offer::default(), Nanos::ZERO).expect("a member");
        let over = play(&mut router, 3, Nanos::ZERO, Nanos::from_secs(100));
        assert!(over.is_empty(), "{over:?}");
        let mut released = Vec::new();
        router.complete(busy.ticket, Outcome::done(None), Nanos::from_secs(101), &mut released);
        assert!(matches!(released[..], [Release::Send { .. }]), "{released:?}");
    }

    #[test]
    fn a_replica_that_joins_is_waited_for() {
        let mut router = router(&[1]);
        play(&mut router, 1, Nanos::ZERO, Nanos::from_secs(10));
        let mut released = Vec::new();
        router.apply(&members(&[1, 2]), Nanos::from_secs(11), &mut released);
        let sent = released.iter().filter(|one| matches!(one, Release::Send { .. })).count();
        assert!(sent <= 1, "{released:?}");
        assert_eq!(None, router.gives_up_at());
    }

    #[test]
    fn silent_replicas_are_out_of_reach_without_an_attempt() {
        let mut router = router(&[1, 2]);
        for id in [1, 2] {
            router.silent(ReplicaId(id), Nanos::ZERO, &mut Vec::new());
        }
        let over = play(&mut router, 2, Nanos::ZERO, Nanos::from_secs(100));
        assert_eq!(vec![PATIENCE; 2], over);
    }
}
