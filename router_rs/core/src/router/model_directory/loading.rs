//! The records of model loads.

use crate::time::Nanos;

/// A holder whose first call is not over yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loading {
    pub(super) since: Nanos,
    /// Nothing else was loading there when it began.
    pub(super) is_alone: bool,
}

/// The measurements of one answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) struct Answer {
    /// Since the call was offered.
    pub(in crate::router) took: Nanos,
    /// Since it was sent last.
    pub(in crate::router) ran: Nanos,
    /// The usual time of a call alone in this deployment, loads included.
    pub(in crate::router) alone_ns: f64,
    pub(in crate::router) now: Nanos,
}

/// A mean that forgets; 0: nothing is known yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    pub(super) ns: f64,
}

impl Mean {
    pub(super) fn add(&mut self, sample_ns: f64, weight: f64) {
        let sample_ns = sample_ns.max(1.0);
        if self.ns == 0.0 {
            self.ns = sample_ns;
        } else {
            self.ns += (sample_ns - self.ns) * weight;
        }
    }
}
