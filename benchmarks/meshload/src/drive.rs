//! Runs the simulation: replicas join, watchers watch, changes follow a schedule, numbers come out.
//!
//! One thread does all of it, since the controller needs the other processor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::HeaderValue;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_local;
use tokio::time::{sleep, sleep_until};

use crate::ledger::{Ledger, View};
use crate::link::{LinkError, Target};
use crate::messages::{WatchRequest, WatchUpdate};
use crate::options::Options;
use crate::replica::{Deed, Identity, Replica};

/// The controller writes with one thread, at a few milliseconds each; this bounds the wait for it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Of each ten changes so many replace a replica: one leaves, one comes. The rest are texts.
const REPLACING: u64 = 8;
const ROUND: u64 = 10;
/// Longer than any news take on the way.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// The run could not begin, or did not end.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error("cannot read the token from {path}: {why}")]
    Token { path: String, why: String },
    #[error("{0} replicas and watchers are not there after {SETTLE_TIMEOUT:?}; {1}")]
    Late(usize, String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What came out; the names are the interface to `benchmarks/control_scale.py`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) window_s: f64,
    pub(crate) changes: u64,
    pub(crate) changes_per_s: f64,
    /// From the change to the last watcher that has read of it.
    pub(crate) delay_p50_ms: f64,
    pub(crate) delay_p99_ms: f64,
    pub(crate) delay_max_ms: f64,
    /// What one watcher received, divided by the changes.
    pub(crate) bytes_per_change: f64,
    pub(crate) updates_per_watcher_per_s: f64,
    /// Replicas that updates named, for each change; 1 when nothing is said in vain.
    pub(crate) replicas_named_per_change: f64,
    pub(crate) join_s: f64,
    /// Changes that did not reach every watcher.
    pub(crate) missing: usize,
    /// Streams that broke, with the last reason.
    pub(crate) broken: u64,
    pub(crate) broken_why: String,
}

/// A replica that serves.
#[derive(Debug)]
struct Member {
    number: usize,
    deeds: mpsc::UnboundedSender<Deed>,
    /// Until then it says nothing more: of two texts in one update nobody sees the first.
    quiet_until: Instant,
}

/// State that the tasks of a run share.
#[derive(Debug)]
struct Run {
    options: Options,
    target: Target,
    ledger: Rc<RefCell<Ledger>>,
    /// Those that serve and that every watcher may know, oldest first.
    serving: RefCell<VecDeque<Member>>,
    next_number: Cell<usize>,
    watching: Cell<usize>,
    broken: Cell<u64>,
    broken_why: RefCell<String>,
}

/// Run to the end; calls `announce` when a phase begins.
pub(crate) async fn run(options: Options, announce: fn(&str)) -> Result<Report, RunError> {
    let begun = Instant::now();
    let run = Rc::new(Run::new(options)?);
    announce("joining");
    run.join_all().await?;
    let join_s = begun.elapsed().as_secs_f64();
    run.watch_all().await?;
    sleep(Duration::from_secs(1)).await;
    announce("idle");
    sleep(Duration::from_secs_f64(run.options.idle_s)).await;
    announce("changing");
    run.change_for(run.options.warmup_s).await;
    run.ledger.borrow_mut().begin();
    announce("measuring");
    let window = Instant::now();
    run.change_for(run.options.duration_s).await;
    announce("measured");
    let window_s = window.elapsed().as_secs_f64();
    let last = Instant::now() + Duration::from_secs(10);
    while run.ledger.borrow().pending() > 0 && Instant::now() < last {
        sleep(LOOK_INTERVAL).await;
    }
    Ok(run.report(window_s, join_s))
}

// === impl Run ===

impl Run {
    fn new(options: Options) -> Result<Self, RunError> {
        let fail =
            |why: String| RunError::Token { path: options.token_file.display().to_string(), why };
        let text = fs::read_to_string(&options.token_file).map_err(|why| fail(why.to_string()))?;
        let token = unhex(text.trim()).ok_or_else(|| fail("it is not hexadecimal".to_owned()))?;
        let token = HeaderValue::from_str(&STANDARD_NO_PAD.encode(token))
            .expect("invariant: base64 is visible ASCII");
        Ok(Self {
            target: Target { controller: options.controller.clone(), token },
            ledger: Rc::new(RefCell::new(Ledger::new(options.watchers))),
            serving: RefCell::default(),
            next_number: Cell::new(0),
            watching: Cell::new(0),
            broken: Cell::new(0),
            broken_why: RefCell::default(),
            options,
        })
    }

    async fn join_all(self: &Rc<Self>) -> Result<(), RunError> {
        let room = Arc::new(Semaphore::new(self.options.joining));
        for _ in 0..self.options.replicas {
            let run = Rc::clone(self);
            let turn = Arc::clone(&room).acquire_owned().await.expect("invariant: it stays open");
            spawn_local(async move {
                let _turn = turn;
                run.come().await;
            });
        }
        let all = self.options.replicas;
        self.until(|run| run.serving.borrow().len(), all).await?;
        // Nobody watches yet, so nothing of it is a change.
        *self.ledger.borrow_mut() = Ledger::new(self.options.watchers);
        Ok(())
    }

    async fn watch_all(self: &Rc<Self>) -> Result<(), RunError> {
        for number in 0..self.options.watchers {
            let run = Rc::clone(self);
            spawn_local(async move {
                let ended = run.watch(number).await;
                run.on_broken(&ended);
            });
        }
        self.until(|run| run.watching.get(), self.options.watchers).await
    }

    async fn until(&self, count: fn(&Self) -> usize, wanted: usize) -> Result<(), RunError> {
        let last = Instant::now() + SETTLE_TIMEOUT;
        while count(self) < wanted {
            if Instant::now() >= last {
                let why = self.broken_why.borrow().clone();
                return Err(RunError::Late(wanted - count(self), why));
            }
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Make changes on schedule, whatever becomes of them.
    async fn change_for(self: &Rc<Self>, seconds: f64) {
        let (rate, health_rate) = (self.options.rate, self.options.health_rate);
        let begun = tokio::time::Instant::now();
        let (mut made, mut reported) = (0_u64, 0_u64);
        loop {
            let due_s = (made as f64 / rate).min(reported as f64 / health_rate);
            if due_s >= seconds {
                return;
            }
            sleep_until(begun + Duration::from_secs_f64(due_s)).await;
            if made as f64 / rate <= due_s {
                self.change(made);
                made += 1;
            } else {
                self.tell(Deed::Falter);
                reported += 2;
            }
        }
    }

    fn change(self: &Rc<Self>, number: u64) {
        match number % ROUND {
            turn if turn < REPLACING && turn % 2 == 0 => {
                let deed = if turn % 4 == 0 { Deed::Leave } else { Deed::Crash };
                let oldest = self.serving.borrow_mut().pop_front();
                // It has gone already if its stream broke, which is counted.
                oldest.map(|member| member.deeds.send(deed));
            }
            turn if turn < REPLACING => {
                let run = Rc::clone(self);
                spawn_local(async move { run.come().await });
            }
            _ => self.tell(Deed::Say(format!(r#"{{"models":["m{number}","n{number}"]}}"#))),
        }
    }

    fn tell(&self, deed: Deed) {
        let now = Instant::now();
        let mut serving = self.serving.borrow_mut();
        // Those at the front are about to leave.
        let front = serving.len() / 4;
        let found = serving.iter_mut().skip(front).find(|member| member.quiet_until <= now);
        if let Some(member) = found {
            member.quiet_until = now + QUIET_TIME;
            // It has gone already if its stream broke, which is counted.
            member.deeds.send(deed).unwrap_or(());
        }
    }

    /// The life of one replica.
    async fn come(self: Rc<Self>) {
        let number = self.next_number.replace(self.next_number.get() + 1);
        let identity = Identity {
            number,
            deployment: number % self.options.deployments,
            pyserve_version: self.options.pyserve_version.clone(),
        };
        match Replica::join(&self.target, &identity, Rc::clone(&self.ledger)).await {
            Ok(replica) => {
                let (deeds, told) = mpsc::unbounded_channel();
                let quiet_until = Instant::now() + QUIET_TIME;
                let member = Member { number, deeds, quiet_until };
                self.serving.borrow_mut().push_back(member);
                let run = Rc::clone(&self);
                spawn_local(async move {
                    if let Err(error) = replica.serve(told).await {
                        run.serving.borrow_mut().retain(|other| other.number != number);
                        run.on_broken(&error);
                    }
                });
            }
            Err(error) => self.on_broken(&error),
        }
    }

    /// Watch until the stream breaks; return why.
    async fn watch(&self, number: usize) -> LinkError {
        match self.follow(number).await {
            Ok(()) => LinkError::Ended,
            Err(error) => error,
        }
    }

    async fn follow(&self, number: usize) -> Result<(), LinkError> {
        let (mut sender, mut receiver) = self.target.open("/pyserve.wire.v1.Mesh/Watch").await?;
        let request = WatchRequest {
            node: format!("watcher-{number}"),
            all: true,
            version: self.options.pyserve_version.clone(),
            takes_patches: self.options.patches,
        };
        sender.send(&request).await?;
        sender.finish()?;
        let mut view = View::default();
        let mut is_first = true;
        loop {
            let update = receiver.next::<WatchUpdate>().await?;
            let ledger = &mut self.ledger.borrow_mut();
            if !view.apply(update.message, update.bytes, ledger, Instant::now()) {
                return Ok(());
            }
            if std::mem::take(&mut is_first) {
                self.watching.set(self.watching.get() + 1);
            }
        }
    }

    fn on_broken(&self, why: &LinkError) {
        self.broken.set(self.broken.get() + 1);
        *self.broken_why.borrow_mut() = why.to_string();
    }

    fn report(&self, window_s: f64, join_s: f64) -> Report {
        let ledger = self.ledger.borrow();
        let delay_ms = |quantile| ledger.delay(quantile).as_secs_f64() * 1000.0;
        let changes = ledger.counted.max(1) as f64;
        let watchers = self.options.watchers.max(1) as f64;
        Report {
            window_s,
            changes: ledger.counted,
            changes_per_s: ledger.counted as f64 / window_s,
            delay_p50_ms: delay_ms(0.5),
            delay_p99_ms: delay_ms(0.99),
            delay_max_ms: delay_ms(1.0),
            bytes_per_change: ledger.bytes as f64 / watchers / changes,
            updates_per_watcher_per_s: ledger.updates as f64 / watchers / window_s,
            replicas_named_per_change: ledger.replicas_named as f64 / watchers / changes,
            join_s,
            missing: ledger.pending(),
            broken: self.broken.get(),
            broken_why: self.broken_why.borrow().clone(),
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
