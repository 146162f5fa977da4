//! When a call rather waits in the router than goes to a replica with room.
//!
//! A call that is sent is bound: if its replica turns out to be slow, or the call before it long,
//! it waits there while others idle. So where waiting costs nothing the router binds late:
//!
//! - A replica that is known to be busy with so many calls gets no more of them, if the next one is
//!   there soon enough after one has ended ([`Pool::useful_for`](crate::learnt::Pool::useful_for)).
//! - A replica that is so slow that a faster one is expected to be free and done before it, is left
//!   alone while few calls wait.
//!
//! Batchers are given their calls at once: they wait for each other there.
//!
//! Calls that wait so do not count against the bound of the queue: they would have been sent.

use super::Locality;
use super::fleet::{Fleet, Query};
use crate::replica::Replica;
use crate::time::Nanos;

/// How much the wait behind the calls that wait already counts. Above 1: who goes to the slow replica
/// now shortens the wait of all behind it, and who does not lengthens it. Tuned with replicas of
/// three speeds; without it six unequal replicas answer 22 % later on average.
const QUEUE_WEIGHT: f64 = 4.0;
/// How many service times a call waits for a near replica while the near ones are idle. Tuned in
/// simulation: 95 % stay near at a load of 0.7 there.
const NEAR_PATIENCE: f64 = 6.0;
/// Of one look at how many near replicas are busy; 64 make a mean.
const NEAR_WEIGHT: f64 = 1.0 / 64.0;
/// A held call looks again after this share of the time that the slow replica would take.
const LOOK_AGAIN: f64 = 0.25;
const LOOK_AGAIN_MIN_NS: f64 = 100_000.0;

impl Fleet {
    /// The last pick found room, and that waiting is better.
    #[inline]
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// When those that wait beside room look again.
    #[inline]
    pub(super) fn look_again_at(&self) -> Option<Nanos> {
        self.look_again_at
    }

    /// All that wait are about to look.
    #[inline]
    pub(super) fn looks_again(&mut self) {
        self.look_again_at = None;
    }

    /// One more call waits beside room: look again at once.
    #[inline]
    pub(super) fn look_again_soon(&mut self, now: Nanos) {
        if self.look_again_at.is_some() {
            self.look_again_at = Some(now);
        }
    }

    /// How many more calls the replicas could get if none were held back.
    pub(super) fn spare(&self) -> u64 {
        if !self.is_patient && !self.late.is_on {
            return 0;
        }
        self.iter().map(|(_, replica)| u64::from(replica.spare())).sum()
    }

    /// Makes room where calls have become long-lived by now.
    #[inline]
    pub(super) fn let_last(&mut self, now: Nanos) {
        if self.long_lived_at.is_some_and(|at| at <= now) {
            self.long_lived_at = None;
            self.let_all_last(now);
        }
    }

    #[cold]
    fn let_all_last(&mut self, now: Nanos) {
        for slot in 0..self.replicas.len() as u32 {
            let replica = &mut self.replicas[slot as usize];
            replica.pace.count(&mut self.pool, now);
            self.refresh(slot);
        }
        self.hold_back(now);
    }

    /// `slot`, unless a replica without room is expected to be done sooner with one more call.
    #[inline]
    pub(super) fn unless_better(&mut self, slot: u32, query: Query<'_>) -> Option<u32> {
        let all_are_open = self.open.len() == self.members as usize;
        if !self.is_patient || self.is_batching || all_are_open || !self.pool.is_known() {
            return Some(slot);
        }
        if !query.may_hold {
            return Some(slot);
        }
        if query.locality != Locality::default() {
            self.watch_near(query.locality);
        }
        let replica = &self.replicas[slot as usize];
        let finish_ns = replica.finish_ns(&self.pool, query.now);
        if self.is_worth_the_wait_for_near(slot, finish_ns, query) {
            return self.hold(finish_ns, query.now);
        }
        let is_fair = finish_ns <= self.pool.finish_ns(self.pool.useful_or_one() + 1);
        if is_fair
            || replica.is_probe_due(&self.pool, query.now)
            || finish_ns <= self.wait_ns(query)
        {
            return Some(slot);
        }
        self.hold(finish_ns, query.now)
    }

    /// `slot`, which is among the nearest with room, unless a call waits there for longer than it
    /// would in the router before it goes farther. One call that is silent there makes no queue.
    pub(super) fn or_farther(&self, slot: u32, query: Query<'_>) -> u32 {
        let is_near_first = query.locality != Locality::default();
        if !is_near_first || !self.is_patient || self.is_batching || !self.pool.is_known() {
            return slot;
        }
        let distance = |slot: u32| query.locality.distance(self.replicas[slot as usize].tier);
        let near = &self.replicas[slot as usize];
        let near_ns = self.pool.finish_ns(near.pace.level() + 1)
            * f64::from(near.pace.usual_slowness(&self.pool));
        let patience_ns = self.near_patience_ns();
        let is_probe = near.is_probe_due(&self.pool, query.now);
        if near_ns <= patience_ns || is_probe {
            return slot;
        }
        let is_farther =
            |other: &u32| distance(*other) > distance(slot) && !self.is_tried(*other, query);
        let farther = self.open.iter().copied().filter(is_farther);
        let farther = farther.map(|other| (self.finish_ns(other, query.now), other));
        let best = farther.min_by(|one, other| one.0.total_cmp(&other.0));
        best.filter(|(far_ns, _)| far_ns + patience_ns < near_ns).map_or(slot, |(_, other)| other)
    }

    /// How much longer than farther replicas the near ones may take. It shrinks as they become busy:
    /// then waiting only makes the queue long.
    fn near_patience_ns(&self) -> f64 {
        NEAR_PATIENCE * (1.0 - self.near_busy) * self.pool.finish_ns(1)
    }

    fn hold(&mut self, finish_ns: f64, now: Nanos) -> Option<u32> {
        let look_again = Nanos((finish_ns * LOOK_AGAIN).max(LOOK_AGAIN_MIN_NS) as u64);
        let at = now.saturating_add(look_again);
        self.look_again_at = Some(self.look_again_at.map_or(at, |earlier| earlier.min(at)));
        self.is_holding = true;
        None
    }

    /// When one more call would be answered that waits for the best of the replicas without room,
    /// behind those that wait already.
    #[cold]
    fn wait_ns(&self, query: Query<'_>) -> f64 {
        let (mut best_ns, mut rate) = (f64::INFINITY, 0.0);
        for replica in &self.replicas {
            let is_busy = replica.pace.level() > 0 && !replica.is_open();
            if !is_busy || !replica.is_in() {
                continue;
            }
            let (level, slowness) = replica.level_and_slowness(&self.pool, query.now);
            best_ns = best_ns.min(replica.finish_ns(&self.pool, query.now));
            rate += self.pool.rate(level) / slowness;
        }
        if rate > 0.0 {
            best_ns + f64::from(query.waiting) / rate * QUEUE_WEIGHT
        } else {
            f64::INFINITY
        }
    }

    /// The policy, in words.
    pub(super) fn rule(&self) -> &'static str {
        self.policy.rule()
    }

    /// After how long one more call at the replica in `slot` would be answered.
    pub(super) fn predicted(&self, slot: u32, now: Nanos) -> Option<Nanos> {
        let finish_ns = self.replicas[slot as usize].finish_ns(&self.pool, now);
        self.pool.is_known().then_some(Nanos(finish_ns as u64))
    }

    /// After how many nanoseconds one more call at the replica in `slot` is expected to be answered.
    #[inline]
    pub(super) fn finish_ns(&self, slot: u32, now: Nanos) -> f64 {
        self.replicas[slot as usize].finish_ns(&self.pool, now)
    }

    /// How long a call without company takes; before the first has ended any value.
    #[inline]
    pub(super) fn alone_ns(&self) -> f64 {
        self.pool.finish_ns(1)
    }

    fn rate_of(&self, replica: &Replica) -> f64 {
        if !replica.is_in() {
            return 0.0;
        }
        self.pool.rate(replica.pace.level().max(1)) / f64::from(replica.pace.slowness(&self.pool))
    }

    /// Departures per nanosecond of all replicas that are in, as busy as they are but at least with
    /// one call; 0: unknown.
    pub(super) fn rate(&self) -> f64 {
        self.replicas.iter().map(|replica| self.rate_of(replica)).sum()
    }

    /// Takes note of how many of the nearest replicas have no room.
    fn watch_near(&mut self, locality: Locality) {
        let Some(nearest) = self.nearest(locality) else { return };
        let (mut all, mut closed) = (0_u32, 0_u32);
        for replica in self.replicas.iter().filter(|replica| replica.is_in()) {
            let is_near = locality.distance(replica.tier) == nearest;
            all += u32::from(is_near);
            closed += u32::from(is_near && !replica.is_open());
        }
        self.near_busy += (f64::from(closed) / f64::from(all) - self.near_busy) * NEAR_WEIGHT;
    }

    /// Whether a call that could go to `slot`, which is not among the nearest, rather waits for
    /// those.
    fn is_worth_the_wait_for_near(&self, slot: u32, finish_ns: f64, query: Query<'_>) -> bool {
        let distance = |replica: &Replica| query.locality.distance(replica.tier);
        let own = distance(&self.replicas[slot as usize]);
        if self.nearest(query.locality).is_none_or(|nearest| nearest >= own) {
            return false;
        }
        let (mut best_ns, mut rate) = (f64::INFINITY, 0.0);
        for replica in &self.replicas {
            if !replica.is_in() || replica.pace.level() == 0 || distance(replica) >= own {
                continue;
            }
            let (level, slowness) = replica.level_and_slowness(&self.pool, query.now);
            best_ns = best_ns.min(self.pool.finish_ns(level) * slowness);
            rate += self.pool.rate(level) / slowness;
        }
        let wait_ns = f64::from(query.waiting + 1) / rate + best_ns;
        wait_ns < finish_ns + self.near_patience_ns()
    }

    fn nearest(&self, locality: Locality) -> Option<u8> {
        let replicas = self.replicas.iter().filter(|replica| replica.is_in());
        replicas.map(|replica| locality.distance(replica.tier)).min()
    }
}
