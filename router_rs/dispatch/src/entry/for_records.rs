//! The parts of a deployment that records and explanations of calls need.

use super::DeploymentEntry;
use crate::explain::Explained;
use crate::records::CallRecords;
use crate::refused::Crowd;
use crate::wish::Wish;

impl DeploymentEntry {
    /// A seed for the random numbers of one call.
    pub(crate) fn draw(&self) -> u64 {
        self.draws.next()
    }

    pub(crate) fn records(&self) -> Option<&CallRecords> {
        self.records.as_deref()
    }

    /// The replicas present now, for a call whose time is over.
    #[cold]
    pub(crate) fn crowd(&self) -> Crowd {
        Crowd::of(&self.locked.lock().router)
    }

    /// For calls that ask for an explanation; changes nothing.
    #[cold]
    pub(crate) fn explain(&self, wish: &Wish<'_>, share: Option<f32>) -> Explained {
        let now = self.clock.now();
        let locked = self.locked.lock();
        let seen = locked.router.explain(&wish.offer(None), now);
        let members = locked.members.iter();
        let names = members
            .filter_map(|(id, target)| Some((*id, target.as_replica()?.replica_id.clone())))
            .collect();
        let deployment = format!("{}/{}", self.application, self.deployment);
        Explained { seen, deployment, share, names, chosen: None, refused: None }
    }
}
