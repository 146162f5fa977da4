//! The rules of the router, written a second time and slowly: what it may do, not what it does.
//!
//! The model keeps no order of its own and makes no choice. It knows where every call is, follows
//! each answer of the router, and panics when an answer breaks a rule.

mod rules;

use std::collections::{BTreeMap, BTreeSet};

use router_core::{
    Assignment, Decision, Nanos, Offer, Outcome, Refusal, Release, ReplicaId, ReplicaSpec, Router,
    RouterConfig, RouterStats, Ticket, Tier, WaiterId,
};

/// One step; `nth` counts modulo what there is, so that every step of every sequence has a meaning.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// `model` 0: none.
    Offer {
        deadline_ms: Option<u64>,
        model: u8,
    },
    Pin {
        nth: usize,
        model: u8,
    },
    Models {
        nth: usize,
        models: BTreeSet<u8>,
    },
    Complete {
        nth: usize,
        outcome: OutcomeKind,
    },
    Reoffer {
        nth: usize,
        refused: bool,
    },
    Abandon {
        nth: usize,
    },
    Apply {
        replicas: BTreeMap<u64, u32>,
    },
    Advance {
        millis: u64,
    },
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    Done,
    Refused,
    ConnectFailed,
    Failed,
    Cancelled,
}

/// One call as the driver sees it.
#[derive(Clone, Debug)]
struct Call {
    arrival: Nanos,
    sequence: u64,
    deadline: Option<Nanos>,
    model: u8,
    /// The replicas that were tried in vain since it was offered or last parked.
    tried: BTreeSet<ReplicaId>,
    /// When it was last parked by a refusal, with other replicas left to try.
    rests_since: Option<Nanos>,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    is_member: bool,
    /// The last attempt failed to connect.
    is_unreached: bool,
    capacity: u32,
    in_flight: u32,
    backoff_rounds: u32,
    backoff_until: Nanos,
    /// Its last report.
    models: BTreeSet<u8>,
}

/// How calls ended; each count must equal the router's.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    offered: u64,
    sent: u64,
    completed: u64,
    refused_by_queue: u64,
    expired: u64,
    unreachable: u64,
    abandoned: u64,
}

pub(crate) struct Model {
    router: Router,
    config: RouterConfig,
    now: Nanos,
    sent: BTreeMap<Ticket, (Call, ReplicaId)>,
    parked: BTreeMap<WaiterId, Call>,
    replicas: BTreeMap<ReplicaId, Replica>,
    ends: Ends,
    /// Calls that were parked and then sent.
    pub(crate) released: u64,
    /// Calls that parked although a replica had room.
    pub(crate) rests: u64,
    /// Calls that parked because of their model although a replica had room.
    pub(crate) faithful: u64,
    /// Calls with a model that went where the model had been reported.
    pub(crate) matched: u64,
}

impl Model {
    pub(crate) fn new(config: RouterConfig) -> Self {
        Self {
            router: Router::new(config),
            config,
            now: Nanos::ZERO,
            sent: BTreeMap::new(),
            parked: BTreeMap::new(),
            replicas: BTreeMap::new(),
            ends: Ends::default(),
            released: 0,
            rests: 0,
            faithful: 0,
            matched: 0,
        }
    }

    pub(crate) fn stats(&self) -> RouterStats {
        self.router.stats()
    }

    pub(crate) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Offer { deadline_ms, model } => self.offer(deadline_ms, model),
            Operation::Pin { nth, model } => self.pin(nth, model),
            Operation::Models { nth, models } => self.models(nth, models),
            Operation::Complete { nth, outcome } => self.complete(nth, outcome),
            Operation::Reoffer { nth, refused } => self.reoffer(nth, refused),
            Operation::Abandon { nth } => self.abandon(nth),
            Operation::Apply { replicas } => self.snapshot(&replicas),
            Operation::Advance { millis } => {
                self.now = self.now.saturating_add(Nanos::from_millis(millis));
            }
            Operation::Tick => self.tick(),
        }
        self.check_counts();
        self.check_nobody_waits_beside_room();
    }

    /// Ends everything as a driver would, and expects that nothing is left.
    pub(crate) fn drain(&mut self) {
        for _ in 0..10_000 {
            if let Some(wakeup) = self.router.next_wakeup() {
                self.now = self.now.max(wakeup);
                self.apply(Operation::Tick);
            } else if !self.sent.is_empty() {
                self.apply(Operation::Complete { nth: 0, outcome: OutcomeKind::Done });
            } else if !self.parked.is_empty() {
                self.apply(Operation::Apply { replicas: BTreeMap::from([(0, 1)]) });
            } else {
                break;
            }
        }
        self.snapshot(&BTreeMap::new());
        let stats = self.router.stats();
        assert_eq!((0, 0, None), (stats.in_flight, stats.parked, self.router.next_wakeup()));
        assert!(stats.replicas.is_empty(), "replicas are left: {:?}", stats.replicas);
        let ends = &self.ends;
        let refused = ends.refused_by_queue + ends.expired + ends.unreachable;
        let ended = ends.completed + refused + ends.abandoned;
        assert_eq!(ends.offered, ended, "every call ends exactly once");
    }

    fn offer(&mut self, deadline_ms: Option<u64>, model: u8) {
        let deadline = deadline_ms.map(|ms| self.now.saturating_add(Nanos::from_millis(ms)));
        let call = self.new_call(deadline, model);
        let decision = self
            .router
            .offer(Offer { deadline, model: &name_of(model), ..Offer::default() }, self.now);
        self.follow(call, decision);
    }

    fn new_call(&mut self, deadline: Option<Nanos>, model: u8) -> Call {
        self.ends.offered += 1;
        Call {
            arrival: self.now,
            sequence: self.ends.offered,
            deadline,
            model,
            tried: BTreeSet::new(),
            rests_since: None,
        }
    }

    /// Any member is allowed, however full; non-members are not.
    fn pin(&mut self, nth: usize, model: u8) {
        let Some(id) = nth_key(&self.replicas, nth) else {
            return;
        };
        let is_member = self.replicas[&id].is_member;
        let offer = Offer { model: &name_of(model), ..Offer::default() };
        let assignment = self.router.pin(id, offer, self.now);
        assert_eq!(is_member.then_some(id), assignment.map(|assignment| assignment.replica));
        if let Some(assignment) = assignment {
            let call = self.new_call(None, model);
            self.place(call, assignment);
        }
    }

    fn models(&mut self, nth: usize, models: BTreeSet<u8>) {
        let Some(id) = nth_key(&self.replicas, nth) else {
            return;
        };
        let names: Vec<String> = models.iter().map(|model| name_of(*model)).collect();
        let mut released = Vec::new();
        if self.replicas[&id].is_member {
            self.replicas.get_mut(&id).expect("just looked up").models = models;
        }
        self.router.models(id, &names, self.now, &mut released);
        self.follow_releases(&released);
        if self.replicas[&id].is_member {
            assert_eq!(names, self.router.models_of(id));
        }
    }

    fn complete(&mut self, nth: usize, outcome: OutcomeKind) {
        let Some(ticket) = nth_key(&self.sent, nth) else {
            return;
        };
        self.end(ticket, outcome);
        self.ends.completed += 1;
        let mut released = Vec::new();
        self.router.complete(ticket, outcome_of(outcome), self.now, &mut released);
        self.follow_releases(&released);
    }

    fn reoffer(&mut self, nth: usize, refused: bool) {
        let Some(ticket) = nth_key(&self.sent, nth) else {
            return;
        };
        let outcome = if refused { OutcomeKind::Refused } else { OutcomeKind::ConnectFailed };
        let (mut call, replica) = self.end(ticket, outcome);
        call.tried.insert(replica);
        let mut released = Vec::new();
        let decision = self.router.reoffer(ticket, outcome_of(outcome), self.now, &mut released);
        self.follow_releases(&released);
        self.follow(call, decision);
    }

    fn abandon(&mut self, nth: usize) {
        let Some(waiter) = nth_key(&self.parked, nth) else {
            return;
        };
        self.parked.remove(&waiter);
        self.ends.abandoned += 1;
        self.router.abandon(waiter, self.now);
    }

    fn snapshot(&mut self, replicas: &BTreeMap<u64, u32>) {
        let specs: Vec<ReplicaSpec> = replicas
            .iter()
            .map(|(id, capacity)| ReplicaSpec {
                id: ReplicaId(*id),
                tier: Tier::Any,
                capacity: *capacity,
            })
            .collect();
        let mut has_grown = false;
        for spec in &specs {
            let known = self.replicas.get(&spec.id).filter(|replica| replica.is_member);
            has_grown |= known.is_none_or(|replica| replica.capacity < spec.capacity);
        }
        self.replicas.values_mut().for_each(|replica| replica.is_member = false);
        for spec in &specs {
            let replica = self.replicas.entry(spec.id).or_default();
            replica.is_member = true;
            replica.capacity = spec.capacity;
        }
        for replica in self.replicas.values_mut().filter(|replica| !replica.is_member) {
            replica.models.clear();
        }
        self.forget_gone_replicas();
        let mut released = Vec::new();
        self.router.apply(&specs, self.now, &mut released);
        self.follow_releases(&released);
        if has_grown && !self.may_hold() {
            assert!(
                self.parked.values().all(|call| call.model != 0) || !self.has_room_anywhere(),
                "the fleet has grown, and {:?} still wait beside room",
                self.parked
            );
        }
    }

    fn tick(&mut self) {
        let mut released = Vec::new();
        self.router.tick(self.now, &mut released);
        self.follow_releases(&released);
        assert!(
            self.router.next_wakeup().is_none_or(|wakeup| wakeup > self.now),
            "a tick leaves nothing due at {}",
            self.now
        );
    }

    /// Takes a call off its replica, and records what that proves about the replica.
    fn end(&mut self, ticket: Ticket, outcome: OutcomeKind) -> (Call, ReplicaId) {
        let (call, id) = self.sent.remove(&ticket).expect("the ticket is in flight");
        let replica = self.replicas.get_mut(&id).expect("a replica with calls is known");
        replica.in_flight -= 1;
        match outcome {
            OutcomeKind::ConnectFailed => replica.is_unreached = true,
            OutcomeKind::Done | OutcomeKind::Refused | OutcomeKind::Failed => {
                replica.is_unreached = false;
            }
            OutcomeKind::Cancelled => {}
        }
        match outcome {
            OutcomeKind::Done => {
                replica.backoff_rounds = 0;
                replica.backoff_until = Nanos::ZERO;
            }
            OutcomeKind::Refused | OutcomeKind::ConnectFailed
                if replica.backoff_until <= self.now =>
            {
                let wait = (25_u64 << replica.backoff_rounds.min(10)).min(500);
                replica.backoff_rounds += 1;
                replica.backoff_until = self.now.saturating_add(Nanos::from_millis(wait));
            }
            _ => {}
        }
        self.forget_gone_replicas();
        (call, id)
    }

    fn forget_gone_replicas(&mut self) {
        self.replicas.retain(|_, replica| replica.is_member || replica.in_flight > 0);
    }

    fn follow(&mut self, call: Call, decision: Decision) {
        match decision {
            Decision::Send(assignment) => self.follow_send(call, assignment),
            Decision::Parked(waiter) => self.follow_park(call, waiter),
            Decision::Refused(Refusal::Spent) => panic!("only a retry is refused so"),
            Decision::Refused(Refusal::Expired) => {
                self.check_late(&call);
                self.ends.expired += 1;
            }
            Decision::Refused(Refusal::TooLate { .. }) => {
                self.check_too_late(&call);
                self.ends.refused_by_queue += 1;
            }
            Decision::Refused(Refusal::QueueFull { limit }) => {
                self.check_queue_full(&call, limit);
                self.ends.refused_by_queue += 1;
            }
            Decision::Refused(Refusal::QueueCostFull { .. }) => panic!("no cost is limited"),
        }
    }

    fn follow_send(&mut self, call: Call, assignment: Assignment) {
        self.check_send(&call, assignment.replica);
        self.place(call, assignment);
    }

    fn place(&mut self, call: Call, assignment: Assignment) {
        let replica = self.replicas.get_mut(&assignment.replica).expect("checked above");
        replica.in_flight += 1;
        self.matched += u64::from(replica.models.contains(&call.model));
        self.ends.sent += 1;
        let doubled = self.sent.insert(assignment.ticket, (call, assignment.replica));
        assert!(doubled.is_none(), "{:?} is in use", assignment.ticket);
    }

    fn follow_park(&mut self, mut call: Call, waiter: WaiterId) {
        self.check_park(&call);
        call.rests_since = (!call.tried.is_empty()).then_some(self.now);
        self.rests += u64::from(self.has_room_anywhere() && call.model == 0);
        self.faithful += u64::from(self.has_room_anywhere() && call.model != 0);
        call.tried.clear();
        let doubled = self.parked.insert(waiter, call);
        assert!(doubled.is_none(), "{waiter:?} is in use");
    }

    fn follow_releases(&mut self, released: &[Release]) {
        let mut sent: Vec<Call> = Vec::new();
        for release in released {
            let (Release::Send { waiter, .. }
            | Release::Expired { waiter }
            | Release::Unreachable { waiter }) = *release;
            let call = self.parked.remove(&waiter).expect("a release names a parked call");
            match *release {
                Release::Send { assignment, .. } => {
                    sent.push(call.clone());
                    self.released += 1;
                    self.follow_send(Call { rests_since: None, ..call }, assignment);
                }
                Release::Expired { .. } => {
                    self.check_late(&call);
                    self.ends.expired += 1;
                }
                Release::Unreachable { .. } => {
                    self.check_unreachable(&call);
                    self.ends.unreachable += 1;
                }
            }
        }
        self.check_order(&sent);
    }
}

/// The model's id; 0 stands for none.
fn name_of(model: u8) -> String {
    if model == 0 { String::new() } else { format!("m{model}") }
}

fn nth_key<K: Copy + Ord, V>(map: &BTreeMap<K, V>, nth: usize) -> Option<K> {
    map.keys().nth(nth.checked_rem(map.len())?).copied()
}

fn outcome_of(kind: OutcomeKind) -> Outcome {
    match kind {
        OutcomeKind::Done => Outcome::done(None),
        OutcomeKind::Refused => Outcome::Refused { load: None },
        OutcomeKind::ConnectFailed => Outcome::ConnectFailed,
        OutcomeKind::Failed => Outcome::Failed,
        OutcomeKind::Cancelled => Outcome::Cancelled,
    }
}
