//! Which changes are on their way, and how long each took to all watchers. Pure: no I/O, no clock.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::messages::{DeploymentKey, DeploymentView, ReplicaView, WatchUpdate};

/// Of delays, in microseconds: a minute. What takes longer counts as a minute.
const DELAY_MAX_US: u64 = 60_000_000;
const DELAY_DIGITS: u8 = 3;

/// What a watcher sees of one replica: the text that it says of itself.
type Seen = HashMap<String, String>;

/// One change of a replica, as routers see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// It serves now.
    Came(String),
    /// It serves no more.
    Went(String),
    /// It says something else of itself.
    Said(String, String),
}

#[derive(Debug)]
struct Pending {
    begun: Instant,
    /// Watchers that have not heard of it.
    missing: usize,
}

/// The changes of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    watchers: usize,
    pending: HashMap<Change, Pending>,
    delays_us: Histogram<u64>,
    /// Changes whose delay is counted.
    pub(crate) counted: u64,
    /// Bytes of updates that the watchers have received.
    pub(crate) bytes: u64,
    pub(crate) updates: u64,
    /// Replicas named in those updates, once for each watcher.
    pub(crate) replicas_named: u64,
}

/// What one watcher knows of the mesh.
#[derive(Debug, Default)]
pub(crate) struct View {
    version: u64,
    deployments: HashMap<DeploymentName, Seen>,
}

type DeploymentName = (String, String);

// === impl Ledger ===

impl Ledger {
    pub(crate) fn new(watchers: usize) -> Self {
        Self {
            watchers,
            pending: HashMap::new(),
            delays_us: Histogram::new_with_bounds(1, DELAY_MAX_US, DELAY_DIGITS)
                .expect("invariant: the bounds are in order"),
            counted: 0,
            bytes: 0,
            updates: 0,
            replicas_named: 0,
        }
    }

    /// Count from here on; what is on its way counts as well.
    pub(crate) fn begin(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        *self = Self { pending, ..Self::new(self.watchers) };
    }

    /// A change begins: all watchers have to hear of it.
    pub(crate) fn on_change(&mut self, change: Change, now: Instant) {
        if self.watchers > 0 {
            self.pending.insert(change, Pending { begun: now, missing: self.watchers });
        }
    }

    /// One watcher has heard of a change. A view that was not announced (a snapshot) does not count.
    fn on_seen(&mut self, change: &Change, now: Instant) {
        let Some(pending) = self.pending.get_mut(change) else { return };
        pending.missing -= 1;
        if pending.missing == 0 {
            let took = now.saturating_duration_since(pending.begun).as_micros();
            let took = u64::try_from(took).unwrap_or(DELAY_MAX_US).clamp(1, DELAY_MAX_US);
            self.delays_us.record(took).expect("invariant: clamped to the bounds");
            self.counted += 1;
            self.pending.remove(change);
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The delay that this share of the changes did not exceed.
    pub(crate) fn delay(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.delays_us.value_at_quantile(quantile))
    }
}

// === impl View ===

impl View {
    /// Take an update of so many bytes; `false` if it does not follow the last one.
    pub(crate) fn apply(
        &mut self,
        update: WatchUpdate,
        bytes: usize,
        ledger: &mut Ledger,
        now: Instant,
    ) -> bool {
        let is_snapshot = update.base_version == 0;
        if is_snapshot {
            // Deployments that it lacks have gone, as in a view that is replaced.
            let there: HashSet<_> =
                update.changed.iter().map(|view| name_of(view.key.clone())).collect();
            self.deployments.retain(|name, seen| {
                if there.contains(name) {
                    return true;
                }
                for id in std::mem::take(seen).into_keys() {
                    ledger.on_seen(&Change::Went(id), now);
                }
                false
            });
        } else if update.base_version != self.version {
            return false;
        } else {
            ledger.bytes += bytes as u64;
            ledger.updates += 1;
        }
        self.version = update.version;
        for view in update.changed {
            ledger.replicas_named += if is_snapshot { 0 } else { view.replicas.len() as u64 };
            self.replace(view, ledger, now);
        }
        for patch in update.patched {
            ledger.replicas_named += (patch.changed.len() + patch.removed.len()) as u64;
            let seen = self.deployments.entry(name_of(patch.key)).or_default();
            for replica in patch.changed {
                put(seen, replica, ledger, now);
            }
            for id in patch.removed {
                seen.remove(&id);
                ledger.on_seen(&Change::Went(id), now);
            }
        }
        for key in update.removed {
            self.deployments.remove(&name_of(Some(key)));
        }
        true
    }

    fn replace(&mut self, view: DeploymentView, ledger: &mut Ledger, now: Instant) {
        let seen = self.deployments.entry(name_of(view.key)).or_default();
        let mut gone = std::mem::take(seen);
        for replica in view.replicas {
            if let Some((id, said)) = gone.remove_entry(&replica.replica_id) {
                seen.insert(id, said);
            }
            put(seen, replica, ledger, now);
        }
        for (id, _) in gone {
            ledger.on_seen(&Change::Went(id), now);
        }
    }
}

fn put(seen: &mut Seen, replica: ReplicaView, ledger: &mut Ledger, now: Instant) {
    let ReplicaView { replica_id: id, routing_stats_json: said } = replica;
    match seen.get(&id) {
        None => ledger.on_seen(&Change::Came(id.clone()), now),
        Some(before) if *before != said => {
            ledger.on_seen(&Change::Said(id.clone(), said.clone()), now);
        }
        Some(_) => return,
    }
    seen.insert(id, said);
}

fn name_of(key: Option<DeploymentKey>) -> DeploymentName {
    key.map(|key| (key.application, key.name)).unwrap_or_default()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
