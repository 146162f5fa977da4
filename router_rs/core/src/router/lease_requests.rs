//! Asks and leases: how parked calls get places that other routers' calls give back (design
//! decision 7).
//!
//! A router's own completions release its parked calls. When others hold the places, it hears
//! nothing; so while calls are parked it asks the gates that have refused it, and a lease that
//! comes back sends the call whose turn it is.
//!
//! In the same way it hears at once that a replica it holds back could work on another call after
//! all, as when the calls that came now await something: it asks for a place as soon as the replica
//! idles beside the calls that it has. (Lu and others, "Join-Idle-Queue", 2011, have idle servers
//! say so, too.)

use super::{Assignment, Release, ReleaseCause, Router, WaiterId};
use crate::membership::ReplicaId;
use crate::replica::Replica;
use crate::time::Nanos;

/// One ask at up to so many replicas (design decision 7).
pub const ASKED_MAX: usize = 5;

/// What is asked of a replica: a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseRequest {
    /// The replica.
    pub replica: ReplicaId,
    /// Only once it idles although it has calls.
    pub when_idle: bool,
}

impl Router {
    /// Where an ask has to stand now; `wanted` is cleared first. Nowhere while nobody is parked.
    ///
    /// Ask after every change while calls are parked: completions, leases and refusals move it.
    pub fn wanted_asks(&self, wanted: &mut Vec<LeaseRequest>) {
        wanted.clear();
        // Without a backoff nobody has refused, and a replica that is held back eases at some time.
        if !self.queue.has_ready() || self.fleet.next_reopening().is_none() {
            return;
        }
        let refusing = self.fleet.iter().filter(|(_, replica)| refuses(replica));
        self.add_asks(refusing, false, wanted);
        if self.fleet.late.is_on {
            let kept = self.fleet.iter().filter(|(slot, _)| self.fleet.is_kept(*slot));
            self.add_asks(kept, true, wanted);
        }
    }

    /// The same ones as long as they are in question, and others than those of other routers.
    fn add_asks<'a>(
        &self,
        replicas: impl Iterator<Item = (u32, &'a Replica)>,
        when_idle: bool,
        wanted: &mut Vec<LeaseRequest>,
    ) {
        let before = wanted.len();
        wanted.extend(replicas.map(|(_, replica)| LeaseRequest { replica: replica.id, when_idle }));
        if wanted.len() - before <= ASKED_MAX {
            return;
        }
        let mixed = |ask: &LeaseRequest| {
            crate::rng::SplitMix64::new(ask.replica.0 ^ self.config.seed).next_u64()
        };
        wanted[before..].sort_unstable_by_key(mixed);
        wanted.truncate(before + ASKED_MAX);
    }

    /// `replica` keeps a place for the next call of this router. Sends the call whose turn it is,
    /// whatever the backoff says; returns whether one wanted the place.
    pub fn on_lease(
        &mut self,
        replica: ReplicaId,
        now: Nanos,
        released: &mut Vec<Release>,
    ) -> bool {
        self.settle(now, released);
        if let Some(slot) = self.fleet.member(replica) {
            self.fleet.on_reached(slot);
            self.fleet.on_idle(slot, now);
        }
        // Replicas that have become open meanwhile serve earlier calls first.
        self.release(ReleaseCause::Time, now, released);
        let slot = self.fleet.member(replica).filter(|slot| self.fleet.may_take(*slot));
        let Some((slot, (_, index))) = slot.zip(self.queue.first_ready()) else {
            return false;
        };
        self.unpark(index);
        let waiter = WaiterId(self.calls.key_at(index));
        self.calls.rename(index);
        self.measure_wait(index, now);
        self.measures.on_released(ReleaseCause::Lease, 1);
        self.fleet.take_beyond(slot, now);
        let assignment = Assignment { is_leased: true, ..self.assign(index, slot, now) };
        self.totals.leased += 1;
        released.push(Release::Send { waiter, assignment });
        true
    }
}

/// Others hold its places, as it said when it refused.
fn refuses(replica: &Replica) -> bool {
    let is_full = replica.reported.is_some_and(|load| load.in_flight >= load.limit);
    is_full && replica.backoff.is_active() && replica.may_take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{ReplicaSpec, Tier};
    use crate::replica::Load;
    use crate::router::{Decision, Offer, Outcome, RouterConfig, RouterStats};

    const FULL: Option<Load> = Some(Load {
        in_flight: 4,
        limit: 4,
        processing: None,
        alone: None,
        batch: None,
        cost: None,
    });

    /// A router whose first call was refused by each of `replicas`, and is parked.
    fn refused_by(replicas: u64) -> (Router, WaiterId) {
        let config = RouterConfig { refusals_max: u8::MAX, ..RouterConfig::default() };
        let mut router = Router::new(config);
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 4 };
        let specs: Vec<_> = (0..replicas).map(spec).collect();
        router.apply(&specs, Nanos::ZERO, &mut Vec::new());
        let mut decision = router.offer(Offer::default(), Nanos::ZERO);
        while let Decision::Send(Assignment { ticket, .. }) = decision {
            let outcome = Outcome::Refused { load: FULL };
            decision = router.reoffer(ticket, outcome, Nanos::ZERO, &mut Vec::new());
        }
        match decision {
            Decision::Parked(waiter) => (router, waiter),
            other => panic!("the call is to wait, the router says {other:?}"),
        }
    }

    fn wanted(router: &Router) -> Vec<u64> {
        let mut wanted = Vec::new();
        router.wanted_asks(&mut wanted);
        wanted.into_iter().map(|ask| ask.replica.0).collect()
    }

    #[test]
    fn parked_calls_ask_those_who_refused_and_a_lease_sends_one_of_them() {
        let (mut router, waiter) = refused_by(2);
        assert_eq!(vec![0, 1], wanted(&router));
        let mut released = Vec::new();
        assert!(router.on_lease(ReplicaId(1), Nanos(1), &mut released));
        let [Release::Send { waiter: sent, assignment }] = released[..] else {
            panic!("one call was to be sent: {released:?}");
        };
        assert_eq!((waiter, ReplicaId(1), true), (sent, assignment.replica, assignment.is_leased));
        assert!(wanted(&router).is_empty());
        released.clear();
        assert!(!router.on_lease(ReplicaId(0), Nanos(2), &mut released), "nobody is parked");
        router.complete(assignment.ticket, Outcome::done(None), Nanos(3), &mut released);
        let RouterStats { in_flight, parked, leased, .. } = router.stats();
        assert_eq!((0, 0, 1), (in_flight, parked, leased));
    }

    #[test]
    fn at_most_five_are_asked_and_the_same_ones_again() {
        let (router, _) = refused_by(20);
        let first = wanted(&router);
        assert_eq!((ASKED_MAX, &first), (first.len(), &wanted(&router)));
    }

    #[test]
    fn who_could_not_be_reached_is_not_asked() {
        let mut router = Router::new(RouterConfig::default());
        let spec = ReplicaSpec { id: ReplicaId(0), tier: Tier::Any, capacity: 4 };
        router.apply(&[spec], Nanos::ZERO, &mut Vec::new());
        let Decision::Send(Assignment { ticket, .. }) = router.offer(Offer::default(), Nanos::ZERO)
        else {
            panic!("there is room");
        };
        let decision = router.reoffer(ticket, Outcome::ConnectFailed, Nanos::ZERO, &mut Vec::new());
        assert!(matches!(decision, Decision::Parked(_)), "{decision:?}");
        assert!(wanted(&router).is_empty());
    }

    #[test]
    fn a_lease_of_no_member_or_beyond_the_capacity_is_not_used() {
        let (mut router, _) = refused_by(1);
        assert!(!router.on_lease(ReplicaId(9), Nanos(1), &mut Vec::new()));
        let spec = ReplicaSpec { id: ReplicaId(0), tier: Tier::Any, capacity: 0 };
        router.apply(&[spec], Nanos(1), &mut Vec::new());
        assert!(!router.on_lease(ReplicaId(0), Nanos(1), &mut Vec::new()));
    }
}
