//! The events of a world.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use router_core::{Load, Nanos, Policy, ReplicaId, ReplicaSpec, Tier};

use super::executor::Job;
use super::log::{End, Log, Record};
use super::replica::Replica;
use super::routers::Routers;
use super::scenario::{Scenario, seconds};
use super::system::{Answer, Move, Rule, System};
use super::traffic::{Traffic, Wants};

/// The membership learns of a crash after this time; arbitrary.
const CRASH_SEEN_AFTER: Nanos = Nanos::from_millis(200);
/// How soon a replica that fails does so.
const FAILS_AFTER: Nanos = Nanos::from_millis(1);

/// Plays the scenario to its end: all calls are over, and the system's books are closed.
pub(crate) fn run(scenario: &Scenario, rule: Rule, seed: u64) -> Log {
    let mut world = scenario.clone();
    match rule {
        // What it sends in one moment is a step, so the batcher waits no longer than that.
        Rule::Central => world.batch_window_ms = 1e-6,
        Rule::PureHash => world.limit = 0,
        Rule::Router(_) | Rule::Blind(_) | Rule::Seeds => {}
    }
    World::new(&world, rule.build(scenario, seed), rule.is_remote(), seed).play()
}

/// As [`run`], with a policy from outside in the shipping router.
pub(crate) fn run_policy(scenario: &Scenario, policy: fn() -> Box<dyn Policy>, seed: u64) -> Log {
    let system = Box::new(Routers::with_policy(scenario, seed, policy));
    World::new(scenario, system, true, seed).play()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Offer,
    AtReplica { call: u32, attempt: u32 },
    Visit { replica: u32 },
    Answered { call: u32, attempt: u32, answer: Answer, load: LoadIndex },
    Admitted { router: u32, replica: u32, in_flight: u32 },
    CallerGone { call: u32 },
    Failing { call: u32, attempt: u32 },
    KeysSaid { replica: u32, list: u32 },
    ProbeArrived { replica: u32, tag: u64 },
    Probed { replica: u32, tag: u64, in_flight: u32 },
    Slow { is_begin: bool },
    FailsFromNowOn,
    Crash,
    Announce,
    Warm,
    Cool,
}

/// A load on its way: its place in `World::loads`, 0 for none.
type LoadIndex = u32;

#[derive(Debug)]
struct Call {
    wants: Wants,
    offered_at: Nanos,
    /// Counts sends, so that what belongs to an earlier one is recognised.
    attempt: u32,
    /// Where it was sent last.
    replica: Option<ReplicaId>,
    entered_at: Option<Nanos>,
    is_over: bool,
}

struct World<'a> {
    scenario: &'a Scenario,
    system: Box<dyn System>,
    is_remote: bool,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    traffic: Traffic,
    replicas: Vec<Replica>,
    members: Vec<ReplicaId>,
    calls: Vec<Call>,
    open: usize,
    offers_end_at: Nanos,
    moves: Vec<Move>,
    /// Loads on their way; places are used again.
    loads: Vec<Option<Load>>,
    free_loads: Vec<LoadIndex>,
    key_lists: Vec<Vec<u32>>,
    log: Log,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, system: Box<dyn System>, is_remote: bool, seed: u64) -> Self {
        Self {
            system,
            is_remote,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            traffic: Traffic::new(scenario, seed),
            replicas: (0..scenario.replicas).map(|index| Replica::new(scenario, index)).collect(),
            members: (0..scenario.replicas as u64).map(ReplicaId).collect(),
            calls: Vec::new(),
            open: 0,
            offers_end_at: seconds(scenario.duration_s),
            moves: Vec::new(),
            loads: vec![None],
            free_loads: Vec::new(),
            key_lists: Vec::new(),
            log: Log { warm_at: seconds(scenario.warmup_s), ..Log::default() },
            scenario,
        }
    }

    fn play(mut self) -> Log {
        self.schedule_what_is_planned();
        self.announce();
        while let Some(at) = self.next_time() {
            self.now = self.now.max(at);
            if self.system.next_wakeup().is_some_and(|at| at <= self.now) {
                self.system.tick(self.now, &mut self.moves);
                self.follow();
            }
            while let Some(event) = self.pop_due() {
                self.happen(event);
            }
        }
        assert_eq!(0, self.open, "calls without an end");
        self.system.check_end();
        let inside: Vec<u32> =
            self.replicas.iter().map(|replica| replica.gate.in_flight()).collect();
        assert!(inside.iter().all(|count| *count == 0), "gates with calls of nobody: {inside:?}");
        self.log.over_at = self.now;
        self.log.counts = self.replicas.iter().map(|replica| replica.executor.counts).collect();
        self.log
    }

    fn schedule_what_is_planned(&mut self) {
        let scenario = self.scenario;
        for _ in 0..scenario.users {
            self.schedule_at(Nanos::ZERO, Event::Offer);
        }
        if scenario.users == 0 {
            let pause = self.traffic.pause();
            self.schedule_at(pause, Event::Offer);
        }
        if scenario.slow_until_s > 0.0 {
            self.schedule_at(seconds(scenario.slow_from_s), Event::Slow { is_begin: true });
            self.schedule_at(seconds(scenario.slow_until_s), Event::Slow { is_begin: false });
        }
        if scenario.fails_from_s > 0.0 {
            self.schedule_at(seconds(scenario.fails_from_s), Event::FailsFromNowOn);
        }
        if scenario.crash_at_s > 0.0 {
            self.schedule_at(seconds(scenario.crash_at_s), Event::Crash);
        }
        self.schedule_at(self.log.warm_at, Event::Warm);
        self.schedule_at(self.offers_end_at, Event::Cool);
    }

    fn next_time(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, _, _))| *at);
        self.system.next_wakeup().into_iter().chain(event).min()
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
            Event::AtReplica { call, attempt } => self.at_replica(call, attempt),
            Event::Visit { replica } => self.visit(replica as usize),
            Event::Answered { call, attempt, answer, load } => {
                self.answered(call, attempt, answer, load);
            }
            Event::Admitted { router, replica, in_flight } => {
                let replica = ReplicaId(replica.into());
                self.system.admitted(router as usize, replica, in_flight, self.now);
            }
            Event::CallerGone { call } => self.caller_gone(call),
            Event::Failing { call, attempt } => self.failing(call, attempt),
            Event::KeysSaid { replica, list } => {
                let keys = std::mem::take(&mut self.key_lists[list as usize]);
                self.system.keys(ReplicaId(replica.into()), &keys, self.now, &mut self.moves);
            }
            Event::ProbeArrived { replica, tag } => {
                let in_flight = self.replicas[replica as usize].gate.in_flight();
                self.after_network(replica as usize, Event::Probed { replica, tag, in_flight });
            }
            Event::Probed { replica, tag, in_flight } => {
                let replica = ReplicaId(replica.into());
                self.system.probed(tag, replica, in_flight, self.now, &mut self.moves);
            }
            Event::Slow { is_begin } => self.slow(is_begin),
            Event::FailsFromNowOn => self.replicas[0].is_failing = true,
            Event::Crash => self.crash(),
            Event::Announce => self.announce(),
            Event::Warm => self.warm(),
            Event::Cool => self.cool(),
        }
        self.follow();
    }

    // === callers ===

    fn offer(&mut self) {
        if self.now >= self.offers_end_at {
            return;
        }
        if self.scenario.users == 0 {
            let pause = self.traffic.pause();
            self.schedule(pause, Event::Offer);
        }
        let wants = self.traffic.call(self.now);
        let id = self.calls.len() as u32;
        // Whoever has a deadline leaves when it passes.
        let leaves_at = wants.leaves_at.into_iter().chain(wants.deadline).min();
        if let Some(at) = leaves_at {
            self.schedule_at(at, Event::CallerGone { call: id });
        }
        let offered_at = self.now;
        self.calls.push(Call {
            wants,
            offered_at,
            attempt: 0,
            replica: None,
            entered_at: None,
            is_over: false,
        });
        self.open += 1;
        let record = Record {
            offered_at,
            ended_at: offered_at,
            end: End::Cancelled,
            attempts: 0,
            replica: None,
        };
        self.log.records.push(record);
        self.system.offer(id, &wants, self.now, &mut self.moves);
    }

    fn caller_gone(&mut self, id: u32) {
        let call = &self.calls[id as usize];
        if call.is_over {
            return;
        }
        let is_late = call.wants.deadline.is_some_and(|deadline| deadline <= self.now);
        if let (Some(replica), Some(_)) = (call.replica, call.entered_at) {
            let replica = &mut self.replicas[replica.0 as usize];
            if replica.executor.cancel(id) {
                replica.leave(self.now);
            }
        }
        self.system.gone(id, is_late, self.now, &mut self.moves);
        self.end(id, if is_late { End::Late } else { End::Cancelled });
    }

    fn end(&mut self, id: u32, end: End) {
        let call = &mut self.calls[id as usize];
        assert!(!call.is_over, "call {id} ends twice, now as {end:?}");
        call.is_over = true;
        let record = &mut self.log.records[id as usize];
        record.ended_at = self.now;
        record.end = end;
        record.attempts = call.attempt;
        record.replica = call.replica.map(|replica| replica.0);
        self.open -= 1;
        if self.scenario.users > 0 {
            self.schedule(Nanos::ZERO, Event::Offer);
        }
    }

    // === the way there and back ===

    /// Does what the system wants.
    fn follow(&mut self) {
        let mut moves = std::mem::take(&mut self.moves);
        for order in moves.drain(..) {
            match order {
                Move::Send { call: id, replica } => self.send(id, replica),
                Move::End { call, end } => self.end(call, end),
                Move::Probe { replica, tag } => {
                    let replica = replica.0 as u32;
                    self.after_network(replica as usize, Event::ProbeArrived { replica, tag });
                }
            }
        }
        self.moves = moves;
    }

    fn send(&mut self, id: u32, replica: ReplicaId) {
        let call = &mut self.calls[id as usize];
        assert!(!call.is_over, "call {id} is sent after its end");
        call.attempt += 1;
        call.replica = Some(replica);
        call.entered_at = None;
        let attempt = call.attempt;
        self.log.sends.push((self.now, replica.0));
        self.after_network(replica.0 as usize, Event::AtReplica { call: id, attempt });
    }

    fn answer(&mut self, id: u32, attempt: u32, answer: Answer, load: Option<Load>) {
        let replica = self.calls[id as usize].replica.expect("it was sent").0;
        let load = self.keep(load);
        self.after_network(replica as usize, Event::Answered { call: id, attempt, answer, load });
    }

    fn answered(&mut self, id: u32, attempt: u32, answer: Answer, load: LoadIndex) {
        let load = self.take(load);
        let call = &self.calls[id as usize];
        if call.is_over || call.attempt != attempt {
            return;
        }
        match (answer, call.replica) {
            (Answer::Refused, _) => self.log.refusals += 1,
            (Answer::Done | Answer::Failure, Some(replica)) => {
                self.log.answers.push((self.now, replica.0));
            }
            _ => {}
        }
        self.system.answered(id, answer, load, self.now, &mut self.moves);
    }

    /// A place for a load that is on its way.
    fn keep(&mut self, load: Option<Load>) -> LoadIndex {
        let Some(load) = load else { return 0 };
        let place = self.free_loads.pop().unwrap_or_else(|| {
            self.loads.push(None);
            self.loads.len() as LoadIndex - 1
        });
        self.loads[place as usize] = Some(load);
        place
    }

    fn take(&mut self, place: LoadIndex) -> Option<Load> {
        if place > 0 {
            self.free_loads.push(place);
        }
        self.loads[place as usize].take()
    }

    fn after_network(&mut self, replica: usize, event: Event) {
        let way = if self.is_remote { self.way(replica) } else { Nanos::ZERO };
        self.schedule(way, event);
    }

    /// One that took the place of another is as far away.
    fn way(&self, replica: usize) -> Nanos {
        self.scenario.one_way(replica % self.scenario.replicas)
    }

    // === replicas ===

    fn at_replica(&mut self, id: u32, attempt: u32) {
        let call = &mut self.calls[id as usize];
        if call.is_over || call.attempt != attempt {
            return;
        }
        let index = call.replica.expect("it was sent").0 as usize;
        let replica = &mut self.replicas[index];
        if !replica.is_alive {
            return self.answer(id, attempt, Answer::ConnectFailed, None);
        }
        if replica.is_failing {
            return self.schedule(FAILS_AFTER, Event::Failing { call: id, attempt });
        }
        let Wants { work, key, router, .. } = call.wants;
        let job = Job { call: id, attempt, entered_at: self.now, work, key };
        if !replica.enter(job, self.now) {
            let load = replica.load(None, self.now);
            return self.answer(id, attempt, Answer::Refused, Some(load));
        }
        call.entered_at = Some(self.now);
        let in_flight = replica.gate.in_flight();
        self.log.gate_max = self.log.gate_max.max(in_flight);
        if self.system.wants_admissions() {
            let event = Event::Admitted { router: router as u32, replica: index as u32, in_flight };
            self.after_network(index, event);
        }
        self.visit(index);
    }

    /// Lets a replica do what is due, and comes back when it next has something to do.
    fn visit(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let mut done = Vec::new();
        replica.executor.advance(self.now, &mut done);
        for job in done {
            let load = self.replicas[index].load(Some(job.entered_at), self.now);
            self.replicas[index].leave(self.now);
            let call = &self.calls[job.call as usize];
            if !call.is_over && call.attempt == job.attempt {
                self.answer(job.call, job.attempt, Answer::Done, Some(load));
            }
        }
        let replica = &mut self.replicas[index];
        if let Some(keys) = replica.executor.changed_keys() {
            self.key_lists.push(keys);
            let (replica, list) = (index as u32, self.key_lists.len() as u32 - 1);
            self.after_network(index, Event::KeysSaid { replica, list });
        }
        let replica = &mut self.replicas[index];
        let next = replica.executor.next_wakeup();
        if next != replica.visit_at || next.is_some_and(|at| at <= self.now) {
            replica.visit_at = next;
            if let Some(at) = next {
                self.schedule_at(at, Event::Visit { replica: index as u32 });
            }
        }
    }

    fn failing(&mut self, id: u32, attempt: u32) {
        let call = &self.calls[id as usize];
        if call.is_over || call.attempt != attempt {
            return;
        }
        let index = call.replica.expect("it was sent").0 as usize;
        let entered_at = self.now.saturating_sub(FAILS_AFTER);
        let load = self.replicas[index].load(Some(entered_at), self.now);
        self.answer(id, attempt, Answer::Failure, Some(load));
    }

    // === what the scenario planned ===

    fn slow(&mut self, is_begin: bool) {
        let factor = self.scenario.slow_factor;
        let factor = if is_begin { factor } else { 1.0 / factor };
        self.replicas[0].executor.slow_down(factor, self.now);
        self.visit(0);
    }

    fn crash(&mut self) {
        let dead = self.members[0];
        let replica = &mut self.replicas[dead.0 as usize];
        replica.is_alive = false;
        let mut broken = Vec::new();
        replica.executor.crash(&mut broken);
        for job in broken {
            self.replicas[dead.0 as usize].leave(self.now);
            let call = &self.calls[job.call as usize];
            if !call.is_over && call.attempt == job.attempt {
                self.answer(job.call, job.attempt, Answer::Broken, None);
            }
        }
        self.members[0] = ReplicaId(self.replicas.len() as u64);
        self.replicas.push(Replica::new(self.scenario, 0));
        self.schedule(CRASH_SEEN_AFTER, Event::Announce);
    }

    fn announce(&mut self) {
        const TIERS: [Tier; 3] = [Tier::Node, Tier::Zone, Tier::Any];
        let capacity = self.scenario.capacity();
        let spec = |id: &ReplicaId| {
            let place = id.0 as usize % self.scenario.replicas;
            ReplicaSpec { id: *id, tier: TIERS[self.scenario.tier(place)], capacity }
        };
        let specs: Vec<ReplicaSpec> = self.members.iter().map(spec).collect();
        self.system.join(&specs, self.now, &mut self.moves);
        self.follow();
    }

    fn warm(&mut self) {
        for replica in &mut self.replicas {
            replica.count(self.now);
            replica.call_seconds = 0.0;
            replica.executor.counts = super::executor::Counts::default();
        }
    }

    fn cool(&mut self) {
        for replica in &mut self.replicas {
            replica.count(self.now);
        }
        let seconds = self.replicas.iter().map(|replica| replica.call_seconds);
        self.log.call_seconds = seconds.collect();
    }

    fn schedule(&mut self, after: Nanos, event: Event) {
        self.schedule_at(self.now.saturating_add(after), event);
    }

    fn schedule_at(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }
}
