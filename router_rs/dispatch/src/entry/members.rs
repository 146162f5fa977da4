//! The known facts about a deployment's replicas, for all readers.

use std::sync::Arc;

use router_core::{Measures, ReplicaId, RouterStats};
use router_upstream::target::Target;

use super::DeploymentEntry;

/// A replica and the models that it has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaModels {
    pub replica_id: String,
    pub node: String,
    pub models: Vec<String>,
}

/// A replica that may get a call, as a user's policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub replica_id: String,
    pub node: String,
    /// Calls of this router there, and how many it may have there.
    pub in_flight: u32,
    pub capacity: u32,
    pub models: Vec<String>,
}

impl DeploymentEntry {
    pub fn stats(&self) -> RouterStats {
        self.locked.lock().router.stats()
    }

    pub(crate) fn measures(&self) -> Measures {
        self.locked.lock().router.measures()
    }

    pub(crate) fn replica_models(&self) -> Vec<ReplicaModels> {
        let locked = self.locked.lock();
        let describe = |(id, target): &(ReplicaId, Arc<Target>)| {
            let replica = target.as_replica()?;
            Some(ReplicaModels {
                replica_id: replica.replica_id.clone(),
                node: replica.node.clone(),
                models: locked.router.models_of(*id),
            })
        };
        locked.members.iter().filter_map(describe).collect()
    }

    /// The replicas, as a user's policy sees them.
    pub(crate) fn candidates(&self) -> Vec<(ReplicaId, Candidate)> {
        let locked = self.locked.lock();
        let stats = locked.router.stats();
        let describe = |(id, target): &(ReplicaId, Arc<Target>)| {
            let replica = target.as_replica()?;
            let counts = stats.replicas.iter().find(|counts| counts.id == *id)?;
            let candidate = Candidate {
                replica_id: replica.replica_id.clone(),
                node: replica.node.clone(),
                in_flight: counts.in_flight,
                capacity: counts.capacity,
                models: locked.router.models_of(*id),
            };
            counts.is_member.then_some((*id, candidate))
        };
        locked.members.iter().filter_map(describe).collect()
    }
}
