//! What is known of a deployment's replicas, for whoever asks.

use std::sync::Arc;

use router_core::{Measures, ReplicaId, RouterStats};

use super::super::ranker::Candidate;
use super::super::table::ReplicaModels;
use super::DeploymentEntry;
use crate::upstream::target::Target;

impl DeploymentEntry {
    pub(crate) fn stats(&self) -> RouterStats {
        self.locked.lock().router.stats()
    }

    pub(in crate::dispatch) fn measures(&self) -> Measures {
        self.locked.lock().router.measures()
    }

    pub(in crate::dispatch) fn replica_models(&self) -> Vec<ReplicaModels> {
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

    /// The replicas as a policy of the user's sees them.
    pub(in crate::dispatch) fn candidates(&self) -> Vec<(ReplicaId, Candidate)> {
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
