//! The statistics of a router.

use super::{ReplicaStats, Router, RouterStats};

impl Router {
    /// The counts. Allocates; for metrics, not for decisions.
    pub fn stats(&self) -> RouterStats {
        let replicas: Vec<ReplicaStats> = self
            .fleet
            .iter()
            .map(|(slot, replica)| ReplicaStats {
                id: replica.id,
                tier: replica.tier,
                in_flight: replica.in_flight,
                capacity: replica.capacity,
                models: self.directory.count(slot) as u32,
                is_member: replica.is_member,
                backoff_until: replica.backoff.until(),
                ejected_until: replica.health.ejected_until(),
                is_silent: replica.health.is_silent(),
                reported: replica.reported,
            })
            .collect();
        RouterStats {
            in_flight: replicas.iter().map(|replica| u64::from(replica.in_flight)).sum(),
            parked: self.queue.len() as u64,
            waiting_for_model: (self.queue.faithful_len() - self.caches.waiting_len()) as u64,
            cache_keys: self.caches.index.len() as u64,
            cache_bytes: self.caches.index.bytes() as u64,
            cache_forgotten: self.caches.index.forgotten,
            replicas,
            ..self.totals.clone()
        }
    }
}
