//! How long calls take and wait, where they go and how well that was predicted: for people.
//! Nothing is decided by it.

use super::fleet::Fleet;
use super::types::Outcome;
use crate::histogram::Histogram;
use crate::membership::{ReplicaId, Tier};
use crate::time::Nanos;

/// The event that released a parked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// Another call left its replica.
    Completion,
    /// A replica kept a place, which a router had asked for.
    Lease,
    /// A backoff, a rest or a pause ended, or the call had waited long enough for its model or for
    /// a better replica.
    Time,
    /// Replicas came, or may have more calls.
    Members,
    /// A replica told which models it has.
    Models,
    /// A replica gave a sign of life again, or none any more.
    Life,
    /// The deployment's settings changed.
    Settings,
}

impl ReleaseCause {
    /// Each of them, in the order of [`Measures::releases`].
    pub const ALL: [Self; 7] = [
        Self::Completion,
        Self::Lease,
        Self::Time,
        Self::Members,
        Self::Models,
        Self::Life,
        Self::Settings,
    ];

    /// One word, for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Lease => "lease",
            Self::Time => "time",
            Self::Members => "members",
            Self::Models => "models",
            Self::Life => "life",
            Self::Settings => "settings",
        }
    }
}

/// Times and counts of one router, from its start.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// Whole calls that were answered, and did not blame the replica.
    pub answered: Histogram,
    /// Whole calls that failed, or got no replica. Calls whose callers left are in neither.
    pub failed: Histogram,
    /// Waits in the router, before and between attempts.
    pub waits: Histogram,
    /// For how long replicas worked beside which calls were kept in the router and that could, as it
    /// turned out, have worked on one of them as well.
    pub kept_wrongly: Nanos,
    /// By how much calls were answered sooner than predicted when they were sent.
    pub early: Histogram,
    /// By how much they were answered later.
    pub late: Histogram,
    /// Parked calls that were sent, by [`ReleaseCause::ALL`].
    pub releases: [u64; ReleaseCause::ALL.len()],
    /// Attempts by how far away the replica was: node, zone, any.
    pub sent_by_tier: [u64; 3],
    /// In the router: by slot. Outside: the members, and those that left with calls still open.
    pub replicas: Vec<ReplicaMeasures>,
}

/// Those of one replica, from when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaMeasures {
    /// The replica.
    pub id: ReplicaId,
    /// Calls sent there.
    pub sent: u64,
    /// Those of them that failed by its fault, as far as one can tell.
    pub failed: u64,
    /// Attempts that ended there, well or not: neither refused nor left by their callers.
    pub attempts: Histogram,
}

impl Measures {
    /// Makes a place for each replica that has come.
    pub(super) fn follow(&mut self, fleet: &Fleet) {
        for (slot, replica) in fleet.iter() {
            let slot = slot as usize;
            let fresh = ReplicaMeasures::new(replica.id);
            if slot >= self.replicas.len() {
                self.replicas.resize(slot + 1, fresh);
            }
            if self.replicas[slot].id != replica.id {
                self.replicas[slot] = fresh;
            }
        }
    }

    #[inline]
    pub(super) fn on_sent(&mut self, slot: u32, tier: Tier) {
        self.sent_by_tier[tier as usize] += 1;
        self.replicas[slot as usize].sent += 1;
    }

    /// An attempt ended; `predicted` is how long it was to take, 0 if nothing was known.
    #[inline]
    pub(super) fn on_attempt(
        &mut self,
        slot: u32,
        outcome: Outcome,
        took: Nanos,
        predicted: Nanos,
    ) {
        let replica = &mut self.replicas[slot as usize];
        match outcome {
            Outcome::Done { is_failure, first_message_at, .. } => {
                replica.attempts.add(took);
                replica.failed += u64::from(is_failure);
                // When a stream ends is its own business.
                if predicted > Nanos::ZERO && !is_failure && first_message_at.is_none() {
                    self.on_prediction(took, predicted);
                }
            }
            Outcome::Failed | Outcome::Late => {
                replica.attempts.add(took);
                replica.failed += 1;
            }
            Outcome::Refused { .. } | Outcome::ConnectFailed | Outcome::Cancelled => {}
        }
    }

    #[inline]
    fn on_prediction(&mut self, took: Nanos, predicted: Nanos) {
        match took.checked_sub(predicted) {
            Some(late) => self.late.add(late),
            None => self.early.add(predicted.saturating_sub(took)),
        }
    }

    #[inline]
    pub(super) fn on_end(&mut self, outcome: Outcome, took: Nanos) {
        match outcome {
            Outcome::Done { is_failure: false, .. } => self.answered.add(took),
            Outcome::Cancelled => {}
            Outcome::Done { .. }
            | Outcome::Refused { .. }
            | Outcome::ConnectFailed
            | Outcome::Failed
            | Outcome::Late => self.failed.add(took),
        }
    }

    pub(super) fn on_kept_wrongly(&mut self, took: Nanos) {
        self.kept_wrongly = self.kept_wrongly.saturating_add(took);
    }

    pub(super) fn on_released(&mut self, cause: ReleaseCause, calls: usize) {
        self.releases[cause as usize] += calls as u64;
    }
}

impl ReplicaMeasures {
    pub(super) fn new(id: ReplicaId) -> Self {
        Self { id, sent: 0, failed: 0, attempts: Histogram::default() }
    }
}

impl Measures {
    pub(super) fn clone_without_replicas(&self) -> Self {
        Self { replicas: Vec::new(), ..*self }
    }
}
