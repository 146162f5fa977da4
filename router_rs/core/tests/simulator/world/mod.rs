//! The events of a world.

mod calls;
mod places;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use router_core::{AskerId, LeaseRequest, Load, Nanos, Policy, ReplicaId};

use crate::simulator::log::Log;
use crate::simulator::replica::Replica;
use crate::simulator::routers::Routers;
use crate::simulator::scenario::{Executes, Scenario, seconds};
use crate::simulator::system::{Answer, Move, Rule, System};
use crate::simulator::traffic::{Traffic, Wants};

/// The membership learns of a crash after this time; arbitrary.
const CRASH_SEEN_AFTER: Nanos = Nanos::from_millis(200);
/// How often a load stream reports costs that have changed: `COSTS_INTERVAL` of the server.
const COSTS_INTERVAL: Nanos = Nanos::from_millis(100);
/// How soon a replica that fails does so.
const FAILS_AFTER: Nanos = Nanos::from_millis(1);

/// Plays the scenario to its end: all calls are over, and the system's books are closed.
pub(crate) fn run(scenario: &Scenario, rule: Rule, seed: u64) -> Log {
    let mut world = scenario.clone();
    match rule {
        // Calls that it sends in one moment form a step, so the batcher waits no longer than that.
        Rule::Central => world.batch_window_ms = 1e-6,
        Rule::PureHash => world.limit = 0,
        Rule::Field(field) => world = field.world(scenario),
        Rule::Router(_) | Rule::Counting(_) | Rule::Blind(_) | Rule::Seeds => {}
    }
    let traffic = Traffic::new(scenario, seed);
    World::new(&world, traffic, rule.build(scenario, seed), rule.is_remote()).play()
}

/// As [`run`], with a policy from outside in the shipping router.
pub(crate) fn run_policy(scenario: &Scenario, policy: fn() -> Box<dyn Policy>, seed: u64) -> Log {
    run_system(scenario, Box::new(Routers::with_policy(scenario, seed, policy)), seed)
}

/// As [`run`], with a system from outside.
pub(crate) fn run_system(scenario: &Scenario, system: Box<dyn System>, seed: u64) -> Log {
    World::new(scenario, Traffic::new(scenario, seed), system, true).play()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A call of an open loop, and the time of the next one.
    Arrival {
        phase: u32,
    },
    /// A caller of a closed loop asks.
    Offer,
    Phase {
        index: u32,
    },
    AtReplica {
        call: u32,
        attempt: u32,
    },
    Visit {
        replica: u32,
    },
    Answered {
        call: u32,
        attempt: u32,
        answer: Answer,
        load: LoadIndex,
    },
    Admitted {
        router: u32,
        replica: u32,
        in_flight: u32,
    },
    CallerGone {
        call: u32,
    },
    Failed {
        call: u32,
        attempt: u32,
    },
    KeysSaid {
        replica: u32,
        list: u32,
    },
    /// A replica may report its keys again.
    KeysDue {
        replica: u32,
    },
    ProbeArrived {
        replica: u32,
        tag: u64,
    },
    Probed {
        replica: u32,
        tag: u64,
        in_flight: u32,
    },
    AskArrived {
        router: u32,
        ask: LeaseRequest,
        is_wanted: bool,
    },
    LeaseArrived {
        router: u32,
        replica: u32,
    },
    LeaseOver {
        replica: u32,
    },
    /// Replicas report costs on their load streams.
    CostsDue,
    CostsSaid {
        replica: u32,
        load: LoadIndex,
    },
    Slow {
        is_begin: bool,
    },
    Failing {
        is_begin: bool,
    },
    Crash,
    Join,
    Announce,
    Warm,
    Cool,
}

/// A load on its way: its place in `World::loads`, 0 for none.
type LoadIndex = u32;

#[derive(Debug)]
struct Call {
    wants: Wants,
    /// Its caller asks again when it is over.
    has_user: bool,
    offered_at: Nanos,
    /// Counts sends, so that what belongs to an earlier one is recognised.
    attempt: u32,
    /// Where it was sent last.
    replica: Option<ReplicaId>,
    entered_at: Option<Nanos>,
    is_leased: bool,
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
    /// Callers of a closed loop.
    users: usize,
    offers_end_at: Nanos,
    moves: Vec<Move>,
    /// Loads on their way; places are used again.
    loads: Vec<Option<Load>>,
    free_loads: Vec<LoadIndex>,
    key_lists: Vec<Vec<u32>>,
    log: Log,
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a Scenario,
        traffic: Traffic,
        system: Box<dyn System>,
        is_remote: bool,
    ) -> Self {
        let at_first = scenario.replicas - usize::from(scenario.joins_at_s > 0.0);
        Self {
            system,
            is_remote,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            traffic,
            replicas: (0..scenario.replicas).map(|index| Replica::new(scenario, index)).collect(),
            members: (0..at_first as u64).map(ReplicaId).collect(),
            calls: Vec::new(),
            open: 0,
            users: scenario.users,
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
        for (index, phase) in scenario.phases.iter().enumerate() {
            self.schedule_at(seconds(phase.from_s), Event::Phase { index: index as u32 });
        }
        if scenario.users == 0 && scenario.phases.is_empty() {
            let pause = self.traffic.pause(self.now);
            self.schedule_at(pause, Event::Arrival { phase: 0 });
        }
        if scenario.slow_until_s > 0.0 {
            self.schedule_at(seconds(scenario.slow_from_s), Event::Slow { is_begin: true });
            self.schedule_at(seconds(scenario.slow_until_s), Event::Slow { is_begin: false });
        }
        if scenario.failing > 0 {
            self.schedule_at(seconds(scenario.fails_from_s), Event::Failing { is_begin: true });
        }
        if scenario.fails_until_s > 0.0 {
            self.schedule_at(seconds(scenario.fails_until_s), Event::Failing { is_begin: false });
        }
        if scenario.crash_at_s > 0.0 {
            self.schedule_at(seconds(scenario.crash_at_s), Event::Crash);
        }
        if scenario.joins_at_s > 0.0 {
            self.schedule_at(seconds(scenario.joins_at_s), Event::Join);
        }
        if scenario.executes == Executes::Steps {
            self.schedule_at(Nanos::ZERO, Event::CostsDue);
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
            Event::Arrival { phase } => self.arrival(phase),
            Event::Offer => self.offer(true),
            Event::Phase { index } => self.phase_begins(index as usize),
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
            Event::Failed { call, attempt } => self.failed(call, attempt),
            Event::KeysSaid { replica, list } => {
                let keys = std::mem::take(&mut self.key_lists[list as usize]);
                self.system.keys(ReplicaId(replica.into()), &keys, self.now, &mut self.moves);
            }
            Event::KeysDue { replica } => self.keys_due(replica as usize),
            Event::ProbeArrived { replica, tag } => {
                let in_flight = self.replicas[replica as usize].gate.in_flight();
                self.after_network(replica as usize, Event::Probed { replica, tag, in_flight });
            }
            Event::Probed { replica, tag, in_flight } => {
                let replica = ReplicaId(replica.into());
                self.system.probed(tag, replica, in_flight, self.now, &mut self.moves);
            }
            Event::AskArrived { router, ask, is_wanted } => {
                self.ask_arrived(AskerId(router.into()), ask, is_wanted);
            }
            Event::LeaseArrived { router, replica } => {
                let replica = ReplicaId(replica.into());
                self.system.leased(router as usize, replica, self.now, &mut self.moves);
            }
            Event::CostsDue => self.say_costs(),
            Event::CostsSaid { replica, load } => self.costs_said(replica, load),
            Event::LeaseOver { replica } => self.grant(replica as usize),
            Event::Slow { is_begin } => self.slow(is_begin),
            Event::Failing { is_begin } => self.fail(is_begin),
            Event::Crash => self.crash(),
            Event::Join => self.one_joins(),
            Event::Announce => self.announce(),
            Event::Warm => self.warm(),
            Event::Cool => self.cool(),
        }
        self.follow();
    }

    fn schedule(&mut self, after: Nanos, event: Event) {
        self.schedule_at(self.now.saturating_add(after), event);
    }

    fn schedule_at(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }
}
