//! The rule of the seeds: two random picks, cached queue lengths, probes, a backoff that sleeps.
//!
//! As Ray Serve 2.60 does it (`request_router/pow_2_router.py`). Routing *tasks* look for room, at
//! most `min(calls that wait, 50, 2 × replicas)` of them; what one finds goes to the call that has
//! waited longest. A task draws two replicas: of those whose length it knows and that are not full
//! it takes the shorter; knowing none it asks both, and without success sleeps. Nothing wakes it
//! but its clock; new calls start new tasks.

use std::collections::{BTreeMap, BTreeSet};

use router_core::{Load, Nanos, ReplicaId, ReplicaSpec, SplitMix64, Tier};

use super::log::End;
use super::scenario::Scenario;
use super::system::{Answer, Move, System};
use super::traffic::{Wants, uniform};

/// A length that was heard longer ago is unknown.
const LENGTH_AGE_MAX: Nanos = Nanos::from_secs(10);
const TASKS_MAX: usize = 50;
/// After as many rounds without success.
const SLEEPS_MS: [u64; 7] = [0, 25, 50, 100, 200, 400, 500];
/// How long a call looks only at replicas that have its model; times 1 to 2.
const MODEL_WAIT: Nanos = Nanos::from_secs(1);

pub(crate) struct SeedsRule {
    desks: Vec<Desk>,
    rng: SplitMix64,
    sent: BTreeMap<u32, Sent>,
    has_models: bool,
    prefers_near: bool,
    queue_len_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    router: usize,
    replica: ReplicaId,
    /// Its place among those that wait.
    place: (Nanos, u32),
    key: Option<u32>,
}

/// One router.
struct Desk {
    members: Vec<ReplicaSpec>,
    lengths: BTreeMap<ReplicaId, (u32, Nanos)>,
    keys: BTreeMap<ReplicaId, BTreeSet<u32>>,
    /// Calls that wait, by the time of their offer.
    waiting: BTreeMap<(Nanos, u32), Option<u32>>,
    tasks: BTreeMap<u64, Task>,
    tasks_started: u64,
}

#[derive(Debug)]
struct Task {
    key: Option<u32>,
    key_until: Nanos,
    rounds: usize,
    /// How many tiers it has looked into without success.
    tiers_tried: usize,
    doing: Doing,
}

#[derive(Debug)]
enum Doing {
    Sleeping { until: Nanos },
    Asking { open: usize, best: Option<(u32, ReplicaId)> },
}

// === impl SeedsRule ===

impl SeedsRule {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let desk = |_| Desk {
            members: Vec::new(),
            lengths: BTreeMap::new(),
            keys: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: BTreeMap::new(),
            tasks_started: 0,
        };
        Self {
            desks: (0..scenario.routers).map(desk).collect(),
            rng: SplitMix64::new(seed ^ 0x5EED),
            sent: BTreeMap::new(),
            has_models: scenario.models > 0,
            prefers_near: scenario.prefer_near,
            queue_len_max: scenario.queue_len_max as usize,
        }
    }

    /// Starts tasks while calls wait and there may be more.
    fn start_tasks(&mut self, router: usize, now: Nanos, moves: &mut Vec<Move>) {
        while self.desks[router].tasks.len() < self.desks[router].tasks_target() {
            let wait = MODEL_WAIT.0 as f64 * (1.0 + uniform(&mut self.rng));
            let desk = &mut self.desks[router];
            // The newest call is the one that has no task yet.
            let key = desk.waiting.last_key_value().and_then(|(_, key)| *key);
            let task = Task {
                key: key.filter(|_| self.has_models),
                key_until: now.saturating_add(Nanos(wait as u64)),
                rounds: 0,
                tiers_tried: 0,
                doing: Doing::Sleeping { until: now },
            };
            desk.tasks_started += 1;
            let id = desk.tasks_started;
            desk.tasks.insert(id, task);
            self.look(router, id, now, moves);
        }
    }

    /// One round of a task.
    fn look(&mut self, router: usize, id: u64, now: Nanos, moves: &mut Vec<Move>) {
        let candidates = self.desks[router].candidates(id, self.prefers_near, now);
        let picks = self.two_of(&candidates);
        let desk = &mut self.desks[router];
        let known: Vec<(u32, ReplicaId)> = picks
            .iter()
            .filter_map(|spec| desk.length(spec, now).map(|length| (length, spec.id)))
            .collect();
        if let Some((_, replica)) = known.iter().min() {
            for unknown in picks.iter().filter(|spec| !known.iter().any(|(_, id)| *id == spec.id)) {
                // Tag 0 belongs to no task.
                moves.push(Move::Probe { replica: unknown.id, tag: router as u64 });
            }
            return self.found(router, id, *replica, now, moves);
        }
        for spec in &picks {
            moves.push(Move::Probe { replica: spec.id, tag: (id << 8) | router as u64 });
        }
        let task = desk.tasks.get_mut(&id).expect("the task looks");
        if picks.is_empty() {
            return self.sleep(router, id, now);
        }
        task.doing = Doing::Asking { open: picks.len(), best: None };
    }

    fn two_of(&mut self, candidates: &[ReplicaSpec]) -> Vec<ReplicaSpec> {
        if candidates.len() < 2 {
            return candidates.to_vec();
        }
        let (first, second) = self.rng.distinct_pair_below(candidates.len() as u32);
        vec![candidates[first as usize], candidates[second as usize]]
    }

    fn sleep(&mut self, router: usize, id: u64, now: Nanos) {
        let desk = &mut self.desks[router];
        let task = desk.tasks.get_mut(&id).expect("the task looks");
        task.tiers_tried += 1;
        let near_tiers = if self.prefers_near { 2 } else { 0 };
        let wait = if task.tiers_tried <= near_tiers {
            0
        } else {
            task.rounds += 1;
            SLEEPS_MS[(task.rounds - 1).min(SLEEPS_MS.len() - 1)]
        };
        task.doing = Doing::Sleeping { until: now.saturating_add(Nanos::from_millis(wait)) };
    }

    /// The call that has waited longest, or longest for the task's model, goes to `replica`.
    fn found(
        &mut self,
        router: usize,
        id: u64,
        replica: ReplicaId,
        now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        let desk = &mut self.desks[router];
        let key = desk.tasks.remove(&id).and_then(|task| task.key);
        let same = desk.waiting.iter().find(|(_, waits_for)| key.is_some() && **waits_for == key);
        let next = same.or_else(|| desk.waiting.iter().next()).map(|(place, key)| (*place, *key));
        if let Some((place, key)) = next {
            desk.waiting.remove(&place);
            if let Some((length, _)) = desk.lengths.get_mut(&replica) {
                *length += 1;
            }
            self.sent.insert(place.1, Sent { router, replica, place, key });
            moves.push(Move::Send { call: place.1, replica, is_leased: false });
        }
        let desk = &mut self.desks[router];
        while desk.tasks.len() > desk.tasks_target() {
            desk.tasks.pop_first();
        }
        self.start_tasks(router, now, moves);
    }
}

impl System for SeedsRule {
    fn join(&mut self, specs: &[ReplicaSpec], now: Nanos, moves: &mut Vec<Move>) {
        for router in 0..self.desks.len() {
            let desk = &mut self.desks[router];
            for spec in specs {
                if !desk.members.contains(spec) {
                    moves.push(Move::Probe { replica: spec.id, tag: router as u64 });
                }
            }
            desk.members = specs.to_vec();
            self.start_tasks(router, now, moves);
        }
    }

    fn offer(&mut self, call: u32, wants: &Wants, now: Nanos, moves: &mut Vec<Move>) {
        let desk = &mut self.desks[wants.router];
        if desk.waiting.len() >= self.queue_len_max {
            return moves.push(Move::End { call, end: End::QueueFull });
        }
        desk.waiting.insert((now, call), wants.key);
        self.start_tasks(wants.router, now, moves);
    }

    fn answered(
        &mut self,
        call: u32,
        answer: Answer,
        load: Option<Load>,
        now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        let sent = self.sent.remove(&call).expect("the call was sent");
        let Sent { router, replica, place, key } = sent;
        let desk = &mut self.desks[router];
        match answer {
            Answer::Refused => {
                if let Some(load) = load {
                    desk.lengths.insert(replica, (load.in_flight, now));
                }
                desk.waiting.insert(place, key);
                return self.start_tasks(router, now, moves);
            }
            Answer::ConnectFailed | Answer::Broken => {
                desk.lengths.remove(&replica);
            }
            Answer::Done | Answer::Failure => desk.one_less(replica),
        }
        let end = if answer == Answer::Done { End::Done } else { End::Failed };
        moves.push(Move::End { call, end });
    }

    fn gone(&mut self, call: u32, _is_late: bool, _now: Nanos, _moves: &mut Vec<Move>) {
        if let Some(Sent { router, replica, .. }) = self.sent.remove(&call) {
            return self.desks[router].one_less(replica);
        }
        for desk in &mut self.desks {
            desk.waiting.retain(|(_, waiting), _| *waiting != call);
        }
    }

    fn keys(&mut self, replica: ReplicaId, keys: &[u32], _now: Nanos, _moves: &mut Vec<Move>) {
        for desk in &mut self.desks {
            desk.keys.insert(replica, keys.iter().copied().collect());
        }
    }

    fn wants_admissions(&self) -> bool {
        true
    }

    fn admitted(&mut self, router: usize, replica: ReplicaId, in_flight: u32, now: Nanos) {
        self.desks[router].lengths.insert(replica, (in_flight, now));
    }

    fn probed(
        &mut self,
        tag: u64,
        replica: ReplicaId,
        in_flight: u32,
        now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        let (router, id) = ((tag & 0xFF) as usize, tag >> 8);
        let desk = &mut self.desks[router];
        desk.lengths.insert(replica, (in_flight, now));
        let spec = desk.members.iter().find(|spec| spec.id == replica);
        let is_full = spec.is_none_or(|spec| in_flight >= spec.capacity);
        let Some(Task { doing: Doing::Asking { open, best }, .. }) = desk.tasks.get_mut(&id) else {
            return;
        };
        *open -= 1;
        let answer = (!is_full).then_some((in_flight, replica));
        *best = best.iter().chain(&answer).min().copied();
        match (*open, *best) {
            (0, Some((_, replica))) => self.found(router, id, replica, now, moves),
            (0, None) => self.sleep(router, id, now),
            _ => {}
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.desks.iter().filter_map(Desk::next_wakeup).min()
    }

    fn tick(&mut self, now: Nanos, moves: &mut Vec<Move>) {
        for router in 0..self.desks.len() {
            for id in self.desks[router].awake(now) {
                // One that woke earlier may have ended it.
                if self.desks[router].tasks.contains_key(&id) {
                    self.look(router, id, now, moves);
                }
            }
        }
    }

    fn check_end(&self) {
        assert!(self.sent.is_empty(), "calls without an end: {:?}", self.sent);
        let waiting: usize = self.desks.iter().map(|desk| desk.waiting.len()).sum();
        assert_eq!(0, waiting, "calls that wait for ever");
    }
}

// === impl Desk ===

impl Desk {
    fn tasks_target(&self) -> usize {
        self.waiting.len().min(TASKS_MAX).min(2 * self.members.len())
    }

    /// Its length, as far as it is known; `None` also when it is full.
    fn length(&self, spec: &ReplicaSpec, now: Nanos) -> Option<u32> {
        let (length, at) = *self.lengths.get(&spec.id)?;
        let is_young = now.saturating_sub(at) <= LENGTH_AGE_MAX;
        (is_young && length < spec.capacity).then_some(length)
    }

    /// Those that have its model, for a while; then those with the fewest. Without a model those on
    /// the node, then those in the zone, each once, then all.
    fn candidates(&self, id: u64, prefers_near: bool, now: Nanos) -> Vec<ReplicaSpec> {
        let task = &self.tasks[&id];
        let all = || self.members.clone();
        if let Some(key) = task.key {
            return self.candidates_with(key, now < task.key_until);
        }
        let nearest = match task.tiers_tried {
            _ if !prefers_near => return all(),
            0 => Tier::Node,
            1 => Tier::Zone,
            _ => return all(),
        };
        self.members.iter().copied().filter(|spec| spec.tier <= nearest).collect()
    }

    fn candidates_with(&self, key: u32, is_patient: bool) -> Vec<ReplicaSpec> {
        let keys = |spec: &ReplicaSpec| self.keys.get(&spec.id);
        let has = |spec: &&ReplicaSpec| keys(spec).is_some_and(|keys| keys.contains(&key));
        let holders: Vec<ReplicaSpec> = self.members.iter().filter(has).copied().collect();
        if is_patient && !holders.is_empty() {
            return holders;
        }
        let count = |spec: &ReplicaSpec| keys(spec).map_or(0, BTreeSet::len);
        let fewest = self.members.iter().map(count).min();
        self.members.iter().copied().filter(|spec| Some(count(spec)) == fewest).collect()
    }

    fn one_less(&mut self, replica: ReplicaId) {
        if let Some((length, _)) = self.lengths.get_mut(&replica) {
            *length = length.saturating_sub(1);
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.tasks.values().filter_map(Task::sleeps_until).min()
    }

    fn awake(&self, now: Nanos) -> Vec<u64> {
        let is_awake = |task: &Task| task.sleeps_until().is_some_and(|until| until <= now);
        self.tasks.iter().filter(|(_, task)| is_awake(task)).map(|(id, _)| *id).collect()
    }
}

impl Task {
    fn sleeps_until(&self) -> Option<Nanos> {
        match self.doing {
            Doing::Sleeping { until } => Some(until),
            Doing::Asking { .. } => None,
        }
    }
}
