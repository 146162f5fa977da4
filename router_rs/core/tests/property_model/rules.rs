//! Things that the router must never do.

use router_core::{Nanos, PolicyKind, ReplicaId};

use super::{Call, Ends, Model, Replica};

impl Model {
    /// No call is sent to a replica that is absent, full or avoided, nor to the same one twice in a
    /// row.
    pub(super) fn check_send(&self, call: &Call, id: ReplicaId) {
        let replica = self.replicas.get(&id).expect("sends only to replicas that were announced");
        assert!(replica.is_member, "sent to {id:?}, which has left");
        assert!(replica.in_flight < replica.capacity, "sent to {id:?}, which is full: {replica:?}");
        assert!(
            replica.backoff_until <= self.now,
            "sent to {id:?} at {}, which is left alone: {replica:?}",
            self.now
        );
        assert!(!call.tried.contains(&id), "sent to {id:?} again: {call:?}");
        assert!(
            call.tried.is_empty() || call.tried.len() < usize::from(self.config.refusals_max),
            "sent on after {} refusals in a row",
            call.tried.len()
        );
        assert!(!self.is_late(call), "sent at {}, too late: {call:?}", self.now);
    }

    /// A call parks only if it has nowhere to go, or has been refused often enough.
    pub(super) fn check_park(&self, call: &Call) {
        let held = if self.may_hold() { self.spare() } else { 0 };
        assert!(
            (self.parked.len() as u64) < u64::from(self.config.queue_len_max) + held,
            "parked beside {} others",
            self.parked.len()
        );
        assert!(!self.is_late(call), "parked at {}, too late: {call:?}", self.now);
        self.check_nowhere_to_go(call);
    }

    pub(super) fn check_queue_full(&self, call: &Call, limit: u32) {
        assert_eq!(self.config.queue_len_max, limit);
        if self.may_hold() {
            assert!(u64::from(limit) <= self.parked.len() as u64, "refused beside a free place");
        } else {
            assert_eq!(u64::from(limit), self.parked.len() as u64, "refused beside a free place");
        }
        self.check_nowhere_to_go(call);
    }

    /// It is not late yet, but would wait behind others.
    pub(super) fn check_too_late(&self, call: &Call) {
        assert!(call.deadline.is_some() && !self.is_late(call), "{call:?} at {}", self.now);
        assert!(!self.parked.is_empty(), "{call:?} is too late behind nobody");
        self.check_nowhere_to_go(call);
    }

    /// No replica could be reached, for as long as a call may wait for that.
    pub(super) fn check_unreachable(&self, call: &Call) {
        let waited = self.now.saturating_sub(call.arrival);
        assert!(waited >= self.config.unreachable_max, "given up after {waited}: {call:?}");
        let mut members = self.replicas.values().filter(|replica| replica.is_member).peekable();
        assert!(members.peek().is_some(), "given up where a replica may yet come: {call:?}");
        assert!(members.all(|replica| replica.is_unreached), "{:?}", self.replicas);
    }

    pub(super) fn check_late(&self, call: &Call) {
        assert!(self.is_late(call), "named late at {}: {call:?}", self.now);
    }

    /// Calls are released in the order of their turns, and no ready call with an earlier turn stays
    /// behind. Calls with a model may have waited for certain replicas, so their order proves
    /// nothing.
    pub(super) fn check_order(&self, sent: &[Call]) {
        let sent: Vec<&Call> = sent.iter().filter(|call| call.model == 0).collect();
        assert!(sent.is_sorted_by_key(|call| turn(call)), "released out of turn: {sent:?}");
        let Some(last) = sent.last() else {
            return;
        };
        for call in
            self.parked.values().filter(|call| call.rests_since.is_none() && call.model == 0)
        {
            assert!(turn(last) < turn(call), "{last:?} was released before {call:?}");
        }
    }

    /// Work conservation: while a replica has room, only resting calls wait, and not for long.
    pub(super) fn check_nobody_waits_beside_room(&self) {
        let due = self.router.next_wakeup().is_some_and(|wakeup| wakeup <= self.now);
        if due || !self.has_room_anywhere() {
            return;
        }
        if self.may_hold() {
            let is_awaited = self.router.next_wakeup().is_some() || !self.sent.is_empty();
            assert!(self.parked.is_empty() || is_awaited, "calls wait for nothing");
            return;
        }
        for call in self.parked.values() {
            if call.model != 0 {
                self.check_faithful(call);
                continue;
            }
            let rest_ends =
                call.rests_since.map(|since| since.saturating_add(self.config.backoff_initial));
            assert!(
                rest_ends.is_some_and(|end| self.now < end),
                "{call:?} waits at {} beside room: {:?}",
                self.now,
                self.replicas
            );
            let wakeup = self.router.next_wakeup();
            assert!(wakeup <= rest_ends && wakeup.is_some(), "nobody will end the rest: {call:?}");
        }
    }

    /// A call with a model waits despite room only until its patience (or, like any, its rest)
    /// ends, and not if a replica with the model has room.
    fn check_faithful(&self, call: &Call) {
        let patience_ends = call.arrival.saturating_add(self.config.model_wait_max);
        let rest_ends =
            call.rests_since.map(|since| since.saturating_add(self.config.backoff_initial));
        let end = rest_ends.map_or(patience_ends, |end| end.max(patience_ends));
        assert!(self.now < end, "{call:?} still waits for its model at {}", self.now);
        let wakeup = self.router.next_wakeup();
        assert!(wakeup.is_some_and(|at| at <= end), "nobody will end the wait of {call:?}");
        let is_resting = rest_ends.is_some_and(|end| self.now < end);
        let has_match = |replica: &Replica| self.has_room(replica) && has_model(replica, call);
        assert!(
            is_resting || !self.replicas.values().any(has_match),
            "{call:?} waits at {} beside room and its model: {:?}",
            self.now,
            self.replicas
        );
    }

    /// The router's counts equal the model's.
    pub(super) fn check_counts(&self) {
        let stats = self.router.stats();
        let counted = Ends {
            offered: stats.offered,
            sent: stats.sent,
            completed: stats.completed,
            refused_by_queue: stats.refused_by_queue,
            expired: stats.expired,
            unreachable: stats.unreachable,
            abandoned: stats.abandoned,
        };
        assert_eq!(self.ends, counted);
        assert_eq!(self.sent.len() as u64, stats.in_flight);
        assert_eq!(self.parked.len() as u64, stats.parked);
        self.check_measures();
        if !self.may_hold() {
            assert!(stats.parked <= u64::from(self.config.queue_len_max));
        }
        assert_eq!((0, 0), (stats.stale_tickets, stats.stale_waiters));
        let expected: Vec<_> = self
            .replicas
            .iter()
            .map(|(id, r)| (*id, r.is_member, r.capacity, r.in_flight))
            .collect();
        let counted: Vec<_> =
            stats.replicas.iter().map(|r| (r.id, r.is_member, r.capacity, r.in_flight)).collect();
        assert_eq!(expected, counted);
    }

    /// There are as many recorded times as there were calls, attempts and waits.
    fn check_measures(&self) {
        let (stats, measures) = (self.router.stats(), self.router.measures());
        let over = stats.completed + stats.refused_by_queue + stats.expired + stats.unreachable;
        let timed = measures.answered.count() + measures.failed.count() + stats.cancelled;
        assert!((over..=over + stats.abandoned).contains(&timed), "{timed} of {stats:?}");
        assert_eq!(self.released, measures.releases.iter().sum::<u64>());
        assert_eq!(stats.sent, measures.sent_by_tier.iter().sum::<u64>());
        assert!(measures.waits.count() >= self.released + stats.abandoned);
        assert_eq!(stats.replicas.len(), measures.replicas.len());
    }

    /// The policy may let calls wait for a better replica although others have room.
    pub(super) fn may_hold(&self) -> bool {
        matches!(self.config.policy, PolicyKind::Predicted | PolicyKind::LateBinding)
    }

    fn spare(&self) -> u64 {
        let room = |replica: &Replica| u64::from(replica.capacity - replica.in_flight);
        self.replicas.values().filter(|replica| self.has_room(replica)).map(room).sum()
    }

    pub(super) fn has_room_anywhere(&self) -> bool {
        self.replicas.values().any(|replica| self.has_room(replica))
    }

    fn has_room(&self, replica: &Replica) -> bool {
        replica.is_member
            && replica.in_flight < replica.capacity
            && replica.backoff_until <= self.now
    }

    /// No replica that the call may still try has room, unless the router's tick is overdue.
    fn check_nowhere_to_go(&self, call: &Call) {
        let due = self.router.next_wakeup().is_some_and(|wakeup| wakeup <= self.now);
        let enough =
            !call.tried.is_empty() && call.tried.len() >= usize::from(self.config.refusals_max);
        if due || enough || self.may_hold() {
            return;
        }
        let is_patient = call.model != 0
            && self.now < call.arrival.saturating_add(self.config.model_wait_max)
            && (self.parked.len() as u64) < u64::from(self.config.queue_len_max);
        for (id, replica) in &self.replicas {
            let may_pass = call.tried.contains(id) || is_patient && !has_model(replica, call);
            assert!(
                may_pass || !self.has_room(replica),
                "{call:?} was turned away, although {id:?} has room: {replica:?}"
            );
        }
    }

    fn is_late(&self, call: &Call) -> bool {
        call.deadline.is_some_and(|deadline| deadline <= self.now)
    }
}

fn has_model(replica: &Replica, call: &Call) -> bool {
    replica.models.contains(&call.model)
}

/// The order of parked calls: deadline, or arrival plus five seconds if that is earlier.
fn turn(call: &Call) -> (Nanos, u64) {
    let horizon = call.arrival.saturating_add(Nanos::from_secs(5));
    (call.deadline.map_or(horizon, |deadline| deadline.min(horizon)), call.sequence)
}
