//! Replicas: what calls meet there, and what the scenario planned for them.

use router_core::{AskerId, LeaseRequest, ReplicaId, ReplicaSpec, Tier};

use super::{CRASH_SEEN_AFTER, Event, FAILS_AFTER, World};
use crate::simulator::executor::{Counts, Job};
use crate::simulator::replica::Replica;
use crate::simulator::scenario::millis;
use crate::simulator::system::Answer;
use crate::simulator::traffic::Wants;

impl World<'_> {
    pub(super) fn at_replica(&mut self, id: u32, attempt: u32) {
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
            return self.schedule(FAILS_AFTER, Event::Failed { call: id, attempt });
        }
        let Wants { work, blocking, key, router, is_long, .. } = call.wants;
        let entered_at = self.now;
        let job = Job { call: id, attempt, entered_at, work, blocking, key, is_long, alone: None };
        let lease_of = call.is_leased.then_some(AskerId(router as u64));
        if !replica.enter(job, lease_of, self.now) {
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
    pub(super) fn visit(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let mut done = Vec::new();
        replica.executor.advance(self.now, &mut done);
        for job in done {
            let load = self.replicas[index].load_after(&job, self.now);
            self.replicas[index].leave(self.now);
            let call = &self.calls[job.call as usize];
            if !call.is_over && call.attempt == job.attempt {
                self.answer(job.call, job.attempt, Answer::Done, Some(load));
            }
        }
        self.grant(index);
        if !self.replicas[index].tells_later {
            self.tell_keys(index);
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

    /// Reports what a replica keeps, if that has changed since the last time.
    fn tell_keys(&mut self, index: usize) {
        let Some(keys) = self.replicas[index].executor.changed_keys() else { return };
        self.key_lists.push(keys);
        let (replica, list) = (index as u32, self.key_lists.len() as u32 - 1);
        self.after_network(index, Event::KeysSaid { replica, list });
        if self.scenario.tells_every_ms > 0.0 {
            self.replicas[index].tells_later = true;
            self.schedule(millis(self.scenario.tells_every_ms), Event::KeysDue { replica });
        }
    }

    pub(super) fn keys_due(&mut self, index: usize) {
        self.replicas[index].tells_later = false;
        self.tell_keys(index);
    }

    pub(super) fn ask_arrived(&mut self, asker: AskerId, ask: LeaseRequest, is_wanted: bool) {
        let index = ask.replica.0 as usize;
        let replica = &mut self.replicas[index];
        replica.idle_asks.retain(|other| *other != asker);
        if !is_wanted {
            replica.gate.withdraw(asker);
        } else if ask.when_idle {
            replica.idle_asks.push(asker);
        } else {
            replica.gate.ask(asker);
        }
        self.grant(index);
    }

    /// Gives free places to who has asked for them.
    pub(super) fn grant(&mut self, index: usize) {
        self.replicas[index].serve_idle_asks();
        let granted = self.replicas[index].grant(self.now);
        for lease in granted {
            let (router, replica) = (lease.asker.0 as u32, index as u32);
            self.after_network(index, Event::LeaseArrived { router, replica });
            self.schedule_at(lease.until, Event::LeaseOver { replica });
        }
    }

    pub(super) fn failed(&mut self, id: u32, attempt: u32) {
        let call = &self.calls[id as usize];
        if call.is_over || call.attempt != attempt {
            return;
        }
        let index = call.replica.expect("it was sent").0 as usize;
        let entered_at = self.now.saturating_sub(FAILS_AFTER);
        let load = self.replicas[index].load(Some(entered_at), self.now);
        self.answer(id, attempt, Answer::Failure, Some(load));
    }
}

// === what the scenario planned ===

impl World<'_> {
    pub(super) fn slow(&mut self, is_begin: bool) {
        let factor = self.scenario.slow_factor;
        let factor = if is_begin { factor } else { 1.0 / factor };
        for index in 0..self.scenario.slow_replicas {
            self.replicas[index].executor.slow_down(factor, self.now);
            self.visit(index);
        }
    }

    pub(super) fn fail(&mut self, is_begin: bool) {
        for replica in &mut self.replicas[..self.scenario.failing] {
            replica.is_failing = is_begin;
        }
    }

    pub(super) fn crash(&mut self) {
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

    pub(super) fn one_joins(&mut self) {
        self.members.push(ReplicaId(self.scenario.replicas as u64 - 1));
        self.announce();
    }

    pub(super) fn announce(&mut self) {
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

    pub(super) fn warm(&mut self) {
        for replica in &mut self.replicas {
            replica.count(self.now);
            replica.call_seconds = 0.0;
            replica.executor.counts = Counts::default();
        }
    }

    pub(super) fn cool(&mut self) {
        for replica in &mut self.replicas {
            replica.count(self.now);
        }
        let seconds = self.replicas.iter().map(|replica| replica.call_seconds);
        self.log.call_seconds = seconds.collect();
    }
}
