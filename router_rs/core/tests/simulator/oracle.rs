//! The hits that the best choice of replicas could have in their caches.

use std::collections::BTreeMap;

use router_core::Nanos;

use super::log::Log;
use super::scenario::Scenario;
use super::traffic::Traffic;

/// The share of hits if the caches of all replicas were one: nothing is kept twice, and what leaves is
/// what was used longest ago of all. That is what a router reaches that knows all caches exactly at
/// any moment, sends each call to where its entry is whatever waits there, and each miss to where the
/// entry is that was used longest ago.
///
/// Of the calls of `log`, which the same seed gave; those of the warm-up only fill the cache.
pub(crate) fn shared_cache_hits(scenario: &Scenario, seed: u64, log: &Log) -> f64 {
    let mut traffic = Traffic::new(scenario, seed);
    let slots = scenario.slots * scenario.replicas;
    let mut used_at: BTreeMap<u32, usize> = BTreeMap::new();
    let mut by_use: BTreeMap<usize, u32> = BTreeMap::new();
    let (mut hits, mut calls) = (0_u32, 0_u32);
    for (index, record) in log.records.iter().enumerate() {
        let Some(key) = traffic.call(Nanos::ZERO).key else { return 0.0 };
        let before = used_at.insert(key, index);
        by_use.insert(index, key);
        match before {
            Some(before) => drop(by_use.remove(&before)),
            None if used_at.len() > slots => {
                let gone = by_use.pop_first().map(|(_, key)| key);
                used_at.remove(&gone.expect("somebody was there"));
            }
            None => {}
        }
        if record.offered_at >= log.warm_at {
            calls += 1;
            hits += u32::from(before.is_some());
        }
    }
    f64::from(hits) / f64::from(calls.max(1))
}
