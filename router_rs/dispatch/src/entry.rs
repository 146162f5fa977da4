//! One deployment: its router behind a short lock, and the calls that wait there.

mod admission;
mod draws;
mod for_records;
mod guards;
mod listening;
mod loads;
mod members;
mod repeats;
mod slow;
mod ticker;

pub(crate) use guards::{Admission, TicketGuard, WaiterGuard};
pub use members::{Candidate, ReplicaModels};

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Instant;

use http::HeaderValue;
use parking_lot::MutexGuard;
use router_core::{
    Assignment, CacheChange, CostLoad, LeaseRequest, Nanos, Outcome, Release, ReplicaId,
    ReplicaSpec, Router, RouterConfig, Ticket, WaiterId,
};
use router_io::BriefMutex;
use router_io::random::any_u64;
use router_upstream::target::Target;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::records::CallRecords;
use crate::refused::Refused;
use crate::replay_buffer::ReplayBudget;
use crate::tally::Tally;
use draws::Draws;
use loads::Loads;

/// A deployment as calls see it. Shared by all threads; the lock is held for a decision only,
/// never across I/O.
#[derive(Debug)]
pub struct DeploymentEntry {
    pub application: String,
    pub deployment: String,
    pub budget: Arc<ReplayBudget>,
    /// The bits of a `CodeSet`.
    retry_codes: AtomicU32,
    clock: Clock,
    loads: Loads,
    /// A replica has reported what its requests cost.
    hears_costs: AtomicBool,
    pub(super) tally: Tally,
    draws: Draws,
    /// The records of finished calls.
    records: Option<Arc<CallRecords>>,
    locked: BriefMutex<Locked>,
    /// Wakes the ticker when something is due before the end of its sleep.
    earlier: Notify,
}

#[derive(Debug)]
struct Locked {
    router: Router,
    members: Vec<(ReplicaId, Arc<Target>)>,
    /// Exactly the calls that the router has parked, or released without a poll since.
    waiting: HashMap<WaiterId, Waiting>,
    /// Scratch space for the router's answers; empty between calls.
    released: Vec<Release>,
    /// The tasks of slow calls, which give way to waiting ones.
    slow: Vec<Waker>,
    is_removed: bool,
    /// The deployment is scaled to zero. Replicas that appear nevertheless are ordinary members.
    is_scaled_to_zero: bool,
    /// When the ticker wakes; `None` without a ticker.
    ticker: Option<Nanos>,
    /// The replicas at which an ask must stand.
    wanted_asks: Vec<LeaseRequest>,
}

#[derive(Debug)]
enum Waiting {
    Parked(Option<Waker>),
    Over(Wakeup),
}

impl Waiting {
    fn take_waker(&mut self) -> Option<Waker> {
        match self {
            Waiting::Parked(waker) => waker.take(),
            Waiting::Over(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Wakeup {
    Send(Assignment),
    Expired,
    Unreachable,
    Closed(Refused),
}

type Wakers = SmallVec<[Waker; 4]>;

// === impl DeploymentEntry: what calls do ===

impl DeploymentEntry {
    pub(super) fn new(
        application: String,
        deployment: String,
        config: RouterConfig,
        clock: Clock,
        budget: Arc<ReplayBudget>,
        records: Option<Arc<CallRecords>>,
    ) -> Self {
        let draws = Draws::new(config.seed);
        let locked = Locked {
            router: Router::new(config),
            members: Vec::new(),
            waiting: HashMap::new(),
            released: Vec::new(),
            slow: Vec::new(),
            is_removed: false,
            is_scaled_to_zero: false,
            ticker: None,
            wanted_asks: Vec::new(),
        };
        let locked = BriefMutex::new(locked);
        let earlier = Notify::new();
        let loads = Loads::new(any_u64());
        let (retry_codes, tally) = (AtomicU32::default(), Tally::default());
        Self {
            application,
            deployment,
            budget,
            retry_codes,
            clock,
            loads,
            hears_costs: AtomicBool::new(false),
            tally,
            draws,
            records,
            locked,
            earlier,
        }
    }

    /// `replica` reports its models; calls that waited for one may be released.
    pub(super) fn on_models(&self, replica: ReplicaId, models: &[String]) {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.router.models(replica, models, now, &mut locked.released);
        self.finish(guard);
    }

    /// `replica` has reported changes of its cache, or all of it.
    pub(super) fn on_cache(&self, replica: ReplicaId, is_whole: bool, changes: &[CacheChange]) {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.router.caches(replica, (is_whole, changes), now, &mut locked.released);
        self.finish(guard);
    }

    /// `replica` has gone silent, or is back.
    pub(super) fn on_silence(&self, replica: ReplicaId, is_silent: bool) {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        if is_silent {
            locked.router.silent(replica, now, &mut locked.released);
        } else {
            locked.router.heard(replica, now, &mut locked.released);
        }
        self.finish(guard);
    }

    /// `replica` keeps a place for this router; returns whether a parked call takes it.
    pub(super) fn on_lease(&self, replica: ReplicaId) -> bool {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        let is_taken = locked.router.on_lease(replica, now, &mut locked.released);
        self.finish(guard);
        is_taken
    }

    /// Returns the current time.
    pub(super) fn complete(&self, ticket: Ticket, outcome: Outcome) -> Nanos {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.router.complete(ticket, outcome, now, &mut locked.released);
        self.note_costs(locked);
        self.finish(guard);
        now
    }

    /// `replica` says what its requests cost; `None`: it does not say so any more.
    pub(super) fn on_costs(&self, replica: ReplicaId, costs: Option<&CostLoad>) {
        if costs.is_none() && !self.hears_costs() {
            return;
        }
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.router.costs(replica, costs, now, &mut locked.released);
        self.note_costs(locked);
        self.finish(guard);
    }

    /// Whether a replica has reported what its requests cost: then the length of a request counts.
    pub(crate) fn hears_costs(&self) -> bool {
        self.hears_costs.load(Ordering::Relaxed)
    }

    fn note_costs(&self, locked: &Locked) {
        if locked.router.hears_costs() {
            self.hears_costs.store(true, Ordering::Relaxed);
        }
    }

    /// The caller of a parked call is gone, or its release was never polled.
    pub(super) fn abandon(&self, waiter: WaiterId) {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        match locked.waiting.remove(&waiter) {
            Some(Waiting::Over(Wakeup::Send(assignment))) => {
                let released = &mut locked.released;
                locked.router.complete(assignment.ticket, Outcome::Cancelled, now, released);
            }
            Some(Waiting::Parked(_)) => locked.router.abandon(waiter, now),
            Some(Waiting::Over(Wakeup::Expired | Wakeup::Unreachable | Wakeup::Closed(_)))
            | None => {}
        }
        self.finish(guard);
    }

    fn finish(&self, mut locked: MutexGuard<'_, Locked>) {
        let mut wakers = locked.hand_out();
        self.tell_ticker(&mut locked, &mut wakers);
        self.move_asks(&mut locked);
        drop(locked);
        wake_all(wakers);
    }

    /// Moves the asks to where the router wants them after a change; returns whether there are any.
    fn move_asks(&self, locked: &mut Locked) -> bool {
        let had_any = !locked.wanted_asks.is_empty();
        if locked.waiting.is_empty() && !had_any {
            return false;
        }
        locked.router.wanted_asks(&mut locked.wanted_asks);
        // Calls that wait for calls of this same router ask no replica, and change nothing here.
        (had_any || !locked.wanted_asks.is_empty()) && self.loads.ask(&locked.wanted_asks)
    }

    /// Makes sure that the router is woken when it is due. Call it after every change.
    ///
    /// Without a ticker, one parked call is woken: polling its wait starts a ticker. A call that
    /// has not been polled yet does so anyway.
    fn tell_ticker(&self, locked: &mut Locked, wakers: &mut Wakers) {
        if locked.waiting.is_empty() {
            return;
        }
        let Some(due) = locked.router.next_wakeup() else { return };
        match locked.ticker {
            Some(until) if due < until => self.earlier.notify_one(),
            Some(_) => {}
            None => wakers.extend(locked.waiting.values_mut().find_map(Waiting::take_waker)),
        }
    }
}

// === impl DeploymentEntry: what the table and the ticker do ===

impl DeploymentEntry {
    /// Makes `members` the replicas, and uses `config`, if given, from now on. Parked calls go to
    /// new replicas immediately, or end if no replica is wanted.
    pub(super) fn apply(
        &self,
        members: Vec<(ReplicaSpec, Arc<Target>)>,
        config: Option<RouterConfig>,
        is_scaled_to_zero: bool,
    ) {
        let now = self.clock.now();
        let specs: Vec<ReplicaSpec> = members.iter().map(|(spec, _)| *spec).collect();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        let before = std::mem::take(&mut locked.members);
        locked.members = members.into_iter().map(|(spec, target)| (spec.id, target)).collect();
        // Calls that were released to a replica that is now gone, and not polled since, still name
        // it.
        for (id, target) in before {
            if locked.is_named(id) && !locked.members.iter().any(|(member, _)| *member == id) {
                locked.members.push((id, target));
            }
        }
        if let Some(config) = config {
            locked.router.configure(config, now, &mut locked.released);
        }
        locked.router.apply(&specs, now, &mut locked.released);
        locked.is_scaled_to_zero = is_scaled_to_zero;
        let wakers = locked.close_parked(now);
        self.finish(guard);
        wake_all(wakers);
        self.loads.changed.notify_one();
    }

    /// The deployment left the table: parked calls end, calls in flight continue.
    pub(super) fn remove(&self) {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.is_removed = true;
        locked.router.apply(&[], now, &mut locked.released);
        let wakers = locked.close_parked(now);
        drop(guard);
        wake_all(wakers);
        self.loads.changed.notify_one();
    }

    /// Does the work that is due. Returns how long the ticker may sleep, or `None` if it may end.
    pub(super) fn tick(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut guard = self.locked.lock();
        let locked = &mut *guard;
        locked.router.tick(now, &mut locked.released);
        let wakers = locked.hand_out();
        let due = if locked.waiting.is_empty() { None } else { locked.router.next_wakeup() };
        locked.ticker = due;
        drop(guard);
        wake_all(wakers);
        due.map(|due| self.clock.instant(due))
    }

    /// The ticker's thread ends: a parked call must start another ticker.
    pub(super) fn lose_ticker(&self) {
        let mut guard = self.locked.lock();
        guard.ticker = None;
        let wakers: Wakers = guard.waiting.values_mut().filter_map(Waiting::take_waker).collect();
        drop(guard);
        wake_all(wakers);
    }

    /// The replicas to which calls may be sent; none when the deployment is gone.
    pub(super) fn members(&self) -> Vec<(ReplicaId, Arc<Target>)> {
        let locked = self.locked.lock();
        if locked.is_removed { Vec::new() } else { locked.members.clone() }
    }

    /// The router's name at the gates of all replicas.
    pub(super) fn asker(&self) -> &HeaderValue {
        self.loads.asker()
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }
}

// === impl Locked ===

impl Locked {
    /// Hands the router's releases to the waiting calls. Call the returned wakers after unlocking.
    fn hand_out(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        for release in self.released.drain(..) {
            let (waiter, wakeup) = match release {
                Release::Send { waiter, assignment } => (waiter, Wakeup::Send(assignment)),
                Release::Expired { waiter } => (waiter, Wakeup::Expired),
                Release::Unreachable { waiter } => (waiter, Wakeup::Unreachable),
            };
            let before = self.waiting.insert(waiter, Waiting::Over(wakeup));
            debug_assert!(matches!(before, Some(Waiting::Parked(_))), "{waiter:?} did not wait");
            if let Some(Waiting::Parked(Some(waker))) = before {
                wakers.push(waker);
            }
        }
        wakers
    }

    /// Why calls get no replica here, whatever their deadline.
    fn closed(&self) -> Option<Refused> {
        if self.is_removed {
            return Some(Refused::Removed);
        }
        (self.is_scaled_to_zero && self.router.members() == 0).then_some(Refused::ScaledToZero)
    }

    /// Like `hand_out`; if there will be no replica, all other waits end too.
    fn close_parked(&mut self, now: Nanos) -> Wakers {
        let mut wakers = self.hand_out();
        let Some(refused) = self.closed() else { return wakers };
        for (waiter, waiting) in &mut self.waiting {
            if let Waiting::Parked(waker) = waiting {
                self.router.abandon(*waiter, now);
                wakers.extend(waker.take());
                *waiting = Waiting::Over(Wakeup::Closed(refused));
            }
        }
        wakers
    }

    fn target_of(&self, replica: ReplicaId) -> Arc<Target> {
        let member = self.members.iter().find(|(id, _)| *id == replica);
        let (_, target) = member.expect("invariant: the router sends to members only");
        Arc::clone(target)
    }

    fn is_named(&self, replica: ReplicaId) -> bool {
        self.waiting.values().any(|waiting| {
            matches!(waiting, Waiting::Over(Wakeup::Send(assignment)) if assignment.replica == replica)
        })
    }
}

fn wake_all(wakers: Wakers) {
    for waker in wakers {
        waker.wake();
    }
}
