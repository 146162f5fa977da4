//! The cost of model loads, learnt from the first call that each holder has answered.
//!
//! The first call of a promise waits for the load, later ones do not: the time by which it exceeds
//! a usual call is the load. A call that waited behind the load of another model would count that
//! too, so the answers of a holder that was still loading are not used.
//!
//! Later calls show how long calls of the model wait for its holders. When that is longer than a
//! load, loading the model on one more replica is worthwhile.

use super::loading::{Answer, Loading};
use super::{Model, ModelDirectory};
use crate::time::Nanos;

/// Of one load in the mean of all. Arbitrary: models differ, and their loads are rare.
const LOAD_WEIGHT: f64 = 1.0 / 8.0;

/// Of one call in the mean wait of its model.
const WAIT_WEIGHT: f64 = 1.0 / 16.0;

impl ModelDirectory {
    /// What a load of the model is expected to take: as long as its own have, else as long as those
    /// of all models. `None`: none has been seen yet.
    #[inline]
    pub(in crate::router) fn load_ns(&self, model: Model) -> Option<f64> {
        let own_ns = self.entries[model as usize].load_time.ns;
        let load_ns = if own_ns > 0.0 { own_ns } else { self.load_time.ns };
        (load_ns > 0.0).then_some(load_ns)
    }

    /// A replica has been sent its first call of the model and has not answered yet.
    pub(in crate::router) fn is_loading(&self, model: Model) -> bool {
        self.holders(model).iter().any(|holder| holder.loading.is_some())
    }

    /// How much longer than usual the last calls of the model took at replicas that have it.
    #[inline]
    pub(in crate::router) fn wait_ns(&self, model: Model) -> f64 {
        self.entries[model as usize].wait_ns
    }

    pub(super) fn begin_load(&mut self, model: Model, slot: u32, now: Nanos) {
        // Who comes from now on will not wait as those before.
        self.entries[model as usize].wait_ns = 0.0;
        let others = &self.models_of[slot as usize];
        let is_loading =
            |other: &Model| self.holder(*other, slot).is_some_and(|h| h.loading.is_some());
        let is_alone = !others.iter().any(is_loading);
        if let Some(holder) = self.holder_mut(model, slot) {
            holder.loading = Some(Loading { since: now, is_alone });
        }
    }

    /// A call of the model in `slot` was answered.
    pub(super) fn on_answer(&mut self, model: Model, slot: u32, answer: Answer) {
        let Some(holder) = self.holder_mut(model, slot) else { return };
        let loading = holder.loading.take();
        match loading {
            Some(Loading { since, is_alone: true }) => {
                let load_ns = answer.now.saturating_sub(since).0 as f64 - self.usual_ns(answer);
                self.load_time.add(load_ns, LOAD_WEIGHT);
                self.entries[model as usize].load_time.add(load_ns, LOAD_WEIGHT);
            }
            Some(Loading { is_alone: false, .. }) => {}
            None => {
                self.run_time.add(answer.ran.0 as f64, WAIT_WEIGHT);
                let wait_ns = answer.took.0 as f64 - self.usual_ns(answer);
                let mean_ns = &mut self.entries[model as usize].wait_ns;
                *mean_ns += (wait_ns - *mean_ns) * WAIT_WEIGHT;
            }
        }
    }

    /// The time of a call that waits neither for its model nor for other calls. Two means are too
    /// high, one because of loads and one because of waits inside replicas; this is the lower one.
    fn usual_ns(&self, answer: Answer) -> f64 {
        self.run_time.ns.min(answer.alone_ns)
    }
}
