//! How long calls take and wait, where they go and how well that was predicted: for people.
//! Nothing is decided by it.

use super::fleet::Fleet;
use super::{Outcome, Router, is_past};
use crate::histogram::Histogram;
use crate::replica::{ReplicaId, Tier};
use crate::time::Nanos;

/// What let a parked call go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// Another call left its replica.
    Completion,
    /// A replica kept a place, which a router had asked for.
    Lease,
    /// A backoff, a rest or a pause ended, or the call had waited long enough for its model or for
    /// a better replica.
    Time,
    /// Replicas came, or may have more calls.
    Members,
    /// A replica told which models it has.
    Models,
    /// A replica gave a sign of life again, or none any more.
    Life,
    /// The deployment's settings changed.
    Settings,
}

impl ReleaseCause {
    /// Each of them, in the order of [`Measures::releases`].
    pub const ALL: [Self; 7] = [
        Self::Completion,
        Self::Lease,
        Self::Time,
        Self::Members,
        Self::Models,
        Self::Life,
        Self::Settings,
    ];

    /// One word, for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Lease => "lease",
            Self::Time => "time",
            Self::Members => "members",
            Self::Models => "models",
            Self::Life => "life",
            Self::Settings => "settings",
        }
    }
}

/// Times and counts of one router, from its start.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// Whole calls that were answered, and did not blame the replica.
    pub answered: Histogram,
    /// Whole calls that failed, or got no replica. Calls whose callers left are in neither.
    pub failed: Histogram,
    /// Waits in the router, before and between attempts.
    pub waits: Histogram,
    /// By how much calls were answered sooner than predicted when they were sent.
    pub early: Histogram,
    /// By how much they were answered later.
    pub late: Histogram,
    /// Parked calls that were sent, by [`ReleaseCause::ALL`].
    pub releases: [u64; ReleaseCause::ALL.len()],
    /// Attempts by how far away the replica was: node, zone, any.
    pub sent_by_tier: [u64; 3],
    /// In the router: by slot. Outside: the members, and those that left with calls still open.
    pub replicas: Vec<ReplicaMeasures>,
}

/// Those of one replica, from when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaMeasures {
    /// Which replica.
    pub id: ReplicaId,
    /// Calls sent there.
    pub sent: u64,
    /// Those of them that failed by its fault, as far as one can tell.
    pub failed: u64,
    /// Attempts that ended there, well or not: neither refused nor left by their callers.
    pub attempts: Histogram,
}

impl Measures {
    /// Makes a place for each replica that has come.
    pub(super) fn follow(&mut self, fleet: &Fleet) {
        for (slot, replica) in fleet.iter() {
            let slot = slot as usize;
            let fresh = ReplicaMeasures::new(replica.id);
            if slot >= self.replicas.len() {
                self.replicas.resize(slot + 1, fresh);
            }
            if self.replicas[slot].id != replica.id {
                self.replicas[slot] = fresh;
            }
        }
    }

    #[inline]
    pub(super) fn on_sent(&mut self, slot: u32, tier: Tier) {
        self.sent_by_tier[tier as usize] += 1;
        self.replicas[slot as usize].sent += 1;
    }

    /// An attempt ended; `predicted` is how long it was to take, 0 if nothing was known.
    #[inline]
    pub(super) fn on_attempt(
        &mut self,
        slot: u32,
        outcome: Outcome,
        took: Nanos,
        predicted: Nanos,
    ) {
        let replica = &mut self.replicas[slot as usize];
        match outcome {
            Outcome::Done { is_failure, first_message_at, .. } => {
                replica.attempts.add(took);
                replica.failed += u64::from(is_failure);
                // When a stream ends is its own business.
                if predicted > Nanos::ZERO && !is_failure && first_message_at.is_none() {
                    self.on_prediction(took, predicted);
                }
            }
            Outcome::Failed | Outcome::Late => {
                replica.attempts.add(took);
                replica.failed += 1;
            }
            Outcome::Refused { .. } | Outcome::ConnectFailed | Outcome::Cancelled => {}
        }
    }

    #[inline]
    fn on_prediction(&mut self, took: Nanos, predicted: Nanos) {
        match took.checked_sub(predicted) {
            Some(late) => self.late.add(late),
            None => self.early.add(predicted.saturating_sub(took)),
        }
    }

    #[inline]
    fn on_end(&mut self, outcome: Outcome, took: Nanos) {
        match outcome {
            Outcome::Done { is_failure: false, .. } => self.answered.add(took),
            Outcome::Cancelled => {}
            Outcome::Done { .. }
            | Outcome::Refused { .. }
            | Outcome::ConnectFailed
            | Outcome::Failed
            | Outcome::Late => self.failed.add(took),
        }
    }

    pub(super) fn on_released(&mut self, cause: ReleaseCause, calls: usize) {
        self.releases[cause as usize] += calls as u64;
    }
}

impl ReplicaMeasures {
    fn new(id: ReplicaId) -> Self {
        Self { id, sent: 0, failed: 0, attempts: Histogram::default() }
    }
}

impl Router {
    /// The times and counts. Allocates; for metrics, not for decisions.
    pub fn measures(&self) -> Measures {
        let places = self.fleet.iter().map(|(slot, _)| self.measures.replicas[slot as usize]);
        Measures { replicas: places.collect(), ..self.measures.clone_without_replicas() }
    }

    /// How long one more call at the replica in `slot` is to take, for what it turns out to be
    /// worth; 0 where nothing is predicted.
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

impl Measures {
    fn clone_without_replicas(&self) -> Self {
        let Self { answered, failed, waits, early, late, releases, sent_by_tier, .. } = *self;
        let replicas = Vec::new();
        Self { answered, failed, waits, early, late, releases, sent_by_tier, replicas }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyKind;
    use crate::replica::ReplicaSpec;
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
