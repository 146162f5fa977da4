//! One attempt of a call at one replica.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::HeaderValue;
use router_call::{Caller, Cancelled, Failure};
use router_core::Outcome;
use router_protocol::grpc::{Code, CodeSet, GRPC_TIMEOUT, Status, format_timeout};
use router_protocol::names::TELL_START;
use router_upstream::connection::{Connection, Started};
use router_upstream::pool::{Acquired, acquire};
use router_upstream::target::{DialError, Target};

use super::Exchange;
use super::attempt_outcome::{Attempt, classify, not_connected};
use super::hedge::Won;
use crate::ending::Ending;
use crate::entry::TicketGuard;
use crate::exchange::download::Download;
use crate::exchange::silence::Silence;
use crate::tally::Seen;

/// A deadline this close after the head arrived is passed on as the caller wrote it: the difference
/// is below the resolution of the mesh's timers.
const TIMEOUT_SLACK: Duration = Duration::from_millis(1);

impl<C: Caller> Exchange<'_, C> {
    /// `ticket`: its place, if it may have another.
    pub(super) async fn attempt(
        &mut self,
        target: &Arc<Target>,
        ticket: Option<&TicketGuard>,
    ) -> Attempt {
        let mut reason = None;
        self.seen = Seen::default();
        // A connection may turn out to be closed when it is used: try once more with another.
        for _ in 0..2 {
            let connection = match self.connect(target).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return not_connected(error.to_string()),
                Err(ending) => return Attempt::Over(ending, Outcome::Cancelled),
            };
            if self.look_for_body().await.is_err() {
                return Attempt::Over(Ending::Cancelled, Outcome::Cancelled);
            }
            match self.start(&connection) {
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

    /// Takes the part of the request that has come: a complete one is sent with its head.
    async fn look_for_body(&mut self) -> Result<(), Cancelled> {
        poll_fn(|cx| Poll::Ready(self.upload.look(self.caller, cx))).await
    }

    fn start(&mut self, connection: &Rc<Connection>) -> Result<Started, String> {
        self.set_timeout();
        self.ask_for_start(connection);
        self.upload.start(connection, &self.head.parts)
    }

    /// Whether the replica says when it begins to work on the call.
    fn asks_for_start(&self, connection: &Connection) -> bool {
        self.head.options.tells_start && connection.tells_starts()
    }

    fn ask_for_start(&mut self, connection: &Connection) {
        let asks = self.asks_for_start(connection);
        let headers = &mut self.head.parts.headers;
        if asks {
            headers.insert(TELL_START, HeaderValue::from_static("1"));
        } else {
            headers.remove(TELL_START);
        }
    }

    pub(super) fn set_timeout(&mut self) {
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
        let is_idempotent = self.head.options.is_idempotent;
        let codes =
            ticket.filter(|_| is_idempotent).map_or(CodeSet::NONE, TicketGuard::retry_codes);
        let mut silence = Silence::new(silence_limit);
        let (mut download, mut body, permit, mut upload) = match ticket
            .and_then(|it| self.hedge_after(it))
        {
            None => {
                let Started { response, body, permit } = started;
                let is_trusted = permit.connection().is_trusted();
                (Download::new(response, is_trusted, codes), body, permit, None)
            }
            Some((ticket, after)) => match self.race(started, ticket, after, &mut silence).await {
                Err(attempt) => return *attempt,
                Ok(Won { response, body, permit, upload }) => {
                    let is_trusted = permit.connection().is_trusted();
                    (Download::begun(response, is_trusted, codes), body, permit, upload)
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
        let tells_start = self.asks_for_start(permit.connection());
        let is_unstarted = |download: &Download| tells_start && !download.is_started();
        let may_repeat = |download: &Download| {
            !download.has_begun() && (is_idempotent || is_unstarted(download))
        };
        self.caller.on_sent(permit.connection().peer());
        poll_fn(|cx| {
            let upload = upload.as_mut().unwrap_or(&mut self.upload);
            let uploaded = upload.poll(self.caller, body.as_mut(), cx);
            if let Poll::Ready(Err(Cancelled)) = uploaded {
                return Poll::Ready(Attempt::Over(Ending::Cancelled, Outcome::Cancelled));
            }
            let answered = download.poll(self.caller, cx);
            self.seen = download.seen();
            if let Poll::Ready(answer) = answered {
                let attempt = classify(answer, permit.connection(), &self.limits);
                return Poll::Ready(attempt.held_if(may_repeat(&download)));
            }
            if download.has_begun() || (tells_start && download.is_started()) {
                self.upload.commit();
            }
            let is_its_turn = uploaded.is_ready() && download.waits_for_replica();
            if let Poll::Ready(ending) = silence.poll(is_its_turn, download.take_spoken(), cx) {
                let attempt = Attempt::Over(ending, Outcome::Failed);
                return Poll::Ready(attempt.held_if(may_repeat(&download)));
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

    /// Ends the call of a slow caller when others wait for its place. Checked again when a call
    /// begins to wait, and when the caller's alarm fires.
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
