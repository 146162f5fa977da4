//! What is noted of one call on its way.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use router_core::{Nanos, Outcome};
use router_protocol::trace_context::{SpanId, TraceContext};
use router_upstream::target::Target;
use smallvec::SmallVec;

use super::sampler::Sampled;
use crate::refused::Refused;
use crate::tally::Seen;

/// Of more attempts the last ones are not told apart: a call that finds every replica full may have
/// any number.
const ATTEMPTS_MAX: usize = 32;

/// Why there was an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Why {
    #[default]
    First,
    RefusedBefore,
    ConnectFailedBefore,
    Retry,
    Hedge,
}

impl Why {
    /// Of the attempt after one that did not start.
    pub(crate) fn after(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Refused { .. } => Self::RefusedBefore,
            _ => Self::ConnectFailedBefore,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::RefusedBefore => "refused_before",
            Self::ConnectFailedBefore => "connect_failed_before",
            Self::Retry => "retry",
            Self::Hedge => "hedge",
        }
    }
}

/// The notes of one call; off where nobody keeps records.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    is_on: bool,
    /// The client wants to know where its call went.
    pub(crate) is_asked: bool,
    /// There is time to say why it goes where it goes.
    is_explained: bool,
    /// As the router counts time, as all here.
    pub(super) start: Nanos,
    pub(super) parked: Nanos,
    pub(super) refused: Option<Refused>,
    pub(super) sampled: Option<Box<Sampled>>,
    pub(super) attempts: SmallVec<[Note; 1]>,
    /// Which attempt is the call's, of two at once.
    running: usize,
}

/// One attempt.
#[derive(Debug)]
pub(super) struct Note {
    /// `None`: that of the call's last ticket.
    pub(super) target: Option<Arc<Target>>,
    pub(super) span: Option<SpanId>,
    pub(super) start: Nanos,
    pub(super) head_at: Option<Instant>,
    /// When and how it ended, in a word; `None`: its answer was not needed any more.
    pub(super) end: Option<(Nanos, &'static str)>,
    pub(super) why: Why,
}

impl Journal {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Somebody will read why the call goes where it goes.
    pub(crate) fn wants_explanation(&self) -> bool {
        self.is_asked || self.is_explained
    }

    pub(super) fn begin(
        &mut self,
        start: Nanos,
        sampled: Option<Box<Sampled>>,
        is_explained: bool,
    ) {
        (self.is_on, self.is_explained) = (true, is_explained);
        self.start = start;
        self.sampled = sampled;
    }

    /// The call has a place; what its head has to say to whoever gets it.
    pub(crate) fn on_place(
        &mut self,
        target: &Arc<Target>,
        sent_at: Nanos,
        why: Why,
    ) -> Option<HeaderValue> {
        if !self.is_on {
            return None;
        }
        let context = self.sampled.as_mut().map(|sampled| {
            let span = SpanId::of(sampled.numbers.next_u64());
            TraceContext { trace: sampled.trace, span, is_sampled: true }
        });
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.pop();
        }
        let is_hedge = why == Why::Hedge;
        if !is_hedge {
            self.running = self.attempts.len();
        }
        self.attempts.push(Note {
            target: is_hedge.then(|| Arc::clone(target)),
            span: context.map(|context| context.span),
            start: sent_at,
            head_at: None,
            end: None,
            why,
        });
        context.map(TraceContext::header)
    }

    /// The second place has won; the first one's is given back.
    pub(crate) fn on_hedge_won(&mut self, first: &Arc<Target>) {
        if let Some(note) = self.attempts.get_mut(self.running) {
            note.target = Some(Arc::clone(first));
        }
        let is_second = |note: &Note| note.why == Why::Hedge && note.end.is_none();
        if let Some(second) = self.attempts.iter().rposition(is_second) {
            self.running = second;
        }
    }

    /// The attempt is over, and there may be another.
    pub(crate) fn on_attempt(
        &mut self,
        target: &Arc<Target>,
        outcome: Outcome,
        seen: &Seen,
        now: Nanos,
    ) {
        self.on_last_attempt(outcome, seen, now);
        if let Some(note) = self.attempts.get_mut(self.running) {
            note.target.get_or_insert_with(|| Arc::clone(target));
        }
    }

    /// The attempt is over, and the call with it.
    pub(crate) fn on_last_attempt(&mut self, outcome: Outcome, seen: &Seen, now: Nanos) {
        if let Some(note) = self.attempts.get_mut(self.running) {
            note.head_at = seen.head_at;
            note.end = Some((now, word(outcome)));
        }
    }

    /// The call has waited in the router.
    pub(crate) fn on_waited(&mut self, since: Nanos, until: Nanos) {
        self.parked = self.parked.saturating_add(until.saturating_sub(since));
    }

    /// No replica takes it.
    pub(crate) fn on_refused(&mut self, refused: Refused) {
        self.refused = Some(refused);
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done { is_failure: false, .. } => "ok",
        Outcome::Done { is_failure: true, .. } | Outcome::Failed => "failed",
        Outcome::Refused { .. } => "refused",
        Outcome::ConnectFailed => "connect_failed",
        Outcome::Late => "late",
        Outcome::Cancelled => "cancelled",
    }
}
