//! One attempt of a call at one replica, how it ended, and what that means for the call.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use h2::Reason;
use http::{Method, Request, response};
use router_core::Outcome;

use super::blame::Repeat;
use super::caller::{Caller, Gone};
use super::download::{Answer, Download};
use super::exchange::{Ending, Exchange, Failure, Limits, deadline_exceeded};
use super::guards::TicketGuard;
use super::hedge::Won;
use super::silence::Silence;
use super::tally::Seen;
use crate::grpc::{Code, CodeSet, GRPC_TIMEOUT, Status, format_timeout};
use crate::names::UPGRADE;
use crate::upstream::call_error::CallError;
use crate::upstream::connection::{Connection, Started};
use crate::upstream::pool::{Acquired, acquire};
use crate::upstream::target::{DialError, Target};

/// A deadline this close after the head came is passed on as the caller wrote it: the difference
/// is below what any timer of the mesh resolves.
const TIMEOUT_SLACK: Duration = Duration::from_millis(1);

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
pub(super) fn judge(answer: Answer, connection: &Connection, limits: &Limits<'_>) -> Attempt {
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
        Answer::Gone => Attempt::Over(Ending::Gone, Outcome::Cancelled),
        Answer::Refused { load, head } => {
            let status = Status::read(&head.headers).unwrap_or_else(|| {
                Status::new(Code::ResourceExhausted, "the replica has no room for the call")
            });
            let failure = Failure::new(status, true);
            Attempt::Elsewhere(Outcome::Refused { load }, failure)
        }
        Answer::Broken { error, before_head } => {
            judge_break(&error, before_head, connection, limits)
        }
        Answer::BrokenOff => {
            let status = Status::new(Code::Internal, "the application broke its answer off");
            let failure = Failure::new(status, false);
            Attempt::Over(Ending::Failed(failure), Outcome::Failed)
        }
    }
}

fn judge_break(
    error: &CallError,
    before_head: bool,
    connection: &Connection,
    limits: &Limits<'_>,
) -> Attempt {
    let is_refused =
        matches!(error, CallError::Reset { reason: Reason::REFUSED_STREAM, is_remote: true });
    let did_not_start = before_head && (is_refused || matches!(error, CallError::NotTaken(_)));
    let status = match error {
        // Servers reset calls whose deadline has passed; who notices first is chance.
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

// === impl Exchange: one attempt ===

impl<C: Caller> Exchange<'_, C> {
    /// `ticket`: its place, if it may have another.
    pub(super) async fn attempt(
        &mut self,
        target: &Arc<Target>,
        ticket: Option<&TicketGuard>,
    ) -> Attempt {
        let mut reason = None;
        self.seen = Seen::default();
        // A connection may turn out to be closed at the moment of use: once more with another.
        for _ in 0..2 {
            let connection = match self.connect(target).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return not_connected(error.to_string()),
                Err(ending) => return Attempt::Over(ending, Outcome::Cancelled),
            };
            let may_relay = self.may_relay(&connection);
            if may_relay && self.look_for_body().await.is_err() {
                return Attempt::Over(Ending::Gone, Outcome::Cancelled);
            }
            match self.start(&connection, may_relay) {
                Ok(started) => return self.run(started, target.silence_limit(), ticket).await,
                Err(error) => reason = Some(error),
            }
        }
        not_connected(reason.unwrap_or_default())
    }

    async fn connect(
        &mut self,
        target: &Arc<Target>,
    ) -> Result<Result<Rc<Connection>, DialError>, Ending> {
        match acquire(target) {
            Acquired::Open(connection) => Ok(Ok(connection)),
            Acquired::Dialling(mut dialling) => {
                poll_fn(|cx| self.poll_or_end(cx, |cx| Pin::new(&mut dialling).poll(cx))).await
            }
        }
    }

    /// Takes what has come of the request by now: a whole one may go by a relay.
    async fn look_for_body(&mut self) -> Result<(), Gone> {
        poll_fn(|cx| Poll::Ready(self.upload.look(self.caller, cx))).await
    }

    fn start(&mut self, connection: &Rc<Connection>, may_relay: bool) -> Result<Started, String> {
        if may_relay && let Some(started) = self.start_relayed(connection) {
            self.upload.went_with_head();
            return Ok(started);
        }
        let is_bodiless = self.upload.begin();
        connection.start(self.request(), is_bodiless)
    }

    /// The call may go by the connection's relay, once it has come whole.
    pub(super) fn may_relay(&self, connection: &Connection) -> bool {
        connection.has_relay() && !self.is_tunnel()
    }

    /// Starts an attempt by the connection's relay, if the call has come whole and there is a
    /// place; only where it may go there.
    pub(super) fn start_relayed(&mut self, connection: &Rc<Connection>) -> Option<Started> {
        self.upload.whole()?;
        self.set_timeout();
        connection.start_relayed(&self.head.parts, self.upload.whole()?)
    }

    pub(super) fn request(&mut self) -> Request<()> {
        self.set_timeout();
        Request::from_parts(self.head.parts.clone(), ())
    }

    /// WebSocket, or CONNECT: nothing of it is ever whole.
    fn is_tunnel(&self) -> bool {
        let head = &self.head.parts;
        head.method == Method::CONNECT || head.headers.contains_key(UPGRADE)
    }

    fn set_timeout(&mut self) {
        if let Some(deadline) = self.limits.deadline {
            let now = Instant::now();
            let is_fresh = self.head.timeout_since.is_some_and(|since| now - since < TIMEOUT_SLACK);
            if !is_fresh {
                let left = deadline.saturating_duration_since(now);
                self.head.parts.headers.insert(GRPC_TIMEOUT, format_timeout(left));
            }
        }
    }

    async fn run(
        &mut self,
        started: Started,
        silence_limit: Option<Duration>,
        ticket: Option<&TicketGuard>,
    ) -> Attempt {
        let may_repeat = self.head.options.is_idempotent;
        let codes = ticket.filter(|_| may_repeat).map_or(CodeSet::NONE, TicketGuard::retry_codes);
        let mut silence = Silence::new(silence_limit);
        let (mut download, mut body, permit) = match ticket.and_then(|it| self.hedge_after(it)) {
            None => {
                let Started { response, body, permit } = started;
                let is_trusted = permit.connection().is_trusted();
                (Download::new(response, is_trusted, codes), body, permit)
            }
            Some((ticket, after)) => match self.race(started, ticket, after, &mut silence).await {
                Err(attempt) => return *attempt,
                Ok(Won { response, body, permit }) => {
                    let is_trusted = permit.connection().is_trusted();
                    (Download::begun(response, is_trusted, codes), body, permit)
                }
            },
        };
        if let Some(explained) = &mut self.explained {
            let chosen = self.hedged.as_ref().or(ticket);
            let replica = chosen.and_then(|ticket| ticket.target().as_replica());
            explained.choose(replica.map_or("", |it| &it.replica_id));
            if self.journal.is_asked {
                download.explain(explained.line());
            }
        }
        self.caller.on_sent(permit.connection());
        poll_fn(|cx| {
            let uploaded = self.upload.poll(self.caller, body.as_mut(), cx);
            if let Poll::Ready(Err(Gone)) = uploaded {
                return Poll::Ready(Attempt::Over(Ending::Gone, Outcome::Cancelled));
            }
            let answered = download.poll(self.caller, cx);
            self.seen = download.seen();
            if let Poll::Ready(answer) = answered {
                let attempt = judge(answer, permit.connection(), &self.limits);
                return Poll::Ready(attempt.held_if(may_repeat && !download.has_begun()));
            }
            if download.has_begun() {
                self.upload.commit();
            }
            let is_its_turn = uploaded.is_ready() && download.waits_for_replica();
            if let Poll::Ready(ending) = silence.poll(is_its_turn, download.take_spoken(), cx) {
                let attempt = Attempt::Over(ending, Outcome::Failed);
                return Poll::Ready(attempt.held_if(may_repeat && !download.has_begun()));
            }
            if let Poll::Ready(ending) = self.poll_end(cx) {
                let outcome = ending.outcome(download.has_begun());
                return Poll::Ready(Attempt::Over(ending, outcome));
            }
            if self.caller.is_slow() { self.poll_way(ticket, cx) } else { Poll::Pending }
        })
        .await
    }

    /// Whether, and when, the call may have a second place.
    fn hedge_after<'t>(&self, ticket: &'t TicketGuard) -> Option<(&'t TicketGuard, Duration)> {
        let may_repeat = self.head.options.is_idempotent && self.upload.may_repeat();
        may_repeat.then(|| ticket.hedge_after()).flatten().map(|after| (ticket, after))
    }

    /// Ends the call of a slow caller when others wait for its place. It is looked at again when
    /// somebody begins to wait, and when the caller's alarm rings.
    fn poll_way(&mut self, ticket: Option<&TicketGuard>, cx: &mut Context<'_>) -> Poll<Attempt> {
        if !ticket.is_some_and(|ticket| ticket.entry().wants_place(cx)) {
            return Poll::Pending;
        }
        self.caller.on_give_way();
        let text = "other calls wait for the place of this one, whose client is slow";
        let status = Status::new(Code::Unavailable, text);
        let ending = Ending::Failed(Failure::new(status, false));
        Poll::Ready(Attempt::Over(ending, Outcome::Cancelled))
    }
}
