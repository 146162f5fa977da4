//! Determines which calls at a replica show how fast it works.
//!
//! A call is *long-lived* when it is in flight for much longer than calls of the deployment take: a
//! stream that its caller keeps open, or a handler that waits for something else. It keeps its
//! place, but it is not work that is about to end, so neither the level nor the pace counts it.
//! Where all calls last long by nature, none is long-lived: the limit follows the learnt times.
//!
//! The calls are not kept in a list that would have to be searched. A replica counts its calls in
//! two generations. When the limit has passed, the current generation becomes the previous one, and
//! the previous one becomes long-lived. So a call is long-lived after one to two limits.

use super::Pool;
use crate::time::Nanos;

/// The calls of this router at one replica, by age.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    current: u32,
    previous: u32,
    long_lived: u32,
    generation: u32,
    /// When the current generation began.
    began_at: Nanos,
    /// When to check whether it is over; `Nanos::MAX` while no call can become long-lived.
    look_at: Nanos,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            current: 0,
            previous: 0,
            long_lived: 0,
            generation: 0,
            began_at: Nanos::ZERO,
            look_at: Nanos::MAX,
        }
    }
}

impl Calls {
    /// Those that are not long-lived.
    #[inline]
    pub(super) fn level(&self) -> u32 {
        self.current + self.previous
    }

    #[inline]
    pub(super) fn long_lived(&self) -> u32 {
        self.long_lived
    }

    /// The generation of a call that was just sent, which must be given back at its end.
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// When calls may become long-lived.
    #[inline]
    pub(super) fn look_at(&self) -> Nanos {
        self.look_at
    }

    #[inline]
    pub(super) fn on_sent(&mut self, pool: &Pool, now: Nanos) {
        self.current += 1;
        if self.level() == 1 {
            self.began_at = now;
            self.look_at = self.over_at(pool);
        }
    }

    /// A call of this generation leaves; returns whether it was long-lived.
    #[inline]
    pub(super) fn on_ended(&mut self, generation: u32) -> bool {
        match self.generation.wrapping_sub(generation) {
            0 => self.current -= 1,
            1 => self.previous -= 1,
            _ => {
                self.long_lived -= 1;
                return true;
            }
        }
        if self.level() == 0 {
            self.look_at = Nanos::MAX;
        }
        false
    }

    /// At `look_at`: begins the next generation, if the limit of the current level has passed.
    /// Returns how many calls become long-lived.
    pub(super) fn look(&mut self, pool: &Pool) -> Option<u32> {
        let over_at = self.over_at(pool);
        if over_at > self.look_at {
            self.look_at = over_at;
            return None;
        }
        let fresh = std::mem::replace(&mut self.previous, std::mem::take(&mut self.current));
        self.long_lived += fresh;
        self.generation = self.generation.wrapping_add(1);
        self.began_at = self.look_at;
        self.look_at = if self.level() == 0 { Nanos::MAX } else { self.over_at(pool) };
        Some(fresh)
    }

    /// The limit may have changed. Calls do not get older by it: a generation that is over by now
    /// ends now.
    pub(super) fn on_limit(&mut self, pool: &Pool, now: Nanos) {
        if self.level() > 0 {
            self.look_at = self.over_at(pool).max(now).min(self.look_at);
        }
    }

    /// When the next calls become long-lived if none ends before, or soon before that.
    pub(super) fn next_long_lived(&self) -> Nanos {
        if self.previous > 0 {
            return self.look_at;
        }
        let age = self.look_at.saturating_sub(self.began_at);
        self.look_at.saturating_add(age)
    }

    fn over_at(&self, pool: &Pool) -> Nanos {
        self.began_at.saturating_add(pool.long_lived_after(self.level()))
    }
}
