//! Reports silent replicas to their deployment's router.

use std::sync::{Arc, Weak};

use router_core::ReplicaId;
use router_upstream::reachability::Observer;
use router_upstream::target::Target;

use crate::entry::DeploymentEntry;

/// The router of one deployment as the observer of one replica.
#[derive(Debug)]
struct ReplicaWatch {
    entry: Weak<DeploymentEntry>,
    replica: ReplicaId,
}

impl Observer for ReplicaWatch {
    fn on_silence(&self, is_silent: bool) {
        if let Some(entry) = self.entry.upgrade() {
            entry.on_silence(self.replica, is_silent);
        }
    }
}

/// Watches these replicas for `entry`, which has them as members.
pub(crate) fn watch(entry: &Arc<DeploymentEntry>, replicas: Vec<(ReplicaId, Arc<Target>)>) {
    for (replica, target) in replicas {
        let entry = Arc::downgrade(entry);
        target.reachability().observe(Arc::new(ReplicaWatch { entry, replica }));
    }
}
