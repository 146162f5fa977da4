//! What replicas report of the models and cache entries that they have.

use super::cache_index::CacheChange;
use super::{Release, ReleaseCause, Router};
use crate::membership::ReplicaId;
use crate::time::Nanos;

impl Router {
    /// `replica` says that it has just these models, loaded or loading. Of no member: ignored.
    pub fn models(
        &mut self,
        replica: ReplicaId,
        models: &[String],
        now: Nanos,
        released: &mut Vec<Release>,
    ) {
        let Some(slot) = self.fleet.member(replica) else {
            return;
        };
        self.settle(now, released);
        self.directory.report(slot, models);
        self.release(ReleaseCause::Models, now, released);
    }

    /// What `replica` last said that it has, by name. Empty for no member.
    pub fn models_of(&self, replica: ReplicaId) -> Vec<String> {
        self.fleet.member(replica).map_or_else(Vec::new, |slot| self.directory.reported(slot))
    }

    /// `replica` reports changes of its cache, in order; `is_whole`: they are all that it has. Of no
    /// member: ignored.
    pub fn caches(
        &mut self,
        replica: ReplicaId,
        (is_whole, changes): (bool, &[CacheChange]),
        now: Nanos,
        released: &mut Vec<Release>,
    ) {
        let Some(slot) = self.fleet.member(replica) else {
            return;
        };
        self.settle(now, released);
        if is_whole {
            self.caches.index.clear(slot);
        }
        for change in changes {
            self.caches.index.apply(slot, *change, now);
        }
        self.release(ReleaseCause::Models, now, released);
    }

    /// How many entries `replica` has reported and not removed, as far as they are not forgotten. 0
    /// for no member.
    pub fn cached_by(&self, replica: ReplicaId) -> u32 {
        self.fleet.member(replica).map_or(0, |slot| self.caches.index.reported(slot))
    }
}
