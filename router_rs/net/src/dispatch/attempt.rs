//! How one attempt of a call ended, and what that means for the call.

use std::time::Duration;

use h2::Reason;
use http::response;
use router_core::Outcome;

use super::blame::Repeat;
use super::download::Answer;
use super::exchange::{Ending, Failure, Limits, deadline_exceeded};
use crate::client::connection::Connection;
use crate::grpc::{Code, Status};

/// How one attempt ended: the call is over, it did not start there, or it failed and may be sent
/// again.
pub(super) enum Attempt {
    Over(Ending, Outcome),
    Elsewhere(Outcome, Failure),
    Again(Outcome, Again),
}

/// A failure that nobody has been told of, because there may be another attempt.
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

// === impl Ending, Attempt, Held ===

impl Ending {
    /// Of an attempt that was broken off on our side: a deadline that passes before a replica has
    /// said anything may be its fault.
    pub(super) fn outcome(&self, has_begun: bool) -> Outcome {
        match self {
            Self::Failed(failure)
                if failure.status.code == Code::DeadlineExceeded && !has_begun =>
            {
                Outcome::Late
            }
            Self::Answered | Self::Gone | Self::Failed(_) => Outcome::Cancelled,
        }
    }
}

impl Attempt {
    /// Keeps a break to itself, if there may be another attempt.
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
                Some(Failure { status, did_not_start: false })
            }
        }
    }
}

pub(super) fn not_connected(reason: String) -> Attempt {
    let status = Status::new(Code::Unavailable, reason);
    Attempt::Elsewhere(Outcome::ConnectFailed, Failure { status, did_not_start: true })
}

/// The end of an attempt, by the answer that came.
pub(super) fn judge(answer: Answer, connection: &Connection, limits: &Limits<'_>) -> Attempt {
    match answer {
        Answer::Complete { load, is_failure, first_data_at: _ } => {
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
        Answer::Gone => Attempt::Over(Ending::Gone, Outcome::Cancelled),
        Answer::Refused { load, head } => {
            let status = Status::read(&head.headers).unwrap_or_else(|| {
                Status::new(Code::ResourceExhausted, "the replica has no room for the call")
            });
            let failure = Failure { status, did_not_start: true };
            Attempt::Elsewhere(Outcome::Refused { load }, failure)
        }
        Answer::Broken { error, before_head } => {
            judge_break(&error, before_head, connection, limits)
        }
        Answer::BrokenOff => {
            let status = Status::new(Code::Internal, "the application broke its answer off");
            let failure = Failure { status, did_not_start: false };
            Attempt::Over(Ending::Failed(failure), Outcome::Failed)
        }
    }
}

fn judge_break(
    error: &h2::Error,
    before_head: bool,
    connection: &Connection,
    limits: &Limits<'_>,
) -> Attempt {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    // A GOAWAY of the peer fails only streams that it says it did not process (RFC 9113, 6.8).
    let is_past_goaway = error.is_go_away() && error.is_remote();
    let did_not_start = before_head && error.is_remote() && (is_refused || is_past_goaway);
    let status = match error.reason() {
        // Servers reset calls whose deadline has passed; who notices first is chance.
        Some(Reason::CANCEL) if error.is_reset() && limits.is_past() => deadline_exceeded(),
        Some(reason) if error.is_reset() => {
            Status::new(Code::from_reset(reason), format!("the call was reset: {reason}"))
        }
        _ => {
            let cause = connection.end_reason().unwrap_or_else(|| error.to_string());
            Status::new(Code::Unavailable, format!("the connection broke: {cause}"))
        }
    };
    let failure = Failure { status, did_not_start };
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
