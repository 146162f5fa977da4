//! Calls: how they come, go to a replica and back, and end.

use router_core::{Load, Nanos, ReplicaId};

use super::{COSTS_INTERVAL, Call, Event, LoadIndex, World};
use crate::simulator::log::{End, Record};
use crate::simulator::system::{Answer, Move};

// === callers ===

impl World<'_> {
    /// Nobody comes any more who was to come after the end of his phase.
    pub(super) fn arrival(&mut self, index: u32) {
        let phase = self.scenario.phase(self.now);
        let is_over = self.scenario.phases.get(index as usize) != phase;
        if is_over || self.now >= self.offers_end_at {
            return;
        }
        let pause = self.traffic.pause(self.now);
        self.schedule(pause, Event::Arrival { phase: index });
        for _ in 0..phase.map_or(1, |phase| phase.burst) {
            self.offer(false);
        }
    }

    /// Callers come or go; those who go do so when they are answered.
    pub(super) fn phase_begins(&mut self, index: usize) {
        let phase = &self.scenario.phases[index];
        for _ in self.users..phase.users {
            self.schedule(Nanos::ZERO, Event::Offer);
        }
        self.users = self.users.max(phase.users);
        if phase.users == 0 {
            let pause = self.traffic.pause(self.now);
            self.schedule(pause, Event::Arrival { phase: index as u32 });
        }
    }

    pub(super) fn offer(&mut self, has_user: bool) {
        if self.now >= self.offers_end_at {
            return;
        }
        let wants = self.traffic.call(self.now);
        let id = self.calls.len() as u32;
        // A caller with a deadline leaves when it passes.
        let leaves_at = wants.leaves_at.into_iter().chain(wants.deadline).min();
        if let Some(at) = leaves_at {
            self.schedule_at(at, Event::CallerGone { call: id });
        }
        let offered_at = self.now;
        self.calls.push(Call {
            wants,
            has_user,
            offered_at,
            attempt: 0,
            replica: None,
            entered_at: None,
            is_leased: false,
            is_over: false,
        });
        self.open += 1;
        let record = Record {
            offered_at,
            ended_at: offered_at,
            end: End::Cancelled,
            attempts: 0,
            replica: None,
            is_long: wants.is_long,
        };
        self.log.records.push(record);
        self.system.offer(id, &wants, self.now, &mut self.moves);
    }

    pub(super) fn caller_gone(&mut self, id: u32) {
        let call = &self.calls[id as usize];
        if call.is_over {
            return;
        }
        let is_late = call.wants.deadline.is_some_and(|deadline| deadline <= self.now);
        if let (Some(replica_id), Some(_)) = (call.replica, call.entered_at) {
            let replica = &mut self.replicas[replica_id.0 as usize];
            if replica.executor.cancel(id) {
                replica.leave(self.now);
                self.grant(replica_id.0 as usize);
            }
        }
        self.system.gone(id, is_late, self.now, &mut self.moves);
        self.end(id, if is_late { End::Late } else { End::Cancelled });
    }

    pub(super) fn end(&mut self, id: u32, end: End) {
        let call = &mut self.calls[id as usize];
        assert!(!call.is_over, "call {id} ends twice, now as {end:?}");
        call.is_over = true;
        let record = &mut self.log.records[id as usize];
        record.ended_at = self.now;
        record.end = end;
        record.attempts = call.attempt;
        record.replica = call.replica.map(|replica| replica.0);
        self.open -= 1;
        if self.calls[id as usize].has_user {
            self.user_asks_again();
        }
    }

    fn user_asks_again(&mut self) {
        let users = self.scenario.phase(self.now).map_or(self.scenario.users, |phase| phase.users);
        if self.users > users {
            self.users -= 1;
        } else {
            self.schedule(Nanos::ZERO, Event::Offer);
        }
    }
}

// === the way there and back ===

impl World<'_> {
    /// Does what the system wants.
    pub(super) fn follow(&mut self) {
        self.system.settle(&mut self.moves);
        let mut moves = std::mem::take(&mut self.moves);
        for order in moves.drain(..) {
            match order {
                Move::Send { call: id, replica, is_leased } => self.send(id, replica, is_leased),
                Move::Ask { router, ask, is_wanted } => {
                    let event = Event::AskArrived { router: router as u32, ask, is_wanted };
                    self.after_network(ask.replica.0 as usize, event);
                }
                Move::End { call, end } => self.end(call, end),
                Move::Probe { replica, tag } => {
                    let replica = replica.0 as u32;
                    self.after_network(replica as usize, Event::ProbeArrived { replica, tag });
                }
            }
        }
        self.moves = moves;
    }

    pub(super) fn send(&mut self, id: u32, replica: ReplicaId, is_leased: bool) {
        let call = &mut self.calls[id as usize];
        assert!(!call.is_over, "call {id} is sent after its end");
        call.attempt += 1;
        call.replica = Some(replica);
        call.entered_at = None;
        call.is_leased = is_leased;
        let attempt = call.attempt;
        self.log.sends.push((self.now, replica.0));
        self.after_network(replica.0 as usize, Event::AtReplica { call: id, attempt });
    }

    pub(super) fn answer(&mut self, id: u32, attempt: u32, answer: Answer, load: Option<Load>) {
        let replica = self.calls[id as usize].replica.expect("it was sent").0;
        let load = self.keep(load);
        self.after_network(replica as usize, Event::Answered { call: id, attempt, answer, load });
    }

    pub(super) fn answered(&mut self, id: u32, attempt: u32, answer: Answer, load: LoadIndex) {
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
    pub(super) fn keep(&mut self, load: Option<Load>) -> LoadIndex {
        let Some(load) = load else { return 0 };
        let place = self.free_loads.pop().unwrap_or_else(|| {
            self.loads.push(None);
            self.loads.len() as LoadIndex - 1
        });
        self.loads[place as usize] = Some(load);
        place
    }

    pub(super) fn take(&mut self, place: LoadIndex) -> Option<Load> {
        if place > 0 {
            self.free_loads.push(place);
        }
        self.loads[place as usize].take()
    }

    pub(super) fn after_network(&mut self, replica: usize, event: Event) {
        let way = if self.is_remote { self.way(replica) } else { Nanos::ZERO };
        self.schedule(way, event);
    }

    /// One that took the place of another is as far away.
    pub(super) fn way(&self, replica: usize) -> Nanos {
        self.scenario.one_way(replica % self.scenario.replicas)
    }
}

// === costs ===

impl World<'_> {
    /// Reports changes to all routers, as long as there are calls.
    pub(super) fn say_costs(&mut self) {
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            let costs = replica.executor.cost_load(None).filter(|_| replica.is_alive);
            if let Some(costs) = costs.filter(|costs| costs.number != replica.told_costs) {
                replica.told_costs = costs.number;
                let load = Load { cost: Some(costs), ..replica.load(None, self.now) };
                let load = self.keep(Some(load));
                self.after_network(index, Event::CostsSaid { replica: index as u32, load });
            }
        }
        if self.open > 0 || self.now < self.offers_end_at {
            self.schedule(COSTS_INTERVAL, Event::CostsDue);
        }
    }

    pub(super) fn costs_said(&mut self, replica: u32, load: LoadIndex) {
        if let Some(costs) = self.take(load).and_then(|load| load.cost) {
            self.system.costs(ReplicaId(replica.into()), &costs, self.now, &mut self.moves);
        }
    }
}
