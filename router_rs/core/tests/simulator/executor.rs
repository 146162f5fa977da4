//! How a replica spends its time: a state machine that is told the time and says what is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use router_core::{BatchLoad, CostLoad, Nanos};

use super::scenario::{Executes, Scenario, millis};
use super::steps::Stepper;

/// A call inside a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Job {
    pub(crate) call: u32,
    pub(crate) attempt: u32,
    pub(crate) entered_at: Nanos,
    /// At speed 1, before what is kept makes it less or more.
    pub(crate) work: Nanos,
    /// The part of it that holds an event loop.
    pub(crate) blocking: Nanos,
    pub(crate) key: Option<u32>,
    pub(crate) is_long: bool,
    /// How long the replica worked on it and on nothing else.
    pub(crate) alone: Option<Nanos>,
}

/// Counts of keys in one replica, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) steps: u64,
    pub(crate) stepped: u64,
    /// Time with at least one job running.
    pub(crate) busy: Nanos,
}

#[derive(Debug)]
pub(crate) struct Executor {
    kind: Kind,
    slowness: f64,
    kept: Kept,
    pub(crate) counts: Counts,
}

#[derive(Debug)]
enum Kind {
    Serial(EventLoop),
    Shared(Shared),
    Steps(Stepper),
    Parallel { running: BinaryHeap<Reverse<(Nanos, Job)>> },
    Workers { waiting: VecDeque<Job>, running: BinaryHeap<Reverse<(Nanos, Job)>>, free: usize },
    Batches { waiting: VecDeque<Job>, running: Vec<Job>, ends_at: Nanos, step: Step, line: Line },
}

/// Who holds an event loop, who waits for it, and who awaits something else, with its end.
#[derive(Debug, Default)]
struct EventLoop {
    waiting: VecDeque<Job>,
    running: Option<(Job, Nanos)>,
    awaiting: BinaryHeap<Reverse<(Nanos, Job)>>,
}

/// Calls that share one processor evenly, with what is left of each, in nanoseconds alone.
#[derive(Debug, Default)]
struct Shared {
    running: Vec<(f64, Job)>,
    at: Nanos,
}

/// What a batcher has learnt of its steps, as `pyserve/batching/steps.py`: a line through sizes and
/// times.
#[derive(Debug, Default)]
struct Line {
    /// Of weights, sizes, squares of sizes, times, sizes × times.
    sums: [f64; 5],
}

#[derive(Clone, Copy, Debug)]
struct Step {
    size_max: usize,
    window: Nanos,
    fixed: Nanos,
    per_call: Nanos,
    takes_work: bool,
}

/// The models, or the prefixes, that a replica has in its memory.
#[derive(Debug)]
struct Kept {
    slots: usize,
    /// The most recently used is the last.
    keys: Vec<u32>,
    load: Nanos,
    saves: f64,
    /// The extra time of the next call.
    cold: Nanos,
    changed: bool,
}

// === impl Executor ===

impl Executor {
    pub(crate) fn new(scenario: &Scenario, speed: f64) -> Self {
        let kind = match scenario.executes {
            Executes::Serial => Kind::Serial(EventLoop::default()),
            Executes::Shared => Kind::Shared(Shared::default()),
            Executes::Steps => {
                Kind::Steps(Stepper::new(&scenario.steps, millis(scenario.step_fixed_ms)))
            }
            Executes::Parallel => Kind::Parallel { running: BinaryHeap::new() },
            Executes::Workers => Kind::Workers {
                waiting: VecDeque::new(),
                running: BinaryHeap::new(),
                free: scenario.workers,
            },
            Executes::Batches => Kind::Batches {
                waiting: VecDeque::new(),
                running: Vec::new(),
                ends_at: Nanos::ZERO,
                step: Step {
                    size_max: scenario.batch_size_max,
                    window: millis(scenario.batch_window_ms),
                    fixed: millis(scenario.step_fixed_ms),
                    per_call: millis(scenario.step_per_call_ms),
                    takes_work: scenario.step_takes_work,
                },
                line: Line::default(),
            },
        };
        let kept = Kept {
            slots: scenario.slots,
            keys: Vec::new(),
            load: millis(scenario.load_works * scenario.work_ms),
            saves: scenario.prefix_saves,
            cold: millis(scenario.cold_ms),
            changed: false,
        };
        Self { kind, slowness: 1.0 / speed, kept, counts: Counts::default() }
    }

    pub(crate) fn add(&mut self, job: Job, now: Nanos) {
        match &mut self.kind {
            Kind::Workers { running, .. } if job.is_long => {
                running.push(Reverse((now.saturating_add(job.work), job)));
            }
            Kind::Serial(EventLoop { waiting, .. })
            | Kind::Batches { waiting, .. }
            | Kind::Workers { waiting, .. } => waiting.push_back(job),
            Kind::Steps(stepper) => stepper.add(job),
            Kind::Shared(shared) => {
                let takes = times(self.kept.work(&job, &mut self.counts), self.slowness);
                shared.add(job, takes, now);
            }
            Kind::Parallel { running } => {
                let takes = times(self.kept.work(&job, &mut self.counts), self.slowness);
                running.push(Reverse((now.saturating_add(takes), job)));
            }
        }
        self.start(now);
    }

    /// When [`Executor::advance`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Serial(event_loop) => event_loop.next_wakeup(),
            Kind::Shared(shared) => shared.next_wakeup(),
            Kind::Steps(stepper) => stepper.next_wakeup(),
            Kind::Parallel { running } | Kind::Workers { running, .. } => {
                running.peek().map(|Reverse((at, _))| *at)
            }
            Kind::Batches { running, ends_at, .. } if !running.is_empty() => Some(*ends_at),
            Kind::Batches { waiting, step, .. } => {
                waiting.front().map(|first| first.entered_at.saturating_add(step.window))
            }
        }
    }

    /// Ends what is over by now and starts what can start.
    pub(crate) fn advance(&mut self, now: Nanos, done: &mut Vec<Job>) {
        match &mut self.kind {
            Kind::Serial(event_loop) => event_loop.advance(self.slowness, now, done),
            Kind::Shared(shared) => shared.advance(now, done),
            Kind::Steps(stepper) => stepper.advance(now, done),
            Kind::Parallel { running } => {
                while running.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                    done.extend(running.pop().map(|Reverse((_, job))| job));
                }
            }
            Kind::Workers { running, free, .. } => {
                while running.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                    let ended = running.pop().map(|Reverse((_, job))| job);
                    *free += usize::from(ended.is_some_and(|job| !job.is_long));
                    done.extend(ended);
                }
            }
            Kind::Batches { running, ends_at, .. } if *ends_at <= now => done.append(running),
            Kind::Batches { .. } => {}
        }
        self.start(now);
    }

    /// Takes out a call that has not begun; one that runs goes on, its caller gone or not.
    pub(crate) fn cancel(&mut self, call: u32) -> bool {
        match &mut self.kind {
            Kind::Serial(EventLoop { waiting, .. })
            | Kind::Batches { waiting, .. }
            | Kind::Workers { waiting, .. } => {
                let before = waiting.len();
                waiting.retain(|job| job.call != call);
                waiting.len() < before
            }
            // Nobody cancels there.
            Kind::Shared(_) => false,
            Kind::Steps(stepper) => stepper.cancel(call),
            Kind::Parallel { running } => {
                let before = running.len();
                running.retain(|Reverse((_, job))| job.call != call);
                running.len() < before
            }
        }
    }

    /// The process is gone: everything inside breaks off.
    pub(crate) fn crash(&mut self, broken: &mut Vec<Job>) {
        match &mut self.kind {
            Kind::Serial(event_loop) => event_loop.crash(broken),
            Kind::Steps(stepper) => stepper.crash(broken),
            Kind::Shared(shared) => broken.extend(shared.running.drain(..).map(|(_, job)| job)),
            Kind::Parallel { running } => {
                broken.extend(running.drain().map(|Reverse((_, job))| job));
            }
            Kind::Workers { waiting, running, .. } => {
                broken.extend(running.drain().map(|Reverse((_, job))| job));
                broken.extend(waiting.drain(..));
            }
            Kind::Batches { waiting, running, .. } => {
                broken.append(running);
                broken.extend(waiting.drain(..));
            }
        }
    }

    /// From now on everything takes `factor` times as long, what a serial replica runs included.
    pub(crate) fn slow_down(&mut self, factor: f64, now: Nanos) {
        self.slowness *= factor;
        if let Kind::Serial(EventLoop { running: Some((_, ends_at)), .. }) = &mut self.kind {
            let left = ends_at.saturating_sub(now);
            self.counts.busy = self.counts.busy.saturating_sub(left);
            let left = times(left, factor);
            self.counts.busy = self.counts.busy.saturating_add(left);
            *ends_at = now.saturating_add(left);
        }
    }

    /// The keys that are kept, if they have changed since the last call.
    pub(crate) fn changed_keys(&mut self) -> Option<Vec<u32>> {
        std::mem::take(&mut self.kept.changed).then(|| self.kept.keys.clone())
    }

    /// An event loop that nobody holds, although there are calls.
    pub(crate) fn awaits(&self) -> bool {
        match &self.kind {
            Kind::Serial(EventLoop { running: None, awaiting, .. }) => !awaiting.is_empty(),
            _ => false,
        }
    }

    /// The batcher's report about itself.
    pub(crate) fn batch_load(&self, now: Nanos) -> Option<BatchLoad> {
        let Kind::Batches { waiting, running, ends_at, step, line } = &self.kind else {
            return None;
        };
        let opened = waiting.front().map_or(now, |first| first.entered_at);
        let busy = if running.is_empty() { Nanos::ZERO } else { ends_at.saturating_sub(now) };
        Some(BatchLoad {
            size_max: step.size_max as u32,
            waiting: waiting.len() as u32,
            busy,
            window: opened.saturating_add(step.window).saturating_sub(now),
            step_fixed: line.fixed().unwrap_or_else(|| times(step.fixed, self.slowness)),
            step_per_call: line.per_call().unwrap_or_else(|| times(step.per_call, self.slowness)),
        })
    }

    /// What its requests cost, with the answer of `job` or by itself.
    pub(crate) fn cost_load(&self, job: Option<&Job>) -> Option<CostLoad> {
        match &self.kind {
            Kind::Steps(stepper) => Some(stepper.report(job)),
            _ => None,
        }
    }

    fn start(&mut self, now: Nanos) {
        let Self { kind, slowness, kept, counts } = self;
        match kind {
            Kind::Serial(EventLoop { waiting, running: running @ None, .. }) => {
                if let Some(mut job) = waiting.pop_front() {
                    let awaited = job.work.saturating_sub(job.blocking);
                    let blocks = kept.work(&job, counts).saturating_sub(awaited);
                    let blocks = times(blocks, *slowness);
                    counts.busy = counts.busy.saturating_add(blocks);
                    job.alone = (awaited == Nanos::ZERO).then_some(blocks);
                    *running = Some((job, now.saturating_add(blocks)));
                }
            }
            Kind::Workers { waiting, running, free } => {
                while *free > 0 {
                    let Some(job) = waiting.pop_front() else { return };
                    *free -= 1;
                    let takes = times(kept.work(&job, counts), *slowness);
                    running.push(Reverse((now.saturating_add(takes), job)));
                }
            }
            Kind::Batches { waiting, running, ends_at, step, line } if running.is_empty() => {
                let Some(first) = waiting.front() else { return };
                let leaves_at = first.entered_at.saturating_add(step.window);
                if waiting.len() < step.size_max && now < leaves_at {
                    return;
                }
                let size = waiting.len().min(step.size_max);
                running.extend(waiting.drain(..size));
                let works = running.iter().map(|job| job.work).max().unwrap_or_default();
                let takes = step.fixed.saturating_add(step.per_call.saturating_mul(size as u64));
                let takes = if step.takes_work { takes.saturating_add(works) } else { takes };
                let takes = times(takes, *slowness);
                if step.takes_work {
                    line.learn(size as f64, takes.0 as f64);
                }
                counts.busy = counts.busy.saturating_add(takes);
                counts.steps += 1;
                counts.stepped += size as u64;
                *ends_at = now.saturating_add(takes);
            }
            Kind::Steps(stepper) => stepper.start(*slowness, counts, now),
            Kind::Serial(_) | Kind::Shared(_) | Kind::Parallel { .. } | Kind::Batches { .. } => {}
        }
    }
}

// === impl EventLoop ===

impl EventLoop {
    fn next_wakeup(&self) -> Option<Nanos> {
        let awaiting = self.awaiting.peek().map(|Reverse((at, _))| *at);
        self.running.map(|(_, ends_at)| ends_at).into_iter().chain(awaiting).min()
    }

    /// A call that has held the loop awaits its rest after that.
    fn advance(&mut self, slowness: f64, now: Nanos, done: &mut Vec<Job>) {
        if let Some((job, _)) = self.running.take_if(|(_, ends_at)| *ends_at <= now) {
            if job.alone.is_some() {
                done.push(job);
            } else {
                let awaited = times(job.work.saturating_sub(job.blocking), slowness);
                self.awaiting.push(Reverse((now.saturating_add(awaited), job)));
            }
        }
        while self.awaiting.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            done.extend(self.awaiting.pop().map(|Reverse((_, job))| job));
        }
    }

    fn crash(&mut self, broken: &mut Vec<Job>) {
        broken.extend(self.running.take().map(|(job, _)| job));
        broken.extend(self.waiting.drain(..));
        broken.extend(self.awaiting.drain().map(|Reverse((_, job))| job));
    }
}

// === impl Shared ===

impl Shared {
    fn add(&mut self, job: Job, takes: Nanos, now: Nanos) {
        self.pass(now);
        self.running.push((takes.0 as f64, job));
    }

    fn pass(&mut self, now: Nanos) {
        let each = now.saturating_sub(self.at).0 as f64 / self.running.len().max(1) as f64;
        self.running.iter_mut().for_each(|(left, _)| *left -= each);
        self.at = now;
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        let least = self.running.iter().map(|(left, _)| *left).min_by(f64::total_cmp)?;
        let after = (least.max(0.0) * self.running.len() as f64).ceil();
        Some(self.at.saturating_add(Nanos(after as u64)))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Job>) {
        self.pass(now);
        // Less than a nanosecond is left by rounding.
        done.extend(self.running.extract_if(.., |(left, _)| *left < 1.0).map(|(_, job)| job));
    }
}

// === impl Line ===

impl Line {
    /// Of the runs, an older one weighs a fiftieth less than the next.
    fn learn(&mut self, size: f64, takes: f64) {
        for (sum, of_run) in self.sums.iter_mut().zip([1.0, size, size * size, takes, size * takes])
        {
            *sum = *sum * 0.98 + of_run;
        }
    }

    fn per_call(&self) -> Option<Nanos> {
        let [weight, size, squares, takes, product] = self.sums;
        if weight == 0.0 {
            return None;
        }
        let (size, takes) = (size / weight, takes / weight);
        let variance = (squares / weight - size * size).max(0.0) + 0.05;
        let slope = (product / weight - size * takes) / variance;
        Some(Nanos(slope.clamp(0.0, takes / size) as u64))
    }

    fn fixed(&self) -> Option<Nanos> {
        let per_call = self.per_call()?.0 as f64;
        let [weight, size, _, takes, _] = self.sums;
        Some(Nanos(((takes - per_call * size) / weight).max(0.0) as u64))
    }
}

// === impl Kept ===

impl Kept {
    /// What `job` takes at speed 1, now that it begins.
    fn work(&mut self, job: &Job, counts: &mut Counts) -> Nanos {
        let cold = std::mem::take(&mut self.cold);
        let Some(key) = job.key else { return job.work.saturating_add(cold) };
        if self.touch(key) {
            counts.hits += 1;
            return times(job.work, 1.0 - self.saves);
        }
        counts.misses += 1;
        job.work.saturating_add(self.load)
    }

    /// Makes `key` the most recently used; returns whether it was there.
    fn touch(&mut self, key: u32) -> bool {
        let place = self.keys.iter().position(|kept| *kept == key);
        if let Some(place) = place {
            self.keys.remove(place);
        } else {
            self.changed = true;
            if self.keys.len() >= self.slots {
                self.keys.remove(0);
            }
        }
        self.keys.push(key);
        place.is_some()
    }
}

pub(super) fn times(time: Nanos, factor: f64) -> Nanos {
    Nanos((time.0 as f64 * factor).round() as u64)
}
