//! One queue for all replicas, or none at all: what policies are measured against.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use router_core::{Load, Nanos, ReplicaId, ReplicaSpec, SplitMix64};

use super::log::End;
use super::scenario::{Executes, Scenario, millis};
use super::system::{Answer, Move, System};
use super::traffic::Wants;

/// Late binding: a replica that is free takes the call that has waited longest.
///
/// Of several free replicas the fastest takes it, or one that has its key. A batcher takes all that
/// wait, up to its largest step, when that many wait or the first has waited for the window.
#[derive(Debug)]
pub(crate) struct Central {
    /// Instead of all that: a key has its replica, whatever happens.
    is_pinned: bool,
    window: Option<Nanos>,
    places_each: usize,
    queue_len_max: usize,
    speeds: Vec<f64>,
    waiting: VecDeque<(Nanos, u32, Option<u32>)>,
    at: BTreeMap<u32, ReplicaId>,
    taken: BTreeMap<ReplicaId, usize>,
    keys: BTreeMap<ReplicaId, BTreeSet<u32>>,
}

impl Central {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let batches = scenario.executes == Executes::Batches;
        Self {
            is_pinned: false,
            window: batches.then(|| millis(scenario.batch_window_ms)),
            places_each: match scenario.executes {
                Executes::Serial | Executes::Shared => 1,
                Executes::Steps => scenario.steps.running_max,
                Executes::Parallel | Executes::Workers => scenario.limit as usize,
                Executes::Batches => scenario.batch_size_max,
            },
            queue_len_max: scenario.queue_len_max as usize,
            speeds: (0..scenario.replicas).map(|index| scenario.speed(index)).collect(),
            waiting: VecDeque::new(),
            at: BTreeMap::new(),
            taken: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// No queue: the key decides.
    pub(crate) fn pinned(scenario: &Scenario) -> Self {
        Self { is_pinned: true, ..Self::new(scenario) }
    }

    fn send(&mut self, call: u32, replica: ReplicaId, moves: &mut Vec<Move>) {
        self.at.insert(call, replica);
        *self.taken.get_mut(&replica).expect("a member") += 1;
        moves.push(Move::Send { call, replica, is_leased: false });
    }

    fn leave(&mut self, call: u32, now: Nanos, moves: &mut Vec<Move>) {
        let replica = self.at.remove(&call).expect("the call was sent");
        *self.taken.get_mut(&replica).expect("a member") -= 1;
        self.release(now, moves);
    }

    fn release(&mut self, now: Nanos, moves: &mut Vec<Move>) {
        if self.is_pinned {
            return;
        }
        while let Some((_, _, key)) = self.waiting.front().copied() {
            if self.next_wakeup().is_some_and(|at| at > now) {
                return;
            }
            let Some(replica) = self.free(key) else { return };
            let count = if self.window.is_some() { self.places_each } else { 1 };
            for _ in 0..count.min(self.waiting.len()) {
                if let Some((_, call, _)) = self.waiting.pop_front() {
                    self.send(call, replica, moves);
                }
            }
        }
    }

    fn free(&self, key: Option<u32>) -> Option<ReplicaId> {
        let is_free =
            |taken: usize| taken == 0 || (self.window.is_none() && taken < self.places_each);
        let value = |replica: &ReplicaId| {
            let has_key = key
                .is_some_and(|key| self.keys.get(replica).is_some_and(|keys| keys.contains(&key)));
            (has_key, self.speeds[replica.0 as usize % self.speeds.len()])
        };
        self.taken
            .iter()
            .filter(|(_, taken)| is_free(**taken))
            .map(|(replica, _)| *replica)
            .max_by(|a, b| value(a).partial_cmp(&value(b)).expect("speeds are numbers"))
    }
}

impl System for Central {
    fn join(&mut self, specs: &[ReplicaSpec], now: Nanos, moves: &mut Vec<Move>) {
        self.taken = specs.iter().map(|spec| (spec.id, 0)).collect();
        self.release(now, moves);
    }

    fn offer(&mut self, call: u32, wants: &Wants, now: Nanos, moves: &mut Vec<Move>) {
        if self.is_pinned {
            let hash = SplitMix64::new(wants.key.unwrap_or(call).into()).next_u64();
            let replica = ReplicaId(hash % self.speeds.len() as u64);
            return self.send(call, replica, moves);
        }
        self.waiting.push_back((now, call, wants.key));
        self.release(now, moves);
        if self.waiting.len() > self.queue_len_max {
            self.waiting.pop_back();
            moves.push(Move::End { call, end: End::QueueFull });
        }
    }

    fn answered(
        &mut self,
        call: u32,
        answer: Answer,
        _load: Option<Load>,
        now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        let end = if answer == Answer::Done { End::Done } else { End::Failed };
        moves.push(Move::End { call, end });
        self.leave(call, now, moves);
    }

    fn gone(&mut self, call: u32, _is_late: bool, now: Nanos, moves: &mut Vec<Move>) {
        if self.at.contains_key(&call) {
            self.leave(call, now, moves);
        } else {
            self.waiting.retain(|(_, waiting, _)| *waiting != call);
        }
    }

    fn keys(&mut self, replica: ReplicaId, keys: &[u32], _now: Nanos, _moves: &mut Vec<Move>) {
        self.keys.insert(replica, keys.iter().copied().collect());
    }

    /// When the window of the first one that waits ends, if a batcher is free to take it.
    fn next_wakeup(&self) -> Option<Nanos> {
        let window = self.window?;
        let (since, _, key) = self.waiting.front()?;
        let is_due = self.waiting.len() >= self.places_each;
        self.free(*key)?;
        Some(if is_due { Nanos::ZERO } else { since.saturating_add(window) })
    }

    fn tick(&mut self, now: Nanos, moves: &mut Vec<Move>) {
        self.release(now, moves);
    }

    fn check_end(&self) {
        assert!(self.waiting.is_empty() && self.at.is_empty(), "{self:?}");
    }
}
