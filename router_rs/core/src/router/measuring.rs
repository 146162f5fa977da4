//! The measurements of a router's calls.

use super::measures::Measures;
use super::{Outcome, Router, is_past};
use crate::time::Nanos;

impl Router {
    /// The times and counts. Allocates; for metrics, not for decisions.
    pub fn measures(&self) -> Measures {
        let places = self.fleet.iter().map(|(slot, _)| self.measures.replicas[slot as usize]);
        Measures { replicas: places.collect(), ..self.measures.clone_without_replicas() }
    }

    /// Predicts how long one more call at the replica in `slot` will take, to judge the prediction
    /// later; 0 where nothing is predicted.
    #[inline]
    pub(super) fn predict(&self, slot: u32, now: Nanos) -> Nanos {
        if !self.fleet.is_patient {
            return Nanos::ZERO;
        }
        self.fleet.predicted(slot, now).unwrap_or_default()
    }

    /// A call that was sent is over.
    #[inline]
    pub(super) fn measure_end(&mut self, index: u32, outcome: Outcome, now: Nanos) {
        self.measures.on_end(outcome, now.saturating_sub(self.calls.at(index).offered_at));
    }

    /// A call got no replica.
    pub(super) fn measure_refused(&mut self, index: u32, now: Nanos) {
        self.measures.failed.add(now.saturating_sub(self.calls.at(index).offered_at));
    }

    /// A parked call's caller is gone, or has noticed before us that its time is over.
    pub(super) fn measure_abandoned(&mut self, index: u32, now: Nanos) {
        self.measure_wait(index, now);
        if is_past(self.calls.at(index).deadline, now) {
            self.measure_refused(index, now);
        }
    }

    /// A call's wait is over, in whichever way.
    #[inline]
    pub(super) fn measure_wait(&mut self, index: u32, now: Nanos) {
        self.measures.waits.add(now.saturating_sub(self.calls.at(index).waits_since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::membership::{ReplicaId, ReplicaSpec, Tier};
    use crate::policy::PolicyKind;
    use crate::router::measures::ReplicaMeasures;
    use crate::router::{Assignment, Decision, Offer, Release, RouterConfig, Ticket, WaiterId};

    const DONE: Outcome = Outcome::done(None);

    fn spec(id: u64, tier: Tier) -> ReplicaSpec {
        ReplicaSpec { id: ReplicaId(id), tier, capacity: 1 }
    }

    fn router(policy: PolicyKind, specs: &[ReplicaSpec]) -> Router {
        let mut router = Router::new(RouterConfig { policy, ..RouterConfig::default() });
        router.apply(specs, Nanos::ZERO, &mut Vec::new());
        router
    }

    fn send(router: &mut Router, at_ms: u64) -> Assignment {
        match router.offer(Offer::default(), Nanos::from_millis(at_ms)) {
            Decision::Send(assignment) => assignment,
            other => panic!("there is room, but {other:?}"),
        }
    }

    fn park(router: &mut Router, deadline_ms: Option<u64>, at_ms: u64) -> WaiterId {
        let deadline = deadline_ms.map(Nanos::from_millis);
        match router.offer(Offer { deadline, ..Offer::default() }, Nanos::from_millis(at_ms)) {
            Decision::Parked(waiter) => waiter,
            other => panic!("there is no room, but {other:?}"),
        }
    }

    fn complete(router: &mut Router, ticket: Ticket, outcome: Outcome, at_ms: u64) -> Vec<Release> {
        let mut released = Vec::new();
        router.complete(ticket, outcome, Nanos::from_millis(at_ms), &mut released);
        released
    }

    fn seen(histogram: Histogram) -> (u64, u64) {
        (histogram.count(), histogram.sum().as_millis())
    }

    #[test]
    fn whole_calls_are_counted_by_how_they_ended() {
        let mut router = router(PolicyKind::Least, &[spec(1, Tier::Node)]);
        for (outcome, took_ms) in [
            (DONE, 2),
            (Outcome::Done { load: None, is_failure: true, first_message_at: None }, 4),
            (Outcome::Failed, 8),
            (Outcome::Late, 16),
            (Outcome::Cancelled, 32),
        ] {
            let ticket = send(&mut router, 100).ticket;
            complete(&mut router, ticket, outcome, 100 + took_ms);
        }
        let Measures { answered, failed, waits, replicas, sent_by_tier, .. } = router.measures();
        assert_eq!([(1, 2), (3, 28), (0, 0)], [answered, failed, waits].map(seen));
        let ReplicaMeasures { sent, failed, attempts, .. } = replicas[0];
        assert_eq!((5, 3, (4, 30)), (sent, failed, seen(attempts)));
        assert_eq!([5, 0, 0], sent_by_tier);
    }

    #[test]
    fn a_wait_counts_to_its_end_and_names_what_ended_it() {
        let mut router = router(PolicyKind::Least, &[spec(1, Tier::Zone)]);
        let first = send(&mut router, 0);
        park(&mut router, None, 1);
        park(&mut router, Some(5), 1);
        let left = park(&mut router, None, 2);
        router.tick(Nanos::from_millis(5), &mut Vec::new());
        router.abandon(left, Nanos::from_millis(6));
        complete(&mut router, first.ticket, DONE, 10);
        park(&mut router, None, 10);
        router.apply(
            &[spec(1, Tier::Zone), spec(2, Tier::Any)],
            Nanos::from_millis(30),
            &mut Vec::new(),
        );
        let measures = router.measures();
        // 9 ms to its place, 4 to its deadline, 4 to its caller's leave, 20 to a new replica.
        assert_eq!((4, 37), seen(measures.waits));
        assert_eq!([1, 0, 0, 1, 0, 0, 0], measures.releases);
        assert_eq!([0, 2, 1], measures.sent_by_tier);
        assert_eq!((1, 4), seen(measures.failed));
    }

    #[test]
    fn whoever_notices_a_deadline_first_the_call_has_failed() {
        let mut router = router(PolicyKind::Least, &[]);
        let waiter = park(&mut router, Some(5), 1);
        router.abandon(waiter, Nanos::from_millis(5));
        assert_eq!((1, 4), seen(router.measures().failed));
    }

    #[test]
    fn predictions_are_compared_with_what_came_of_them() {
        let mut router = router(PolicyKind::Predicted, &[spec(1, Tier::Node)]);
        for round in 0..100 {
            let ticket = send(&mut router, 100 * round).ticket;
            complete(&mut router, ticket, DONE, 100 * round + 10);
        }
        let before = router.measures();
        // The first one had nothing to go by.
        assert_eq!(99, before.early.count() + before.late.count());
        let ticket = send(&mut router, 20_000).ticket;
        complete(&mut router, ticket, DONE, 20_510);
        let late = router.measures().late;
        assert_eq!(before.late.count() + 1, late.count());
        let by = late.sum().saturating_sub(before.late.sum()).as_millis();
        assert!((450..=505).contains(&by), "{by} ms late");
        let stream = Some(Nanos::from_millis(30_001));
        let outcome = Outcome::Done { load: None, is_failure: false, first_message_at: stream };
        let ticket = send(&mut router, 30_000).ticket;
        complete(&mut router, ticket, outcome, 39_000);
        assert_eq!(late, router.measures().late, "a stream ends when it likes");
    }

    #[test]
    fn a_replica_that_takes_the_place_of_another_begins_anew() {
        let mut router = router(PolicyKind::Least, &[spec(1, Tier::Node)]);
        let ticket = send(&mut router, 0).ticket;
        complete(&mut router, ticket, DONE, 5);
        router.apply(&[], Nanos::from_millis(6), &mut Vec::new());
        assert!(router.measures().replicas.is_empty());
        router.apply(&[spec(2, Tier::Node)], Nanos::from_millis(7), &mut Vec::new());
        let measures = router.measures();
        assert_eq!(ReplicaMeasures::new(ReplicaId(2)), measures.replicas[0]);
        assert_eq!((1, 5), seen(measures.answered));
    }
}
