//! The ring: events from the I/O threads to one event loop, with one wake-up per batch.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use parking_lot::Mutex;
use router_net::grpc::Message;
use router_net::io::{IoThread, TurnEnd, at_turn_end};
use router_net::link::{Command, Event, EventSink, Mailbox, post};
use router_net::server::{CallSink, ServedCall};

use crate::doorbell::Doorbell;

/// A piece of a stream that is written so long after the last flush leaves at once: the loop may be
/// held by the handler for long. Flushes that are so rare cost nothing that could be measured.
const LASTING: Duration = Duration::from_millis(1);

/// Counters for people and tests.
#[derive(Debug, Default)]
pub(crate) struct RingStats {
    pub(crate) events: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) queue_length_max: AtomicU64,
}

/// An event for the loop.
#[derive(Debug)]
pub(crate) enum Told {
    Call { served_call: Arc<ServedCall>, message: Option<Message> },
    Event(Event),
}

/// Wakes the loop that sleeps on the descriptor.
#[derive(Debug)]
struct Signal {
    descriptor: OwnedFd,
    wakeups: AtomicU64,
}

impl TurnEnd for Signal {
    fn run(&self) {
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        // It can only fail when the counter is full, and then the loop is awake anyway.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }
}

/// Shared by the endpoint in Python and by everything that sends it events.
#[derive(Debug)]
pub(crate) struct Ring {
    queue: SegQueue<(u64, Told)>,
    bell: Doorbell,
    signal: Arc<Signal>,
    is_closed: AtomicBool,
    /// Calls that are sampled are told from others, which costs each a look at its headers.
    tells_traced: AtomicBool,
    /// References to Python's objects were dropped, and wait for a thread of Python.
    has_released: AtomicBool,
    unwoken: Mutex<Unwoken>,
    turns: Turns,
    /// Calls that Python has.
    open_calls: AtomicU64,
    idle_waits: IdleWaits,
    pub(crate) stats: RingStats,
}

impl Ring {
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            queue: SegQueue::new(),
            bell: Doorbell::new(),
            signal: Arc::new(Signal { descriptor, wakeups: AtomicU64::new(0) }),
            is_closed: AtomicBool::new(false),
            tells_traced: AtomicBool::new(false),
            has_released: AtomicBool::new(false),
            unwoken: Mutex::new(Unwoken { threads: Vec::new(), flushed_at: Instant::now() }),
            turns: Turns::new(),
            open_calls: AtomicU64::new(0),
            idle_waits: IdleWaits::default(),
            stats: RingStats::default(),
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.signal.descriptor.as_fd().as_raw_fd()
    }

    /// See `Endpoint.tell_traced`.
    pub(crate) fn tell_traced(&self) {
        self.tells_traced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn tells_traced(&self) -> bool {
        self.tells_traced.load(Ordering::Relaxed)
    }

    pub(crate) fn pop(&self) -> Option<(u64, Told)> {
        self.queue.pop()
    }

    pub(crate) fn wakeups(&self) -> u64 {
        self.signal.wakeups.load(Ordering::Relaxed)
    }

    /// Notes how long the queue was when a drain began.
    pub(crate) fn observe(&self, drained: u64) {
        self.stats.events.fetch_add(drained, Ordering::Relaxed);
        let length = drained + self.queue.len() as u64;
        self.stats.queue_length_max.fetch_max(length, Ordering::Relaxed);
    }

    /// See `Endpoint.arm`.
    pub(crate) fn arm(&self) -> bool {
        let mut count = [0; 8];
        // "Would block" means that nobody rang: as good as an empty read.
        let _ = rustix::io::read(&self.signal.descriptor, &mut count);
        // PyO3 drops released references when this call is entered, so those released later need
        // another call.
        let may_sleep = self
            .bell
            .arm(|| !self.has_released.swap(false, Ordering::AcqRel) && self.queue.is_empty());
        if may_sleep && self.has_open_calls() {
            self.idle_waits.end();
        }
        may_sleep
    }

    /// The loop takes events: what it runs until it does so again is one turn.
    pub(crate) fn begin_turn(&self) {
        self.turns.begin();
    }

    /// Python gets a call, or has let go of one.
    pub(crate) fn count_call(&self, is_begin: bool) {
        if is_begin {
            self.open_calls.fetch_add(1, Ordering::Relaxed);
        } else {
            self.open_calls.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Of a loop that sleeps: its calls await something.
    fn has_open_calls(&self) -> bool {
        self.open_calls.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turns.count.load(Ordering::Relaxed)
    }

    /// A call that began in turn `began` is over: how long the loop worked on it and on nothing else,
    /// if it was one turn.
    pub(crate) fn worked_alone(&self, began: u64) -> Option<Duration> {
        (self.turn() == began).then(|| self.turns.worked())
    }

    /// Queues a command at the call's I/O thread; true when it is the turn's first.
    pub(crate) fn queue(&self, mailbox: Arc<impl Mailbox + 'static>, command: Command) -> bool {
        self.note(post(mailbox, command))
    }

    /// Queues a piece of a stream; true when it is the turn's first command and has not left.
    ///
    /// A handler that computes on the loop writes one piece after the other, long apart, before the
    /// turn ends. Each of them leaves when it is written.
    pub(crate) fn queue_piece(&self, mailbox: Arc<impl Mailbox + 'static>, piece: Command) -> bool {
        let thread = post(mailbox, piece);
        self.stats.commands.fetch_add(1, Ordering::Relaxed);
        let mut unwoken = self.unwoken.lock();
        let is_first = unwoken.add(thread);
        let now = Instant::now();
        if now.saturating_duration_since(unwoken.flushed_at) < LASTING {
            return is_first;
        }
        self.stats.flushes.fetch_add(1, Ordering::Relaxed);
        unwoken.wake(now);
        false
    }

    /// Notes that a thread has work; true when it is the turn's first.
    pub(crate) fn note(&self, thread: IoThread) -> bool {
        self.stats.commands.fetch_add(1, Ordering::Relaxed);
        self.unwoken.lock().add(thread)
    }

    /// Wakes the threads that have commands.
    pub(crate) fn flush(&self) {
        self.stats.flushes.fetch_add(1, Ordering::Relaxed);
        self.unwoken.lock().wake(Instant::now());
    }

    /// After dropping a reference to an object of Python on a thread that has no GIL: makes the
    /// loop enter this module, which is when PyO3 really drops it.
    pub(crate) fn note_release(&self) {
        self.has_released.store(true, Ordering::Release);
        self.ring_bell();
    }

    fn tell(&self, token: u64, told: Told) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        self.queue.push((token, told));
        self.ring_bell();
    }

    fn ring_bell(&self) {
        if self.bell.ring() {
            // The bell rings once until the loop arms it again; the wake-up itself waits until
            // the thread's turn is over, so that the loop finds the whole turn's events.
            at_turn_end(self.signal.clone());
        }
    }

    /// After this, events are dropped: their loop is gone.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        while self.queue.pop().is_some() {}
        self.flush();
    }
}

/// The I/O threads that have commands of this turn and were not woken yet.
#[derive(Debug)]
struct Unwoken {
    threads: Vec<IoThread>,
    flushed_at: Instant,
}

impl Unwoken {
    /// Returns whether it is the first one.
    fn add(&mut self, thread: IoThread) -> bool {
        let is_first = self.threads.is_empty();
        if !self.threads.iter().any(|known| known.is_same(&thread)) {
            self.threads.push(thread);
        }
        is_first
    }

    fn wake(&mut self, now: Instant) {
        self.flushed_at = now;
        for thread in self.threads.drain(..) {
            thread.wake_for_work();
        }
    }
}

/// The number of the loop's current turn, and since when the loop could have begun the next call.
#[derive(Debug)]
struct Turns {
    count: AtomicU64,
    free_since: Mutex<Instant>,
}

impl Turns {
    fn new() -> Self {
        Self { count: AtomicU64::new(0), free_since: Mutex::new(Instant::now()) }
    }

    fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.free_since.lock() = Instant::now();
    }

    fn worked(&self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.free_since.lock(), now))
    }
}

/// Who waits for the loop to sleep, see `CallSink::when_idle`: each server once.
#[derive(Default)]
struct IdleWaits {
    /// The way of nearly all turns: one load.
    has_any: AtomicBool,
    waits: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for IdleWaits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("IdleWaits").field("has_any", &self.has_any).finish_non_exhaustive()
    }
}

impl IdleWaits {
    fn add(&self, then: Box<dyn FnOnce() + Send>) {
        self.waits.lock().push(then);
        self.has_any.store(true, Ordering::SeqCst);
    }

    fn end(&self) {
        if self.has_any.load(Ordering::SeqCst) && self.has_any.swap(false, Ordering::SeqCst) {
            let waits = std::mem::take(&mut *self.waits.lock());
            for then in waits {
                then();
            }
        }
    }
}

impl EventSink for Ring {
    fn push(&self, token: u64, event: Event) {
        self.tell(token, Told::Event(event));
    }
}

impl CallSink for Ring {
    fn begin(&self, served_call: Arc<ServedCall>, message: Option<Message>) {
        self.tell(served_call.link().token, Told::Call { served_call, message });
    }

    fn when_idle(&self, then: Box<dyn FnOnce() + Send>) {
        self.idle_waits.add(then);
        if self.bell.is_armed() && self.has_open_calls() {
            self.idle_waits.end();
        }
    }
}
