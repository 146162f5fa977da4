//! Runs a plan: connects, starts calls, waits for their ends, hands the samples to the report.
//!
//! One thread does all I/O; in an open loop a second one sleeps until the next call is due, as
//! the runtime's timers are too coarse (1 ms) to start calls by.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep_until, timeout};

use crate::connect::{Client, ConnectError, Connector};
use crate::cpu::process_cpu_s;
use crate::options::{Loop, Plan};
use crate::report::{Report, RunFacts};
use crate::sampling::{CallTimes, Samples, Window};
use crate::schedule::Schedule;

/// Due calls on the way from the timer thread; beyond it the thread waits and the calls' due
/// times stand, so nothing is hidden.
const DUE_QUEUE_LEN: usize = 4096;

/// The run could not begin.
#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
}

/// Run the plan to its end; blocks.
///
/// `announce` is called when the measurement begins and when it ends.
pub fn run(plan: &Plan, announce: fn(Moment)) -> Result<Report, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?;
    let local = LocalSet::new();
    let run = local.block_on(&runtime, drive(plan, announce))?;
    // Dropping the tasks that are left counts their calls as unanswered.
    drop(local);
    run.on_moment(Moment::Measured);
    let samples = run.samples.borrow();
    Ok(Report::new(plan, &samples, &run.facts()))
}

/// The two ends of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Measuring,
    Measured,
}

/// The state that the tasks of a run share.
struct Run {
    plan: Plan,
    begun: Instant,
    begin_ns: u64,
    /// `None`: the run ends by count.
    end_ns: Option<u64>,
    samples: RefCell<Samples>,
    measured_starts: Cell<u64>,
    /// Tasks alive: workers of a closed loop, calls of an open one.
    active: Cell<usize>,
    idle: Notify,
    connections_lost: Cell<u64>,
    cpu_begin_s: Cell<Option<f64>>,
    cpu_end_s: Cell<Option<f64>>,
    ended_ns: Cell<Option<u64>>,
    announce: fn(Moment),
}

async fn drive(plan: &Plan, announce: fn(Moment)) -> Result<Rc<Run>, RunError> {
    let connector = Connector::new(plan)?;
    let mut senders = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        senders.push(connector.connect().await?);
    }
    let run = Rc::new(Run::new(plan, announce));
    spawn_local(watch_moments(Rc::clone(&run)));
    match plan.drive {
        Loop::ClosedFor { in_flight, .. } | Loop::ClosedCount { in_flight, .. } => {
            for slot in 0..in_flight {
                spawn_local(work(Active::new(&run), senders[slot % senders.len()].clone()));
            }
        }
        Loop::Open { rate_per_s, arrival, seed, outstanding_max, .. } => {
            let schedule = Schedule::new(arrival, rate_per_s, seed);
            start_due_calls(&run, &senders, schedule, outstanding_max).await;
        }
    }
    run.wait_idle().await;
    Ok(run)
}

/// A slot of a closed loop: one call after the other until the end.
async fn work(active: Active, mut sender: Client) {
    let run = &active.0;
    while let Some(due_ns) = run.next_due() {
        if one_call(run, &mut sender, due_ns).await {
            run.connections_lost.set(run.connections_lost.get() + 1);
            return;
        }
    }
}

/// Open loop: start each call when it is due, whatever the earlier ones do.
async fn start_due_calls(
    run: &Rc<Run>,
    senders: &[Client],
    schedule: Schedule,
    outstanding_max: usize,
) {
    let end_ns = run.end_ns.expect("invariant: an open loop has a duration");
    let begun = run.begun;
    let (due_sender, mut due_calls) = mpsc::channel(DUE_QUEUE_LEN);
    // Ends by itself at the last due time, or when the receiver is gone.
    let _detached = std::thread::spawn(move || {
        for due_ns in schedule.take_while(|due_ns| *due_ns < end_ns) {
            let due = begun + Duration::from_nanos(due_ns);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if due_sender.blocking_send(due_ns).is_err() {
                return;
            }
        }
    });
    let mut next_connection = 0;
    while let Some(due_ns) = due_calls.recv().await {
        if run.active.get() >= outstanding_max {
            run.samples.borrow_mut().on_unanswered("not started: too many outstanding");
            continue;
        }
        let active = Active::new(run);
        let mut sender = senders[next_connection].clone();
        next_connection = (next_connection + 1) % senders.len();
        spawn_local(async move {
            if one_call(&active.0, &mut sender, due_ns).await {
                active.0.connections_lost.set(active.0.connections_lost.get() + 1);
            }
        });
    }
}

/// Make one call and record it; `true` when its connection is lost.
async fn one_call(run: &Rc<Run>, sender: &mut Client, due_ns: u64) -> bool {
    let mut unanswered = Unanswered { run, armed: true };
    let start_ns = run.now_ns();
    let ended = sender.call(&run.plan.call).await;
    unanswered.armed = false;
    let times = CallTimes { due_ns, start_ns, end_ns: run.now_ns() };
    run.samples.borrow_mut().on_end(times, &ended.outcome);
    ended.connection_lost
}

async fn watch_moments(run: Rc<Run>) {
    sleep_until((run.begun + Duration::from_nanos(run.begin_ns)).into()).await;
    run.on_moment(Moment::Measuring);
    if let Some(end_ns) = run.end_ns {
        sleep_until((run.begun + Duration::from_nanos(end_ns)).into()).await;
        run.on_moment(Moment::Measured);
    }
}

/// Counts a call as unanswered when it is dropped before its end.
struct Unanswered<'a> {
    run: &'a Run,
    armed: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.run.samples.borrow_mut().on_unanswered("unanswered");
        }
    }
}

/// A task that the run must wait for.
struct Active(Rc<Run>);

impl Active {
    fn new(run: &Rc<Run>) -> Self {
        run.active.set(run.active.get() + 1);
        Self(Rc::clone(run))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        if self.0.active.get() == 0 {
            self.0.idle.notify_one();
        }
    }
}

// === impl Run ===

impl Run {
    fn new(plan: &Plan, announce: fn(Moment)) -> Self {
        let begin_ns = plan.warmup.as_nanos() as u64;
        let (window, end_ns) = match plan.drive {
            Loop::ClosedFor { duration, .. } => {
                let end_ns = begin_ns + duration.as_nanos() as u64;
                (Window::Completed { begin_ns, end_ns }, Some(end_ns))
            }
            Loop::ClosedCount { .. } => (Window::Started { begin_ns }, None),
            Loop::Open { duration, .. } => {
                let end_ns = begin_ns + duration.as_nanos() as u64;
                (Window::Due { begin_ns, end_ns }, Some(end_ns))
            }
        };
        Self {
            plan: plan.clone(),
            begun: Instant::now(),
            begin_ns,
            end_ns,
            samples: RefCell::new(Samples::new(window)),
            measured_starts: Cell::new(0),
            active: Cell::new(0),
            idle: Notify::new(),
            connections_lost: Cell::new(0),
            cpu_begin_s: Cell::new(None),
            cpu_end_s: Cell::new(None),
            ended_ns: Cell::new(None),
            announce,
        }
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// The instant, now, at which a worker of a closed loop begins another call; `None`: no more.
    fn next_due(&self) -> Option<u64> {
        let now_ns = self.now_ns();
        let due = match self.plan.drive {
            _ if now_ns < self.begin_ns => true,
            Loop::ClosedCount { requests, .. } => {
                let starts = self.measured_starts.get();
                self.measured_starts.set((starts + 1).min(requests));
                starts < requests
            }
            Loop::ClosedFor { .. } | Loop::Open { .. } => {
                self.end_ns.is_some_and(|end_ns| now_ns < end_ns)
            }
        };
        due.then_some(now_ns)
    }

    /// Wait until no task is active. What is still active after the drain time is left to be
    /// counted as unanswered: after the end of the window, or, in a run for a count, after that
    /// time without the end of a single call.
    async fn wait_idle(&self) {
        let left_ns = self.end_ns.map_or(0, |end_ns| end_ns.saturating_sub(self.now_ns()));
        let limit = self.plan.drain + Duration::from_nanos(left_ns);
        loop {
            let calls_before = self.samples.borrow().calls_total;
            let timed_out = timeout(limit, self.until_idle()).await.is_err();
            let progress = self.samples.borrow().calls_total > calls_before;
            if !(timed_out && progress && self.end_ns.is_none()) {
                return;
            }
        }
    }

    async fn until_idle(&self) {
        while self.active.get() > 0 {
            self.idle.notified().await;
        }
    }

    fn on_moment(&self, moment: Moment) {
        match moment {
            Moment::Measuring => self.cpu_begin_s.set(process_cpu_s()),
            Moment::Measured if self.ended_ns.get().is_some() => return,
            Moment::Measured => {
                self.cpu_end_s.set(process_cpu_s());
                self.ended_ns.set(Some(self.now_ns()));
            }
        }
        if self.plan.announce {
            (self.announce)(moment);
        }
    }

    fn facts(&self) -> RunFacts {
        let last_end_ns = self.samples.borrow().last_end_ns;
        let end_ns = match self.end_ns {
            Some(end_ns) => end_ns.min(self.ended_ns.get().unwrap_or(end_ns)),
            None => last_end_ns,
        };
        let cpu_s =
            self.cpu_begin_s.get().zip(self.cpu_end_s.get()).map(|(begin, end)| end - begin);
        RunFacts {
            window_s: end_ns.saturating_sub(self.begin_ns) as f64 / 1e9,
            cpu_s,
            connections_lost: self.connections_lost.get(),
        }
    }
}
