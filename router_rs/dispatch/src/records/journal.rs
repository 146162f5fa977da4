//! Notes about one call, taken on its way.

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

/// Beyond this, attempts replace the last one: a call that finds every replica full may have any
/// number.
const ATTEMPTS_MAX: usize = 32;

/// The reason for an attempt.
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
    /// For the attempt after one that did not start.
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

/// The notes of one call; off if no records are kept.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    is_on: bool,
    /// The client wants to know where its call went.
    pub(crate) is_asked: bool,
    /// The call is explained; sampled calls only up to a limit per second.
    is_explained: bool,
    /// In the router's time, like all times here.
    pub(super) start: Nanos,
    pub(super) parked: Nanos,
    pub(super) refused: Option<Refused>,
    pub(super) sampled: Option<Box<Sampled>>,
    pub(super) attempts: SmallVec<[Note; 1]>,
    /// The index of the current attempt, when two run at once.
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
    /// When and how it ended, in a word; `None`: its answer was no longer needed.
    pub(super) end: Option<(Nanos, &'static str)>,
    pub(super) why: Why,
}

impl Journal {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether an explanation of the routing decision will be read.
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

    /// Notes that the call has a place; returns the trace context to send with its head.
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

    /// The second place has won; the first one is given back.
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
