//! Which replicas are left out: the fleet's side of [`Health`](crate::ejection::Health).

use super::Fleet;
use crate::backoff::BackoffRule;
use crate::ejection::{Answers, EjectionConfig};
use crate::heap::Timer;
use crate::replica::Replica;
use crate::time::Nanos;

impl Fleet {
    /// A call ended well: the replica is reachable and has freed a place, so its backoff ends.
    #[inline]
    pub(in crate::router) fn on_success(&mut self, slot: u32) {
        let backoff = &mut self.replicas[slot as usize].backoff;
        if backoff.is_active() {
            self.backoffs.remove(slot);
        }
        backoff.on_success();
    }

    /// A call did not start: the replica is left alone for a while.
    pub(in crate::router) fn on_failure(&mut self, slot: u32, rule: BackoffRule, now: Nanos) {
        let backoff = &mut self.replicas[slot as usize].backoff;
        if let Some(at) = backoff.on_failure(rule, now) {
            self.backoffs.insert(Timer { at, sequence: u64::from(slot), index: slot });
            self.refresh(slot);
        }
    }

    /// A call ended well at the replica in `slot`.
    #[inline]
    pub(in crate::router) fn on_good(&mut self, slot: u32, config: &EjectionConfig, now: Nanos) {
        let window = self.window(config, now);
        self.tally.add(window, false);
        self.replicas[slot as usize].health.on_success(window, config.rise);
    }

    /// A call failed at the replica in `slot`; returns whether that ejected it.
    pub(in crate::router) fn on_bad(
        &mut self,
        slot: u32,
        config: &EjectionConfig,
        now: Nanos,
    ) -> bool {
        let window = self.window(config, now);
        self.tally.add(window, true);
        let all: Answers = self.tally.answers(window);
        let health = &mut self.replicas[slot as usize].health;
        if !health.on_failure(window, all, config.fall) || !self.may_eject(slot, config) {
            return false;
        }
        let at = self.replicas[slot as usize].health.eject(config.interval, now);
        self.returns.remove(slot);
        self.returns.insert(Timer { at, sequence: u64::from(slot), index: slot });
        self.refresh(slot);
        true
    }

    /// The replica in `slot` gives no sign of life, or does again. Returns whether that is news.
    pub(in crate::router) fn set_silent(&mut self, slot: u32, is_silent: bool, now: Nanos) -> bool {
        let health = &mut self.replicas[slot as usize].health;
        let is_news = health.is_silent() != is_silent;
        if is_news {
            health.set_silent(is_silent);
            self.refresh(slot);
            self.pardon_if_all_are_out(now);
            self.look_at_reach(now);
        }
        is_news
    }

    /// Lets those back whose ejection is over.
    #[inline]
    pub(super) fn let_back(&mut self, now: Nanos) {
        while let Some(slot) = self.returns.first_due(now) {
            self.returns.remove(slot);
            self.replicas[slot as usize].health.come_back(now);
            self.refresh(slot);
        }
    }

    /// A bad replica is better than none. Silent ones stay out: a call there would only wait.
    pub(super) fn pardon_if_all_are_out(&mut self, now: Nanos) {
        if self.members().any(|(_, replica)| replica.health.is_in()) {
            return;
        }
        let ejected: Vec<u32> = self
            .members()
            .filter(|(_, replica)| !replica.health.is_silent())
            .map(|(slot, _)| slot)
            .collect();
        for slot in ejected {
            self.returns.remove(slot);
            self.replicas[slot as usize].health.pardon(now);
            self.refresh(slot);
        }
    }

    fn may_eject(&self, slot: u32, config: &EjectionConfig) -> bool {
        let members = self.members().count();
        let out = |(other, replica): &(u32, &Replica)| *other != slot && !replica.health.is_in();
        let after = self.members().filter(out).count() + 1;
        let share = members * usize::from(config.ejected_percent_max) / 100;
        self.replicas[slot as usize].is_member && members >= 2 && after <= share.max(1)
    }

    fn members(&self) -> impl Iterator<Item = (u32, &Replica)> {
        self.iter().filter(|(_, replica)| replica.is_member)
    }

    /// Counts intervals; time that steps back stays in the last one.
    #[inline]
    fn window(&mut self, config: &EjectionConfig, now: Nanos) -> u64 {
        if now >= self.window_end {
            let interval = config.interval.0.max(1);
            self.window = now.0 / interval;
            self.window_end = Nanos((self.window + 1).saturating_mul(interval));
        }
        self.window
    }
}
