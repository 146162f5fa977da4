//! Calls that would only wait inside a replica wait in the router, where they go to whichever
//! replica is free first.
//!
//! Replicas that work on one call at a time say so ([`Exclusive`](crate::exclusive::Exclusive)). As
//! long as nearly all of the deployment's calls are of that kind, a replica gets no more of them than
//! keep it busy. It gets more as soon as it says that it idles, and after a while without an answer.

use super::fleet::Fleet;
use crate::exclusive::Exclusive;
use crate::time::Nanos;

/// What a fleet keeps of this.
#[derive(Debug)]
pub(super) struct Late {
    /// The policy binds calls late.
    pub(super) is_on: bool,
    exclusive: Exclusive,
    /// When the first replica takes one call more because it is silent.
    pub(super) eases_at: Option<Nanos>,
}

impl Late {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, exclusive: Exclusive::default(), eases_at: None }
    }
}

impl Fleet {
    /// The replica in `slot` could take calls that are kept from it.
    #[inline]
    pub(super) fn is_kept(&self, slot: u32) -> bool {
        let replica = &self.replicas[slot as usize];
        replica.is_held_back() && replica.spare() > 0
    }

    /// A call that was there for `took` is answered by the replica in `slot`. Returns whether it was
    /// wrong to keep calls from that replica meanwhile.
    #[inline]
    pub(super) fn on_word(
        &mut self,
        slot: u32,
        took: Nanos,
        alone: Option<Nanos>,
        now: Nanos,
    ) -> bool {
        if !self.late.is_on {
            return false;
        }
        let was_proven = self.late.exclusive.is_proven();
        self.late.exclusive.on_answer(took, alone);
        let was_kept = alone.is_none() && self.is_kept(slot);
        let replica = &mut self.replicas[slot as usize];
        replica.may_overlap = alone.is_none();
        replica.quiet_since = now;
        if self.late.exclusive.is_proven() == was_proven {
            self.bind(slot, now);
        } else {
            self.bind_all(now);
        }
        was_kept
    }

    /// The replica in `slot` has a place for one more call; if calls were kept from it, it idles.
    pub(super) fn on_idle(&mut self, slot: u32, now: Nanos) {
        if !self.late.is_on || !self.is_kept(slot) {
            return;
        }
        self.late.exclusive.on_idle();
        self.replicas[slot as usize].may_overlap = true;
        if self.late.exclusive.is_proven() {
            self.bind(slot, now);
        } else {
            self.bind_all(now);
        }
    }

    /// Calls wait: looks when a replica that is silent takes one more.
    #[inline]
    pub(super) fn watch_silence(&mut self, now: Nanos) {
        if self.late.is_on && self.late.eases_at.is_none() && self.late.exclusive.is_proven() {
            let kept = self.replicas.iter().filter(|one| one.is_held_back() && one.is_in());
            self.late.eases_at =
                kept.map(|one| self.late.exclusive.eases_at(one.quiet_since, now)).min();
        }
    }

    /// Lets replicas that are silent take one more.
    #[inline]
    pub(super) fn ease(&mut self, now: Nanos) {
        if self.late.eases_at.is_some_and(|at| at <= now) {
            self.bind_all(now);
        }
    }

    /// A call is about to be placed: a replica that is in a long call by now gets none in reserve.
    #[inline]
    pub(super) fn close_behind_long_calls(&mut self, now: Nanos) {
        if !self.late.is_on || !self.late.exclusive.is_proven() {
            return;
        }
        let mut position = 0;
        while let Some(slot) = self.open.get(position).copied() {
            let replica = &self.replicas[slot as usize];
            let quiet = now.saturating_sub(replica.quiet_since);
            if replica.in_flight > 0 && self.late.exclusive.is_long(quiet) {
                self.bind(slot, now);
            }
            // One that was closed has left its place to another.
            position += usize::from(self.open.get(position) == Some(&slot));
        }
    }

    /// What is known of all replicas has changed, or time has passed for those that are silent.
    #[cold]
    pub(super) fn bind_all(&mut self, now: Nanos) {
        self.late.eases_at = None;
        for slot in 0..self.replicas.len() as u32 {
            self.bind(slot, now);
        }
    }

    /// Lets the replica in `slot` have as many calls as keep it busy, or any number.
    #[inline]
    pub(super) fn bind(&mut self, slot: u32, now: Nanos) {
        let Self { replicas, late, pool, .. } = self;
        let (replica, exclusive) = (&mut replicas[slot as usize], &late.exclusive);
        let is_bound = late.is_on && !self.is_batching && !replica.may_overlap;
        let quiet = now.saturating_sub(replica.quiet_since);
        let gap_ns = pool.turnaround_ns(replica.tier);
        let enough = if is_bound { exclusive.enough(gap_ns, quiet) } else { None };
        let held = enough.map_or(u32::MAX, |enough| enough.saturating_add(exclusive.eased(quiet)));
        if replica.held != held {
            replica.held = held;
            self.refresh(slot);
        }
    }
}
