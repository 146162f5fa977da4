//! A replica that steps many requests at once, as `pyserve/stepping/scheduler.py`, and says what they
//! cost.
//!
//! The work of a call, in milliseconds, is what it costs; the part of it that would hold an event loop
//! says how many steps it takes.

use std::collections::VecDeque;
use std::fmt::{self, Display};

use router_core::{Cost, CostLoad, Nanos};

use super::executor::{Counts, Job, times};
use super::fields::Fields;
use super::scenario::millis;

/// The rules of such replicas, and what is known of what calls cost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    /// What all states may cost together; 0: replicas do not step.
    pub(crate) budget: f64,
    /// States in a step at most.
    pub(crate) running_max: usize,
    /// A call takes a step for each of these.
    pub(crate) cost_per_step: f64,
    /// A step takes its fixed time and this for each unit of cost in it.
    pub(crate) ms_per_cost: f64,
    /// Of the calls: whose client tells what it costs, and whose length shows it.
    pub(crate) told: f64,
    pub(crate) sized: f64,
    /// Each kind of call is a method of its own.
    pub(crate) by_method: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            budget: 0.0,
            running_max: 32,
            cost_per_step: 1.0,
            ms_per_cost: 0.0,
            told: 0.0,
            sized: 0.0,
            by_method: false,
        }
    }
}

impl Steps {
    pub(super) fn parse(&mut self, fields: &mut Fields) {
        fields.number("budget", &mut self.budget);
        fields.number("running_max", &mut self.running_max);
        fields.number("cost_per_step", &mut self.cost_per_step);
        fields.number("ms_per_cost", &mut self.ms_per_cost);
        fields.number("told", &mut self.told);
        fields.number("sized", &mut self.sized);
        fields.number("by_method", &mut self.by_method);
    }

    pub(crate) fn cost(&self, work: Nanos) -> f64 {
        (work.0 as f64 / 1e6).clamp(1e-3, self.budget)
    }

    pub(crate) fn count(&self, blocking: Nanos) -> u32 {
        (blocking.0 as f64 / 1e6 / self.cost_per_step).ceil().max(1.0) as u32
    }
}

impl Display for Steps {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, running_max, cost_per_step, ms_per_cost, told, sized, by_method } = self;
        if *budget == 0.0 {
            return Ok(());
        }
        writeln!(text, "budget = {budget}\nrunning_max = {running_max}")?;
        writeln!(text, "cost_per_step = {cost_per_step}\nms_per_cost = {ms_per_cost}")?;
        writeln!(text, "told = {told}\nsized = {sized}\nby_method = {by_method}")
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stepper {
    rules: Steps,
    fixed: Nanos,
    waiting: VecDeque<Job>,
    /// With the steps that are left of each.
    running: Vec<(u32, Job)>,
    ends_at: Option<Nanos>,
    /// As it was between the last two steps.
    report: CostLoad,
}

impl Stepper {
    pub(super) fn new(rules: &Steps, fixed: Nanos) -> Self {
        let report = CostLoad {
            number: 0,
            budget: amount(rules.budget),
            running: Cost::ZERO,
            waiting: Cost::ZERO,
            calls: 0,
            places: rules.running_max as u32,
            step: Nanos::ZERO,
            wait: Nanos::ZERO,
            own: Cost::ZERO,
        };
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Self { rules: rules.clone(), fixed, waiting, running, ends_at: None, report }
    }

    pub(super) fn add(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    pub(super) fn next_wakeup(&self) -> Option<Nanos> {
        self.ends_at
    }

    /// Ends the step that is over.
    pub(super) fn advance(&mut self, now: Nanos, done: &mut Vec<Job>) {
        if self.ends_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        self.running.iter_mut().for_each(|(left, _)| *left -= 1);
        done.extend(self.running.extract_if(.., |(left, _)| *left == 0).map(|(_, job)| job));
    }

    /// Between two steps: admits in order of arrival, reports, and begins the next one.
    pub(super) fn start(&mut self, slowness: f64, counts: &mut Counts, now: Nanos) {
        if self.ends_at.is_some() {
            return;
        }
        let mut used: f64 = self.running.iter().map(|(_, job)| self.rules.cost(job.work)).sum();
        while let Some(job) = self.waiting.front() {
            let cost = self.rules.cost(job.work);
            if self.running.len() >= self.rules.running_max || used + cost > self.rules.budget {
                break;
            }
            used += cost;
            let steps = self.rules.count(job.blocking);
            self.running.extend(self.waiting.pop_front().map(|job| (steps, job)));
        }
        let waiting: f64 = self.waiting.iter().map(|job| self.rules.cost(job.work)).sum();
        let step = self.fixed.saturating_add(millis(used * self.rules.ms_per_cost));
        let step = times(step, slowness);
        let (number, running) = (self.report.number + 1, amount(used));
        let calls = (self.running.len() + self.waiting.len()) as u32;
        self.report =
            CostLoad { number, running, waiting: amount(waiting), calls, step, ..self.report };
        if !self.running.is_empty() {
            self.ends_at = Some(now.saturating_add(step));
            counts.busy = counts.busy.saturating_add(step);
            counts.steps += 1;
            counts.stepped += self.running.len() as u64;
        }
    }

    /// Its report with the answer of `job`, or by itself.
    pub(super) fn report(&self, job: Option<&Job>) -> CostLoad {
        let own = job.map_or(Cost::ZERO, |job| amount(self.rules.cost(job.work)));
        let calls = (self.running.len() + self.waiting.len()) as u32;
        CostLoad { own, ..self.report.with_arrivals(calls.saturating_sub(self.report.calls)) }
    }

    pub(super) fn cancel(&mut self, call: u32) -> bool {
        let before = self.waiting.len() + self.running.len();
        self.waiting.retain(|job| job.call != call);
        self.running.retain(|(_, job)| job.call != call);
        self.waiting.len() + self.running.len() < before
    }

    pub(super) fn crash(&mut self, broken: &mut Vec<Job>) {
        self.ends_at = None;
        broken.extend(self.running.drain(..).map(|(_, job)| job));
        broken.extend(self.waiting.drain(..));
    }
}

pub(crate) fn amount(cost: f64) -> Cost {
    Cost::new(cost).expect("a cost of a simulation is an amount")
}
