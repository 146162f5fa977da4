//! The shipping router as a system: one or several, each call at one of them, with checkers.

use std::collections::{BTreeMap, BTreeSet};

use router_core::{
    CacheChange, CostLoad, Decision, LeaseRequest, Load, Locality, Nanos, Offer, Outcome, Policy,
    PolicyKind, Refusal, Release, ReplicaId, ReplicaSpec, RetryConfig, Router, RouterConfig,
    Ticket, WaiterId,
};

use super::desk::{BUDGET_PERCENT, Desk, RetryBudget, WATCHED};
use super::field::{Field, Latencies, Peak};
use super::log::End;
use super::scenario::Scenario;
use super::system::{Answer, Move, System};
use super::traffic::Wants;

/// The names of methods, by their numbers.
const METHODS: [&str; 3] = ["/sim/One", "/sim/Two", "/sim/Three"];

#[derive(Clone, Copy, Debug)]
enum Place {
    Undecided,
    Parked(WaiterId),
    Sent(Ticket, ReplicaId),
}

#[derive(Debug)]
struct Open {
    router: usize,
    offered_at: Nanos,
    /// When it was offered, or came back last: it may rest then, and others go first.
    waits_since: Nanos,
    sent_at: Nanos,
    place: Place,
}

pub(crate) struct Routers {
    desks: Vec<Desk>,
    calls: BTreeMap<u32, Open>,
    names: Vec<String>,
    what_keys_are: Keys,
    all_alike: bool,
    /// What each replica has reported.
    reported: BTreeMap<ReplicaId, BTreeSet<u32>>,
    capacity: u32,
    queue_len_max: u32,
    released: Vec<Release>,
    wanted: Vec<LeaseRequest>,
    pub(crate) in_flight_max: u32,
    hears_costs: bool,
}

/// The information that routers get about a call's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Nothing,
    Models,
    Sessions,
    /// Cache entries, which replicas report.
    Entries,
}

/// The entry with which all prompts begin, where they do.
const COMMON: u64 = u64::MAX;

fn entry(key: u32) -> u64 {
    u64::from(key) + 1
}

impl Routers {
    pub(crate) fn new(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Self {
        Self::of(scenario, seed, |config, _| Router::new(RouterConfig { policy, ..config }))
    }

    /// With a policy from outside.
    pub(crate) fn with_policy(
        scenario: &Scenario,
        seed: u64,
        policy: fn() -> Box<dyn Policy>,
    ) -> Self {
        Self::of(scenario, seed, |config, _| Router::with_policy(config, policy()))
    }

    pub(crate) fn with_field(scenario: &Scenario, field: Field, seed: u64) -> Self {
        Self::of(scenario, seed, |config, latencies| {
            Router::with_policy(config, field.policy(latencies))
        })
    }

    fn of(
        scenario: &Scenario,
        seed: u64,
        make: impl Fn(RouterConfig, &Latencies) -> Router,
    ) -> Self {
        let near = scenario.prefer_near;
        let config = |index: u64| RouterConfig {
            queue_len_max: scenario.queue_len_max,
            locality: Locality { prefer_node: near, prefer_zone: near },
            load_bound: scenario.load_bound,
            retries: RetryConfig {
                attempts_max: scenario.attempts_max,
                budget_percent: BUDGET_PERCENT,
            },
            seed: seed.wrapping_mul(1_000).wrapping_add(index),
            ..RouterConfig::default()
        };
        let desk = |index| {
            let latencies = Latencies::default();
            Desk {
                router: make(config(index), &latencies),
                latencies,
                parked: BTreeMap::new(),
                patient: BTreeSet::new(),
                in_flight: BTreeMap::new(),
                asked: BTreeSet::new(),
                offered: 0,
                completed: 0,
                budget: RetryBudget::default(),
                watched_until: Nanos::ZERO,
                sends: 0,
            }
        };
        Self {
            desks: (0..scenario.routers as u64).map(desk).collect(),
            calls: BTreeMap::new(),
            names: (0..scenario.models.max(scenario.sessions))
                .map(|key| {
                    if scenario.fresh_names { format!("k{key}/{seed}") } else { format!("k{key}") }
                })
                .collect(),
            what_keys_are: match (scenario.models, scenario.sessions) {
                (0, 0) => Keys::Nothing,
                (0, _) if scenario.tells_keys => Keys::Entries,
                (0, _) => Keys::Sessions,
                _ => Keys::Models,
            },
            all_alike: scenario.alike,
            reported: BTreeMap::new(),
            capacity: scenario.capacity(),
            queue_len_max: scenario.queue_len_max,
            released: Vec::new(),
            wanted: Vec::new(),
            in_flight_max: 0,
            hears_costs: true,
        }
    }

    /// Tells routers nothing of what calls cost.
    pub(crate) fn counting(self) -> Self {
        Self { hears_costs: false, ..self }
    }

    /// Tells routers nothing of models and sessions.
    pub(crate) fn blind(self) -> Self {
        Self { what_keys_are: Keys::Nothing, ..self }
    }

    /// Tells all routers the difference to what the replica had before.
    fn entries(&mut self, replica: ReplicaId, keys: &[u32], now: Nanos, moves: &mut Vec<Move>) {
        let has: BTreeSet<u32> = keys.iter().copied().collect();
        let had = self.reported.insert(replica, has.clone()).unwrap_or_default();
        let parent = if self.all_alike { COMMON } else { 0 };
        let gone = had.difference(&has).map(|key| CacheChange::Removed { key: entry(*key) });
        let new = has.difference(&had).map(|key| CacheChange::Stored { key: entry(*key), parent });
        let mut changes: Vec<CacheChange> = gone.chain(new).collect();
        if self.all_alike && had.is_empty() {
            changes.insert(0, CacheChange::Stored { key: COMMON, parent: 0 });
        }
        for router in 0..self.desks.len() {
            let desk = &mut self.desks[router].router;
            desk.caches(replica, (false, &changes), now, &mut self.released);
            self.follow(router, now, moves);
        }
    }

    /// Does what a router decided about a call that is in no place now.
    fn decided(&mut self, call: u32, decision: Decision, now: Nanos, moves: &mut Vec<Move>) {
        let open = self.calls.get_mut(&call).expect("the call is open");
        let desk = &mut self.desks[open.router];
        match decision {
            Decision::Send(assignment) => {
                let (replica, is_leased) = (assignment.replica, assignment.is_leased);
                open.place = Place::Sent(assignment.ticket, replica);
                open.sent_at = now;
                let in_flight = desk.sent(replica, is_leased, now);
                assert!(in_flight <= self.capacity, "{replica:?} has {in_flight} calls");
                self.in_flight_max = self.in_flight_max.max(in_flight);
                moves.push(Move::Send { call, replica, is_leased });
            }
            Decision::Parked(waiter) => {
                open.place = Place::Parked(waiter);
                desk.parked.insert(waiter, call);
                if self.what_keys_are != Keys::Models {
                    desk.patient.insert((open.waits_since, call));
                }
                // Calls held back for a better replica do not count, but have their bound too.
                let places = u64::from(self.capacity)
                    .saturating_mul(desk.router.stats().replicas.len() as u64);
                let parked_max = u64::from(self.queue_len_max).saturating_add(places);
                let parked = desk.parked.len();
                assert!(parked as u64 <= parked_max, "{parked} calls wait");
            }
            Decision::Refused(refusal) => {
                let is_full =
                    matches!(refusal, Refusal::QueueFull { .. } | Refusal::TooLate { .. });
                let pushback = desk.router.pushback();
                assert!(pushback > Nanos::ZERO, "whoever is refused is told when to come back");
                moves.push(Move::End {
                    call,
                    end: if is_full { End::QueueFull } else { End::Late },
                });
                self.calls.remove(&call);
            }
        }
    }

    /// Does what `released` says.
    fn follow(&mut self, router: usize, now: Nanos, moves: &mut Vec<Move>) {
        let mut released = std::mem::take(&mut self.released);
        for release in released.drain(..) {
            let (Release::Send { waiter, .. }
            | Release::Expired { waiter }
            | Release::Unreachable { waiter }) = release;
            let desk = &mut self.desks[router];
            let call = desk.parked.remove(&waiter).expect("a release names a parked call");
            let &Open { offered_at, waits_since, .. } = &self.calls[&call];
            desk.patient.remove(&(waits_since, call));
            match release {
                Release::Send { assignment, .. } => {
                    desk.check_turn(offered_at);
                    self.decided(call, Decision::Send(assignment), now, moves);
                }
                Release::Expired { .. } => {
                    self.decided(call, Decision::Refused(Refusal::Expired), now, moves);
                }
                Release::Unreachable { .. } => unreachable!("simulated replicas can be reached"),
            }
        }
        self.released = released;
    }

    fn complete(&mut self, call: u32, outcome: Outcome, now: Nanos, moves: &mut Vec<Move>) {
        let open = self.calls.remove(&call).expect("the call is open");
        let Place::Sent(ticket, replica) = open.place else { panic!("{open:?} is not sent") };
        let desk = &mut self.desks[open.router];
        desk.back(replica);
        desk.completed += 1;
        desk.router.complete(ticket, outcome, now, &mut self.released);
        self.follow(open.router, now, moves);
    }

    /// A replica has answered, whatever it says.
    fn record(&mut self, call: u32, now: Nanos) {
        let open = &self.calls[&call];
        if let Place::Sent(_, replica) = open.place {
            let latency = now.saturating_sub(open.sent_at);
            Peak::record(&self.desks[open.router].latencies, replica, latency, now);
        }
    }

    /// A sent call is with its router again, which may send it elsewhere.
    fn bring_back(&mut self, call: u32, now: Nanos) -> (usize, Ticket) {
        let open = self.calls.get_mut(&call).expect("the call is open");
        let Place::Sent(ticket, replica) = open.place else { panic!("{open:?} is not sent") };
        open.waits_since = now;
        let desk = &mut self.desks[open.router];
        desk.back(replica);
        desk.watched_until = now.saturating_add(WATCHED);
        (open.router, ticket)
    }

    fn reoffer(&mut self, call: u32, outcome: Outcome, now: Nanos, moves: &mut Vec<Move>) {
        let (router, ticket) = self.bring_back(call, now);
        let desk = &mut self.desks[router];
        let decision = desk.router.reoffer(ticket, outcome, now, &mut self.released);
        self.follow(router, now, moves);
        self.decided(call, decision, now, moves);
    }

    /// The application failed: again, if the router allows it.
    fn failed(&mut self, call: u32, load: Option<Load>, now: Nanos, moves: &mut Vec<Move>) {
        let outcome = Outcome::Done { load, is_failure: true, first_message_at: None };
        let (router, ticket) = self.bring_back(call, now);
        let desk = &mut self.desks[router];
        let decision = desk.router.retry(ticket, outcome, None, now, &mut self.released);
        let is_over = matches!(decision, Decision::Refused(_));
        if is_over {
            desk.completed += 1;
        } else {
            desk.budget.repeat(now);
        }
        self.follow(router, now, moves);
        if is_over {
            self.calls.remove(&call);
            moves.push(Move::End { call, end: End::Failed });
        } else {
            self.decided(call, decision, now, moves);
        }
    }
}

impl System for Routers {
    fn join(&mut self, specs: &[ReplicaSpec], now: Nanos, moves: &mut Vec<Move>) {
        for router in 0..self.desks.len() {
            self.desks[router].router.apply(specs, now, &mut self.released);
            self.follow(router, now, moves);
        }
    }

    fn offer(&mut self, call: u32, wants: &Wants, now: Nanos, moves: &mut Vec<Move>) {
        let name = wants.key.map_or("", |key| &self.names[key as usize]);
        let (model, session) = match self.what_keys_are {
            Keys::Nothing | Keys::Entries => ("", ""),
            Keys::Models => (name, ""),
            Keys::Sessions if self.all_alike => ("", "alike"),
            Keys::Sessions => ("", name),
        };
        let entries = wants.key.map_or([0; 2], |key| [COMMON, entry(key)]);
        let cache_keys: &[u64] = match (self.what_keys_are, self.all_alike) {
            (Keys::Entries, true) => &entries,
            (Keys::Entries, false) => &entries[1..],
            _ => &[],
        };
        let desk = &mut self.desks[wants.router];
        desk.offered += 1;
        desk.budget.call(now);
        let offer = Offer {
            deadline: wants.deadline,
            model,
            session,
            cache_keys,
            cost: wants.told,
            method: METHODS[wants.method],
            request_bytes: wants.request_bytes,
            ..Offer::default()
        };
        let decision = desk.router.offer(offer, now);
        if matches!(decision, Decision::Send(_)) {
            desk.check_turn(now);
        }
        let (router, place) = (wants.router, Place::Undecided);
        let open = Open { router, offered_at: now, waits_since: now, sent_at: now, place };
        self.calls.insert(call, open);
        self.decided(call, decision, now, moves);
    }

    fn answered(
        &mut self,
        call: u32,
        answer: Answer,
        load: Option<Load>,
        now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        let load = load.map(|load| Load { cost: load.cost.filter(|_| self.hears_costs), ..load });
        if matches!(answer, Answer::Done | Answer::Failure) {
            self.record(call, now);
        }
        match answer {
            Answer::Done => {
                self.complete(call, Outcome::done(load), now, moves);
                moves.push(Move::End { call, end: End::Done });
            }
            Answer::Broken => {
                self.complete(call, Outcome::Failed, now, moves);
                moves.push(Move::End { call, end: End::Failed });
            }
            Answer::Failure => self.failed(call, load, now, moves),
            Answer::Refused => self.reoffer(call, Outcome::Refused { load }, now, moves),
            Answer::ConnectFailed => self.reoffer(call, Outcome::ConnectFailed, now, moves),
        }
    }

    fn gone(&mut self, call: u32, is_late: bool, now: Nanos, moves: &mut Vec<Move>) {
        let open = &self.calls[&call];
        match open.place {
            Place::Parked(waiter) => {
                let desk = &mut self.desks[open.router];
                desk.parked.remove(&waiter);
                desk.patient.remove(&(open.waits_since, call));
                desk.router.abandon(waiter, now);
                self.calls.remove(&call);
            }
            Place::Sent(..) if is_late => self.complete(call, Outcome::Late, now, moves),
            Place::Sent(..) => self.complete(call, Outcome::Cancelled, now, moves),
            Place::Undecided => unreachable!("an offered call is somewhere"),
        }
    }

    fn keys(&mut self, replica: ReplicaId, keys: &[u32], now: Nanos, moves: &mut Vec<Move>) {
        match self.what_keys_are {
            Keys::Nothing | Keys::Sessions => return,
            Keys::Entries => return self.entries(replica, keys, now, moves),
            Keys::Models => {}
        }
        let models: Vec<String> =
            keys.iter().map(|key| self.names[*key as usize].clone()).collect();
        for router in 0..self.desks.len() {
            self.desks[router].router.models(replica, &models, now, &mut self.released);
            self.follow(router, now, moves);
        }
    }

    fn costs(&mut self, replica: ReplicaId, costs: &CostLoad, now: Nanos, moves: &mut Vec<Move>) {
        for router in 0..self.desks.len() {
            if self.hears_costs {
                self.desks[router].router.costs(replica, Some(costs), now, &mut self.released);
                self.follow(router, now, moves);
            }
        }
    }

    fn leased(&mut self, router: usize, replica: ReplicaId, now: Nanos, moves: &mut Vec<Move>) {
        let desk = &mut self.desks[router];
        desk.asked.retain(|ask| ask.replica != replica);
        let is_used = desk.router.on_lease(replica, now, &mut self.released);
        self.follow(router, now, moves);
        if !is_used {
            let ask = LeaseRequest { replica, when_idle: false };
            moves.push(Move::Ask { router, ask, is_wanted: false });
        }
    }

    fn settle(&mut self, moves: &mut Vec<Move>) {
        for (router, desk) in self.desks.iter_mut().enumerate() {
            desk.router.wanted_asks(&mut self.wanted);
            if desk.asked.is_empty() && self.wanted.is_empty() {
                continue;
            }
            let wanted: BTreeSet<LeaseRequest> = self.wanted.drain(..).collect();
            for ask in desk.asked.difference(&wanted) {
                moves.push(Move::Ask { router, ask: *ask, is_wanted: false });
            }
            for ask in wanted.difference(&desk.asked) {
                moves.push(Move::Ask { router, ask: *ask, is_wanted: true });
            }
            desk.asked = wanted;
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.desks.iter().filter_map(|desk| desk.router.next_wakeup()).min()
    }

    fn tick(&mut self, now: Nanos, moves: &mut Vec<Move>) {
        for router in 0..self.desks.len() {
            if self.desks[router].router.next_wakeup().is_some_and(|at| at <= now) {
                self.desks[router].router.tick(now, &mut self.released);
                self.follow(router, now, moves);
            }
        }
    }

    fn check_end(&self) {
        assert!(self.calls.is_empty(), "calls without an end: {:?}", self.calls);
        for desk in &self.desks {
            desk.check_end();
        }
    }
}
