//! A replica: a gate, an executor and what it says about itself.

use std::collections::VecDeque;

use router_core::{AskerId, Gate, Lease, Load, Nanos};

use super::executor::{Executor, Job};
use super::scenario::{Scenario, millis};

#[allow(clippy::struct_excessive_bools)] // each by itself: alive, failing, what it tells
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) gate: Gate,
    pub(crate) executor: Executor,
    pub(crate) is_alive: bool,
    /// Answers `RESOURCE_EXHAUSTED` instead of working.
    pub(crate) is_failing: bool,
    tells: bool,
    /// The number of the costs that routers were told last.
    pub(crate) told_costs: u32,
    /// It has reported its keys, and does not report a change before a while.
    pub(crate) tells_later: bool,
    /// Routers that want a place as soon as it idles although it has calls.
    pub(crate) idle_asks: Vec<AskerId>,
    /// When the world has last promised to come by.
    pub(crate) visit_at: Option<Nanos>,
    report_age: Nanos,
    /// With an age: the loads since then, and the last one before.
    past: VecDeque<(Nanos, Load)>,
    /// Since when the gate has had its present count, and the call seconds until then.
    counted_until: Nanos,
    pub(crate) call_seconds: f64,
}

// === impl Replica ===

impl Replica {
    pub(crate) fn new(scenario: &Scenario, index: usize) -> Self {
        Self {
            gate: Gate::new((scenario.limit > 0).then_some(scenario.limit), 0),
            executor: Executor::new(scenario, scenario.speed(index)),
            is_alive: true,
            is_failing: false,
            tells: scenario.tells,
            told_costs: 0,
            tells_later: false,
            idle_asks: Vec::new(),
            visit_at: None,
            report_age: millis(scenario.report_age_ms),
            past: VecDeque::new(),
            counted_until: Nanos::ZERO,
            call_seconds: 0.0,
        }
    }

    /// The load in the answer to a call that was worked on.
    pub(crate) fn load_after(&mut self, job: &Job, now: Nanos) -> Load {
        let alone = job.alone.filter(|_| self.tells);
        let cost = self.executor.cost_load(Some(job));
        Load { alone, cost, ..self.load(Some(job.entered_at), now) }
    }

    /// The load in the answer to a call that entered at `entered_at`, before the call leaves.
    pub(crate) fn load(&mut self, entered_at: Option<Nanos>, now: Nanos) -> Load {
        let load = Load { batch: self.executor.batch_load(now), ..self.gate.load() };
        let load = if self.report_age == Nanos::ZERO { load } else { self.aged(load, now) };
        Load { processing: entered_at.map(|entered_at| now.saturating_sub(entered_at)), ..load }
    }

    /// Lets a call in; says whether it is in.
    pub(crate) fn enter(&mut self, job: Job, lease_of: Option<AskerId>, now: Nanos) -> bool {
        self.count(now);
        let entered = match lease_of {
            Some(asker) => self.gate.try_enter_leased(1, asker).is_ok(),
            None => self.gate.try_enter(1).is_ok(),
        };
        if entered {
            self.executor.add(job, now);
            self.remember(now);
        }
        entered
    }

    /// Who waits for it to idle asks for a place if it does.
    pub(crate) fn serve_idle_asks(&mut self) {
        if self.tells && self.executor.awaits() {
            for asker in self.idle_asks.drain(..) {
                self.gate.ask(asker);
            }
        }
    }

    /// Who gets a place that has become free.
    pub(crate) fn grant(&mut self, now: Nanos) -> Vec<Lease> {
        let mut granted = Vec::new();
        if self.gate.is_asked() {
            self.gate.grant(now, &mut granted);
        }
        granted
    }

    pub(crate) fn leave(&mut self, now: Nanos) {
        self.count(now);
        self.gate.leave(1);
        self.remember(now);
    }

    /// Brings `call_seconds` up to `now`; resets it at the end of a warm-up.
    pub(crate) fn count(&mut self, now: Nanos) {
        let since = now.saturating_sub(self.counted_until);
        self.call_seconds += f64::from(self.gate.in_flight()) * since.0 as f64 / 1e9;
        self.counted_until = now;
    }

    fn remember(&mut self, now: Nanos) {
        if self.report_age > Nanos::ZERO {
            let load = Load { batch: self.executor.batch_load(now), ..self.gate.load() };
            self.past.push_back((now, load));
        }
    }

    /// The load as it was `report_age` ago.
    fn aged(&mut self, load: Load, now: Nanos) -> Load {
        let then = now.saturating_sub(self.report_age);
        while self.past.get(1).is_some_and(|(at, _)| *at <= then) {
            self.past.pop_front();
        }
        match self.past.front() {
            Some((at, past)) if *at <= then => *past,
            // Nobody was there yet.
            _ => Load { in_flight: 0, ..load },
        }
    }
}
