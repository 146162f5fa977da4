//! A discrete-event world around routers and gates.

mod report;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(crate) use report::{Report, seed};
use router_core::{
    Decision, Gate, Nanos, Offer, Outcome, Policy, PolicyKind, Refusal, Release, ReplicaId,
    ReplicaSpec, Router, RouterConfig, SplitMix64, Ticket, Tier, WaiterId,
};

/// Mean of the exponential service time; its scale does not matter.
const SERVICE_MEAN_MS: f64 = 10.0;
/// One way through the network; arbitrary, 1 % of the service time.
const NETWORK: Nanos = Nanos::from_micros(100);
/// The membership learns of a crash after this time; arbitrary.
const CRASH_SEEN_AFTER: Nanos = Nanos::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A replica works on one call after the other.
    Serial,
    /// A replica works on all its calls at once.
    Parallel,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) routers: usize,
    pub(crate) replicas: usize,
    pub(crate) gate_limit: Option<u32>,
    pub(crate) work: Work,
    /// Arriving work over what the replicas can do.
    pub(crate) load: f64,
    pub(crate) calls: u64,
    pub(crate) cancelled_of_100: u32,
    /// Every third call has it.
    pub(crate) deadline_ms: Option<u64>,
    /// A replica dies when half of the calls are offered; another takes its place later.
    pub(crate) crash: bool,
    pub(crate) queue_len_max: u32,
    pub(crate) policy: fn() -> Box<dyn Policy>,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Offer,
    AtGate { call: u64, attempt: u32 },
    Served { call: u64, attempt: u32 },
    Answered { call: u64, attempt: u32, answer: Answer },
    CallerGone { call: u64 },
    Announce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Done,
    Refused,
    ConnectFailed,
    Failed,
}

#[derive(Debug)]
struct Call {
    router: usize,
    offered_at: Nanos,
    /// Counts sends, so that events of an earlier send are recognised.
    attempt: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Nowhere,
    Parked(WaiterId),
    Sent { ticket: Ticket, replica: ReplicaId, is_inside: bool },
}

struct Replica {
    gate: Gate,
    is_alive: bool,
    busy_until: Nanos,
}

pub(crate) struct Simulator {
    world: World,
    rng: SplitMix64,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    routers: Vec<Router>,
    members: Vec<ReplicaId>,
    replicas: BTreeMap<ReplicaId, Replica>,
    calls: BTreeMap<u64, Call>,
    report: Report,
}

impl Simulator {
    pub(crate) fn new(world: World) -> Self {
        let config = |seed| RouterConfig {
            queue_len_max: world.queue_len_max,
            refusals_max: 3,
            backoff_initial: Nanos::from_millis(25),
            backoff_max: Nanos::from_millis(500),
            model_wait_max: Nanos::from_secs(1),
            promise_max: Nanos::from_secs(10),
            policy: PolicyKind::P2c,
            seed,
            ..RouterConfig::default()
        };
        let routers = (0..world.routers as u64)
            .map(|index| Router::with_policy(config(world.seed + index), (world.policy)()))
            .collect();
        Self {
            rng: SplitMix64::new(world.seed),
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            routers,
            members: (0..world.replicas as u64).map(ReplicaId).collect(),
            replicas: BTreeMap::new(),
            calls: BTreeMap::new(),
            report: Report::default(),
            world,
        }
    }

    /// Runs until nothing is left to happen, and checks that nobody was forgotten.
    pub(crate) fn run(mut self) -> Report {
        self.announce();
        self.schedule(Nanos::ZERO, Event::Offer);
        while let Some(at) = self.next_time() {
            self.now = self.now.max(at);
            self.tick_who_asked();
            while let Some(event) = self.pop_due() {
                self.happen(event);
            }
        }
        assert!(self.calls.is_empty(), "calls without an end: {:?}", self.calls);
        for router in &self.routers {
            let stats = router.stats();
            assert_eq!((0, 0), (stats.in_flight, stats.parked), "{stats:?}");
        }
        let inside = self.replicas.values().filter(|replica| replica.gate.in_flight() > 0).count();
        assert_eq!(0, inside, "gates with calls that nobody makes");
        let places = f64::from(self.world.gate_limit.unwrap_or(1)) * self.world.replicas as f64;
        self.report.busy = self.report.work_ms / places / (self.now.0 as f64 / 1e6);
        self.report.mean_ms /= self.report.done.max(1) as f64;
        self.report.refusals = self.routers.iter().map(|router| router.stats().refusals).sum();
        self.report
    }

    fn next_time(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, _, _))| *at);
        let wakeups = self.routers.iter().filter_map(Router::next_wakeup);
        wakeups.chain(event).min()
    }

    fn tick_who_asked(&mut self) {
        for index in 0..self.routers.len() {
            let router = &mut self.routers[index];
            if router.next_wakeup().is_some_and(|at| at <= self.now) {
                let mut released = Vec::new();
                router.tick(self.now, &mut released);
                self.follow(index, &released);
            }
        }
    }

    fn pop_due(&mut self) -> Option<Event> {
        let Reverse((at, _, _)) = self.events.peek()?;
        if *at > self.now {
            return None;
        }
        self.events.pop().map(|Reverse((_, _, event))| event)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Offer => self.offer(),
            Event::AtGate { call, attempt } => self.at_gate(call, attempt),
            Event::Served { call, attempt } => self.served(call, attempt),
            Event::Answered { call, attempt, answer } => self.answered(call, attempt, answer),
            Event::CallerGone { call } => self.caller_gone(call),
            Event::Announce => self.announce(),
        }
    }

    // === what happens ===

    fn offer(&mut self) {
        let id = self.report.offered;
        self.report.offered += 1;
        if id + 1 < self.world.calls {
            let places = match self.world.work {
                Work::Serial => 1,
                Work::Parallel => self.world.gate_limit.expect("parallel work needs a limit"),
            };
            let capacity = self.world.replicas as f64 * f64::from(places) / SERVICE_MEAN_MS;
            let pause = self.exponential(1.0 / (self.world.load * capacity));
            self.schedule(pause, Event::Offer);
        }
        if self.world.crash && id == self.world.calls / 2 {
            self.crash();
        }
        if self.rng.below(100) < self.world.cancelled_of_100 {
            let patience = self.exponential(SERVICE_MEAN_MS);
            self.schedule(patience, Event::CallerGone { call: id });
        }
        let router = id as usize % self.world.routers;
        let offered_at = self.now;
        self.calls.insert(id, Call { router, offered_at, attempt: 0, place: Place::Nowhere });
        let deadline = self.world.deadline_ms.filter(|_| id % 3 == 0);
        let deadline = deadline.map(|ms| self.now.saturating_add(Nanos::from_millis(ms)));
        let decision = self.routers[router].offer(Offer { deadline, ..Offer::default() }, self.now);
        self.decided(id, decision);
    }

    fn at_gate(&mut self, id: u64, attempt: u32) {
        let Some(replica_id) = self.place_of(id, attempt) else {
            return;
        };
        let service = self.exponential(SERVICE_MEAN_MS);
        let replica = self.replicas.get_mut(&replica_id).expect("replicas are never removed");
        if !replica.is_alive {
            return self.answer(id, attempt, Answer::ConnectFailed);
        }
        let Ok(admission) = replica.gate.try_enter(1) else {
            return self.answer(id, attempt, Answer::Refused);
        };
        let starts_at = match self.world.work {
            Work::Serial => replica.busy_until.max(self.now),
            Work::Parallel => self.now,
        };
        replica.busy_until = starts_at.saturating_add(service);
        let wait = replica.busy_until.saturating_sub(self.now);
        self.report.gate_max = self.report.gate_max.max(admission.load.in_flight);
        self.report.work_ms += service.0 as f64 / 1e6;
        if let Some(Place::Sent { is_inside, .. }) =
            self.calls.get_mut(&id).map(|call| &mut call.place)
        {
            *is_inside = true;
        }
        self.schedule(wait, Event::Served { call: id, attempt });
    }

    fn served(&mut self, id: u64, attempt: u32) {
        if self.place_of(id, attempt).is_some() {
            self.leave_gate(id);
            self.answer(id, attempt, Answer::Done);
        }
    }

    fn answered(&mut self, id: u64, attempt: u32, answer: Answer) {
        if self.place_of(id, attempt).is_none() {
            return;
        }
        match answer {
            Answer::Done => {
                let took = self.now.saturating_sub(self.calls[&id].offered_at);
                self.report.mean_ms += took.0 as f64 / 1e6;
                self.report.done += 1;
                self.complete(id, Outcome::done(None));
            }
            Answer::Failed => {
                self.report.failed += 1;
                self.complete(id, Outcome::Failed);
            }
            Answer::Refused => self.reoffer(id, Outcome::Refused { load: None }),
            Answer::ConnectFailed => self.reoffer(id, Outcome::ConnectFailed),
        }
    }

    fn caller_gone(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        self.report.cancelled += 1;
        match call.place {
            Place::Parked(waiter) => {
                self.routers[call.router].abandon(waiter, self.now);
                self.calls.remove(&id);
            }
            Place::Sent { .. } => {
                self.leave_gate(id);
                self.complete(id, Outcome::Cancelled);
            }
            Place::Nowhere => unreachable!("an offered call is somewhere"),
        }
    }

    fn crash(&mut self) {
        let dead = self.members[0];
        self.replicas.get_mut(&dead).expect("a member is known").is_alive = false;
        let victims: Vec<(u64, u32)> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                matches!(call.place, Place::Sent { replica, is_inside: true, .. } if replica == dead)
            })
            .map(|(id, call)| (*id, call.attempt))
            .collect();
        for (id, attempt) in victims {
            self.leave_gate(id);
            self.answer(id, attempt, Answer::Failed);
        }
        self.members[0] = ReplicaId(self.replicas.len() as u64);
        self.schedule(CRASH_SEEN_AFTER, Event::Announce);
    }

    fn announce(&mut self) {
        let limit = self.world.gate_limit;
        for id in &self.members {
            self.replicas.entry(*id).or_insert_with(|| Replica {
                gate: Gate::new(limit, 0),
                is_alive: true,
                busy_until: Nanos::ZERO,
            });
        }
        let capacity = limit.unwrap_or(u32::MAX);
        let spec = |id: &ReplicaId| ReplicaSpec { id: *id, tier: Tier::Any, capacity };
        let specs: Vec<ReplicaSpec> = self.members.iter().map(spec).collect();
        for index in 0..self.routers.len() {
            let mut released = Vec::new();
            self.routers[index].apply(&specs, self.now, &mut released);
            self.follow(index, &released);
        }
    }

    // === the driver's part ===

    fn complete(&mut self, id: u64, outcome: Outcome) {
        let call = self.calls.remove(&id).expect("the call is open");
        let Place::Sent { ticket, .. } = call.place else {
            panic!("{call:?} is not in flight");
        };
        let mut released = Vec::new();
        self.routers[call.router].complete(ticket, outcome, self.now, &mut released);
        self.follow(call.router, &released);
    }

    fn reoffer(&mut self, id: u64, outcome: Outcome) {
        let call = &self.calls[&id];
        let router = call.router;
        let Place::Sent { ticket, .. } = call.place else {
            panic!("{call:?} is not in flight");
        };
        let mut released = Vec::new();
        let decision = self.routers[router].reoffer(ticket, outcome, self.now, &mut released);
        self.follow(router, &released);
        self.decided(id, decision);
    }

    /// A waiter's number has a meaning only beside the router that gave it.
    fn follow(&mut self, router: usize, released: &[Release]) {
        for release in released {
            let (Release::Send { waiter, .. } | Release::Expired { waiter }) = *release;
            let is_parked = |call: &Call| {
                call.router == router && matches!(call.place, Place::Parked(w) if w == waiter)
            };
            let found = self.calls.iter().find(|(_, call)| is_parked(call));
            let id = *found.expect("a release names a parked call").0;
            match *release {
                Release::Send { assignment, .. } => self.decided(id, Decision::Send(assignment)),
                Release::Expired { .. } => {
                    self.decided(id, Decision::Refused(Refusal::Expired));
                }
            }
        }
    }

    fn decided(&mut self, id: u64, decision: Decision) {
        let call = self.calls.get_mut(&id).expect("the call is open");
        call.attempt += 1;
        match decision {
            Decision::Send(assignment) => {
                let (ticket, replica) = (assignment.ticket, assignment.replica);
                call.place = Place::Sent { ticket, replica, is_inside: false };
                let (router, attempt) = (call.router, call.attempt);
                self.count_in_flight(router, replica);
                self.schedule(NETWORK, Event::AtGate { call: id, attempt });
            }
            Decision::Parked(waiter) => call.place = Place::Parked(waiter),
            Decision::Refused(refusal) => {
                match refusal {
                    Refusal::Expired => self.report.late += 1,
                    Refusal::QueueFull { .. } => self.report.queue_full += 1,
                }
                self.calls.remove(&id);
            }
        }
    }

    fn count_in_flight(&mut self, router: usize, replica: ReplicaId) {
        let stats = self.routers[router].stats();
        let counted = stats.replicas.iter().find(|counted| counted.id == replica);
        let in_flight = counted.expect("the router knows where it sends").in_flight;
        self.report.in_flight_max = self.report.in_flight_max.max(in_flight);
    }

    // === small things ===

    /// Where the call is, if it still is on this send.
    fn place_of(&self, id: u64, attempt: u32) -> Option<ReplicaId> {
        let call = self.calls.get(&id).filter(|call| call.attempt == attempt)?;
        match call.place {
            Place::Sent { replica, .. } => Some(replica),
            Place::Parked(_) | Place::Nowhere => None,
        }
    }

    fn leave_gate(&mut self, id: u64) {
        let call = self.calls.get_mut(&id).expect("the call is open");
        if let Place::Sent { replica, is_inside, .. } = &mut call.place {
            if std::mem::take(is_inside) {
                self.replicas.get_mut(replica).expect("a known replica").gate.leave(1);
            }
        }
    }

    fn answer(&mut self, call: u64, attempt: u32, answer: Answer) {
        self.schedule(NETWORK, Event::Answered { call, attempt, answer });
    }

    fn schedule(&mut self, after: Nanos, event: Event) {
        self.scheduled += 1;
        let at = self.now.saturating_add(after);
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    fn exponential(&mut self, mean_ms: f64) -> Nanos {
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        Nanos((-(1.0 - uniform).ln() * mean_ms * 1e6) as u64)
    }
}
