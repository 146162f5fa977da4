//! I/O threads: each owns a single-threaded runtime, and a queue through which other threads
//! give it work with at most one wake-up per batch.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::SegQueue;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::time::{MissedTickBehavior, interval};

use super::poller_mark::PollerMark;

/// Work that another thread gives to an I/O thread.
pub enum Work {
    /// Runs on the thread, inside its runtime (`spawn_local` works there).
    Run(Box<dyn FnOnce() + Send>),
    /// Lets the recipient look at what was left for it.
    Look(Arc<dyn Recipient>),
}

/// Something on an I/O thread for which other threads leave messages.
pub trait Recipient: Send + Sync {
    /// Something was left; runs on its thread.
    fn look(&self);
}

impl std::fmt::Debug for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Work::Run(_) => "Run",
            Work::Look(_) => "Look",
        })
    }
}

#[derive(Debug)]
struct Shared {
    queue: SegQueue<Work>,
    /// True from a submit until the pump has begun to drain: later submits need no wake-up.
    is_woken: AtomicBool,
    is_stopping: AtomicBool,
    /// The thread checks its queue by itself from time to time; see `look_soon`.
    is_looking: AtomicBool,
    waker: AtomicWaker,
}

/// How often a thread checks its queue by itself, while it is given work. Arbitrary: user code that
/// holds its loop for less does not delay its requests by more than that.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// After this many checks without work they stop until there is some. Arbitrary.
const IDLE_LOOKS_MAX: u32 = 20;

/// Threads beside each I/O thread for long work: they convert long bodies. More of them would hold
/// more messages at once, and take more of the machine from small requests.
pub const BLOCKING_THREADS_MAX: usize = 1;

/// Work that must be done once at the end of this turn of an I/O thread, however often it is
/// requested.
pub trait TurnEnd: Send + Sync {
    fn run(&self);
}

thread_local! {
    /// The work to do once the tasks that are ready now have run.
    static AT_TURN_END: RefCell<Vec<Arc<dyn TurnEnd>>> = const { RefCell::new(Vec::new()) };
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Runs `work` when the tasks that are ready now have run, or immediately on a foreign thread.
///
/// So one wake-up of a consumer covers everything that a turn has produced.
pub fn at_turn_end(work: Arc<dyn TurnEnd>) {
    let is_deferred = CURRENT.with_borrow(|current| {
        let Some(shared) = current else { return false };
        AT_TURN_END.with_borrow_mut(|waiting| waiting.push(work.clone()));
        // The pump goes to the end of the run queue, after all tasks that are ready now.
        shared.waker.wake();
        true
    });
    if !is_deferred {
        work.run();
    }
}

/// A handle to one I/O thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct IoThread {
    shared: Arc<Shared>,
}

impl IoThread {
    /// The current I/O thread; `None` on any other thread.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(|current| current.clone().map(|shared| Self { shared }))
    }

    /// Queues work without waking the thread; `wake` must follow.
    pub fn queue(&self, work: Work) {
        self.shared.queue.push(work);
    }

    /// Makes the thread check for queued work soon, whenever `wake` follows: immediately if it has
    /// had none for a while, else at its next check.
    ///
    /// So requests of user code are sent even if it then holds its event loop, and a stream of
    /// calls costs no wake-ups besides those of its turns.
    pub fn look_soon(&self) {
        // Pairs with the fence in `look_now_and_then`: either it sees the work, or this sees that
        // it has ended.
        fence(Ordering::SeqCst);
        let is_looking = &self.shared.is_looking;
        if !is_looking.load(Ordering::Relaxed) && !is_looking.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the thread if it has not taken all its work already.
    pub fn wake_for_work(&self) {
        if !self.shared.queue.is_empty() {
            self.wake();
        }
    }

    /// Wakes the thread unless a wake-up is already under way.
    pub fn wake(&self) {
        if !self.shared.is_woken.swap(true, Ordering::AcqRel) {
            self.shared.waker.wake();
        }
    }

    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.queue(Work::Run(Box::new(work)));
        self.wake();
    }

    pub fn is_same(&self, other: &IoThread) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

type Looking = tokio::task::JoinHandle<()>;

/// The thread's main future: drains the queue until it is stopped.
struct Pump {
    shared: Arc<Shared>,
    looking: Option<Looking>,
    had_work: Rc<Cell<bool>>,
}

/// Checks the queue from time to time, until there was no work for a while.
async fn look_now_and_then(shared: Arc<Shared>, had_work: Rc<Cell<bool>>) {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut idle = 0;
    while idle < IDLE_LOOKS_MAX {
        looks.tick().await;
        if !shared.queue.is_empty() {
            shared.waker.wake();
        }
        idle = if had_work.replace(false) { 0 } else { idle + 1 };
    }
    shared.is_looking.store(false, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if !shared.queue.is_empty() {
        shared.waker.wake();
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.shared.waker.register(context.waker());
            // The read-modify-write pairs with the one in `wake`: a thread that found the flag
            // still set has pushed before this, so the drain below sees its work.
            self.shared.is_woken.swap(false, Ordering::AcqRel);
            while let Some(work) = self.shared.queue.pop() {
                self.had_work.set(true);
                match work {
                    // A panic is a bug, but only of this piece of work.
                    Work::Run(work) => drop(catch_unwind(AssertUnwindSafe(work))),
                    Work::Look(recipient) => recipient.look(),
                }
            }
            let ending = AT_TURN_END.take();
            for work in ending {
                work.run();
            }
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            self.look();
            if !self.shared.is_woken.load(Ordering::Acquire) {
                return Poll::Pending;
            }
        }
    }
}

impl Pump {
    /// Begins to check from time to time, if requested.
    fn look(&mut self) {
        let is_over = self.looking.as_ref().is_none_or(Looking::is_finished);
        if is_over && self.shared.is_looking.load(Ordering::Relaxed) {
            let looking = look_now_and_then(self.shared.clone(), self.had_work.clone());
            self.looking = Some(tokio::task::spawn_local(looking));
        }
    }
}

/// A group of I/O threads. Dropping it stops and joins them.
#[derive(Debug)]
pub struct IoThreads {
    threads: Vec<IoThread>,
    joins: Mutex<Vec<JoinHandle<()>>>,
    next: AtomicUsize,
}

impl IoThreads {
    /// Starts `count` threads named `{name}-{index}` (at most 15 bytes are shown by the kernel).
    ///
    /// # Errors
    /// The operating system's error when it refuses a thread or a poller.
    pub fn start(name: &str, count: usize) -> io::Result<Arc<Self>> {
        let mut threads = Vec::with_capacity(count);
        let mut joins = Vec::with_capacity(count);
        for index in 0..count.max(1) {
            let (thread, join) = start_one(&format!("{name}-{index}"))?;
            threads.push(thread);
            joins.push(join);
        }
        Ok(Arc::new(Self { threads, joins: Mutex::new(joins), next: AtomicUsize::new(0) }))
    }

    pub fn all(&self) -> &[IoThread] {
        &self.threads
    }

    /// The threads in turn.
    pub fn next(&self) -> &IoThread {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        &self.threads[index]
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.shared.is_stopping.store(true, Ordering::Release);
            thread.shared.is_woken.store(true, Ordering::Release);
            thread.shared.waker.wake();
        }
        let own = std::thread::current().id();
        for join in self.joins.lock().drain(..) {
            // The last handle may be dropped on an I/O thread itself, which cannot wait for its own
            // end.
            if join.thread().id() != own {
                let _ = join.join();
            }
        }
    }
}

fn start_one(name: &str) -> io::Result<(IoThread, JoinHandle<()>)> {
    let shared = Arc::new(Shared {
        queue: SegQueue::new(),
        is_woken: AtomicBool::new(false),
        is_stopping: AtomicBool::new(false),
        is_looking: AtomicBool::new(false),
        waker: AtomicWaker::new(),
    });
    let runtime_sender = std::sync::mpsc::sync_channel(1);
    let (sender, receiver) = runtime_sender;
    let queue = shared.clone();
    let join = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        match start_runtime() {
            Ok((runtime, _mark)) => {
                let _ = sender.send(Ok(()));
                CURRENT.replace(Some(queue.clone()));
                let pump = Pump { shared: queue, looking: None, had_work: Rc::default() };
                // As a task: waking the runtime's root future costs a system call even from its own
                // thread; waking a task there is a push to the run queue.
                runtime.block_on(async {
                    let ended = tokio::task::spawn_local(pump).await;
                    ended.expect("invariant: the pump catches what its work throws");
                });
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        }
    })?;
    receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the I/O thread ended at once")))?;
    Ok((IoThread { shared }, join))
}

fn start_runtime() -> io::Result<(LocalRuntime, PollerMark)> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build_local(LocalOptions::default())?;
    let mark = {
        let _inside = runtime.enter();
        PollerMark::new()?
    };
    Ok((runtime, mark))
}

/// Wakes the task once the thread has checked its sockets and timers again. A task that wakes
/// itself runs up to 61 times before that, the runtime's interval.
pub fn poll_others_first(cx: &mut Context<'_>) {
    let next_turn = pin!(tokio::task::yield_now());
    let is_deferred = next_turn.poll(cx).is_pending();
    debug_assert!(is_deferred, "a yield that is polled once is pending");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_piece_of_work_from_many_threads_runs_once() {
        let threads = IoThreads::start("test", 2).unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for worker in 0..4_u32 {
                let (threads, sender) = (threads.clone(), sender.clone());
                scope.spawn(move || {
                    for index in 0..1000_u32 {
                        let sender = sender.clone();
                        threads.next().run(move || sender.send(worker * 1000 + index).unwrap());
                    }
                });
            }
        });
        let mut seen: Vec<u32> = (0..4000)
            .map(|_| receiver.recv_timeout(Duration::from_secs(10)).expect("work is not lost"))
            .collect();
        seen.sort_unstable();
        assert_eq!((0..4000).collect::<Vec<_>>(), seen);
    }

    #[test]
    fn work_that_nobody_wakes_a_thread_for_is_looked_at_soon() {
        let threads = IoThreads::start("test", 1).unwrap();
        let thread = threads.next();
        let (sender, receiver) = mpsc::channel();
        // While it sleeps, and while it looks by itself, and after that.
        for pause in [0, 0, 1, 10, 300].map(Duration::from_millis) {
            std::thread::sleep(pause);
            let sender = sender.clone();
            thread.queue(Work::Run(Box::new(move || sender.send(()).unwrap())));
            thread.look_soon();
            receiver.recv_timeout(Duration::from_secs(10)).expect("it is looked at");
        }
    }

    #[test]
    fn dropping_the_group_ends_its_threads() {
        let threads = IoThreads::start("test", 1).unwrap();
        let alive = Arc::new(());
        let held = alive.clone();
        threads.next().run(move || {
            tokio::task::spawn_local(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        });
        drop(threads);
        assert_eq!(1, Arc::strong_count(&alive));
    }
}
