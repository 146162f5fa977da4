//! How an attempt of a call at one replica ended, and the consequence for the call.

use std::time::Duration;

use h2::Reason;
use http::response;
use router_call::Failure;
use router_core::{Nanos, Outcome};
use router_protocol::grpc::{Code, Status};
use router_upstream::call_error::CallError;
use router_upstream::connection::Connection;

use crate::ending::Ending;
use crate::entry::TicketGuard;
use crate::exchange::download::Answer;
use crate::limits::{Limits, deadline_exceeded};
use crate::outcome::Repeat;

/// How one attempt ended: the call is over, it did not start there, or it failed and may be
/// retried.
pub(super) enum Attempt {
    Over(Ending, Outcome),
    Elsewhere(Outcome, Failure),
    Again(Outcome, Again),
}

/// A failure that is not reported yet, because there may be another attempt.
pub(super) struct Again {
    pub held: Held,
    /// How long the replica wants the next attempt to wait.
    pub pushback: Option<Duration>,
}

pub(super) enum Held {
    /// The replica's own answer.
    Answer(Box<response::Parts>),
    Failure(Failure),
}

/// The last replica of a call, and when the call was over there.
pub(super) struct Last {
    pub ticket: TicketGuard,
    pub now: Nanos,
}

// === impl Attempt, Held ===

impl Attempt {
    /// Holds a break back, if there may be another attempt.
    pub(super) fn held_if(self, may_repeat: bool) -> Self {
        match self {
            Self::Over(Ending::Failed(failure), Outcome::Failed) if may_repeat => {
                Self::Again(Outcome::Failed, Again { held: Held::Failure(failure), pushback: None })
            }
            attempt => attempt,
        }
    }
}

impl Held {
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Held::Failure(failure) => Some(failure),
            Held::Answer(head) => {
                let status = Status::read(&head.headers)?;
                Some(Failure::new(status, false))
            }
        }
    }
}

pub(super) fn not_connected(reason: String) -> Attempt {
    let status = Status::new(Code::Unavailable, reason);
    Attempt::Elsewhere(Outcome::ConnectFailed, Failure::new(status, true))
}

/// The end of an attempt, by the answer that came.
pub(super) fn classify(answer: Answer, connection: &Connection, limits: &Limits<'_>) -> Attempt {
    match answer {
        Answer::Complete { load, is_failure } => {
            let outcome = Outcome::Done { load, is_failure, first_message_at: None };
            Attempt::Over(Ending::Answered, outcome)
        }
        Answer::Again { load, head, repeat } => {
            let pushback = match repeat {
                Repeat::After(time) => Some(time),
                Repeat::Soon | Repeat::Never => None,
            };
            let outcome = Outcome::Done { load, is_failure: true, first_message_at: None };
            Attempt::Again(outcome, Again { held: Held::Answer(head), pushback })
        }
        Answer::Cancelled => Attempt::Over(Ending::Cancelled, Outcome::Cancelled),
        Answer::Refused { load, head } => {
            let status = Status::read(&head.headers).unwrap_or_else(|| {
                Status::new(Code::ResourceExhausted, "the replica has no room for the call")
            });
            let failure = Failure::new(status, true);
            Attempt::Elsewhere(Outcome::Refused { load }, failure)
        }
        Answer::Broken { error, before_head } => {
            classify_break(&error, before_head, connection, limits)
        }
        Answer::BrokenOff => {
            let status = Status::new(Code::Internal, "the application broke its answer off");
            let failure = Failure::new(status, false);
            Attempt::Over(Ending::Failed(failure), Outcome::Failed)
        }
    }
}

fn classify_break(
    error: &CallError,
    before_head: bool,
    connection: &Connection,
    limits: &Limits<'_>,
) -> Attempt {
    let is_refused =
        matches!(error, CallError::Reset { reason: Reason::REFUSED_STREAM, is_remote: true });
    let did_not_start = before_head && (is_refused || matches!(error, CallError::NotTaken(_)));
    let status = match error {
        // Servers reset calls whose deadline has passed; which side notices first is random.
        CallError::Reset { reason: Reason::CANCEL, .. } if limits.is_past() => deadline_exceeded(),
        CallError::Reset { reason, .. } => {
            Status::new(Code::from_reset(*reason), format!("the call was reset: {reason}"))
        }
        CallError::NotTaken(cause) | CallError::Broken(cause) => {
            let cause = connection.end_reason().unwrap_or_else(|| cause.clone());
            Status::new(Code::Unavailable, format!("the connection broke: {cause}"))
        }
    };
    let failure = Failure::new(status, did_not_start);
    match (did_not_start, is_refused) {
        (true, true) => Attempt::Elsewhere(Outcome::Refused { load: None }, failure),
        (true, false) => Attempt::Elsewhere(Outcome::ConnectFailed, failure),
        (false, _) => {
            let is_late = before_head && failure.status.code == Code::DeadlineExceeded;
            let outcome = if is_late { Outcome::Late } else { Outcome::Failed };
            Attempt::Over(Ending::Failed(failure), outcome)
        }
    }
}
