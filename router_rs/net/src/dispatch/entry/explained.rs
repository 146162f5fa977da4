//! What the deployment's router would say of a call.

use super::{Crowd, DeploymentEntry};
use crate::dispatch::explain::Explained;
use crate::dispatch::settings::Wish;

impl DeploymentEntry {
    /// Who is there now, for a call whose time is over.
    #[cold]
    pub(in crate::dispatch) fn crowd(&self) -> Crowd {
        Crowd::of(&self.locked.lock().router)
    }

    /// For calls that ask; changes nothing.
    #[cold]
    pub(in crate::dispatch) fn explain(&self, wish: &Wish<'_>, share: Option<f32>) -> Explained {
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
