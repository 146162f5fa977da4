//! One call from its offer to its end: waits for a replica, sends, and goes elsewhere while the
//! call has not started anywhere, or may be repeated.

mod attempt;
mod attempt_outcome;
pub mod coalesce;
pub(crate) mod collect;
pub(crate) mod download;
mod hedge;
mod observed;
pub(crate) mod place;
mod silence;
pub(crate) mod upload;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue};
use router_call::{Caller, Cancelled, Failure};
use router_core::Outcome;
use router_protocol::content_length;
use router_protocol::grpc::{Code, Status};
use router_protocol::names::{self, ASKER, BYPASS, EXPLAIN};
use router_protocol::trace_context::TRACEPARENT;
use router_upstream::target::Target;

use crate::ending::Ending;
use crate::entry::{Admission, DeploymentEntry, TicketGuard};
use crate::exchange::collect::{Awaited, Collection};
use crate::exchange::place::Placement;
use crate::exchange::upload::Upload;
use crate::explain::Explained;
use crate::head::Head;
use crate::limits::Limits;
use crate::ranker::{Followed, Ranker};
use crate::records::{Journal, Why};
use crate::refused::Refused;
use crate::stopwatch;
use crate::tally::Seen;
use crate::wish::Wish;
use attempt_outcome::{Again, Attempt, Held, Last};

/// One call, over all its attempts.
#[derive(Debug)]
pub struct Exchange<'a, C> {
    pub caller: &'a mut C,
    pub head: Head,
    pub upload: Upload,
    pub limits: Limits<'a>,
    /// Listens to where the call goes.
    pub listener: Option<Arc<dyn Ranker>>,
    /// Attempts that had started, before this one.
    attempts: u32,
    /// The answer of the attempt that is running, or ended last.
    pub seen: Seen,
    pub(super) journal: Journal,
    /// For a call that asks for an explanation, or is sampled.
    pub(super) explained: Option<Explained>,
    /// The second place, if that attempt has won.
    pub(super) hedged: Option<TicketGuard>,
}

/// How often the call was sent before, once it has started somewhere (gRPC A6).
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

// === impl Exchange ===

impl<'a, C: Caller> Exchange<'a, C> {
    pub fn new(caller: &'a mut C, head: Head, upload: Upload, limits: Limits<'a>) -> Self {
        Self {
            caller,
            head,
            upload,
            limits,
            listener: None,
            attempts: 0,
            seen: Seen::default(),
            journal: Journal::default(),
            explained: None,
            hedged: None,
        }
    }

    /// Waits until `awaited` of the body has come; call it first. Until it returns, no replica has
    /// seen the call.
    ///
    /// # Errors
    /// How the call ended instead.
    pub async fn collect(&mut self, awaited: Awaited) -> Result<(), Ending> {
        if awaited == Awaited::Nothing || self.upload.is_complete() {
            return Ok(());
        }
        let mut collection = Collection::new(awaited);
        poll_fn(|cx| match collection.poll(self.caller, &mut self.upload, cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(Cancelled)) => Poll::Ready(Err(Ending::Cancelled)),
            Poll::Pending => self.poll_end(cx).map(Err),
        })
        .await
    }

    /// Sends the call to a replica of `entry`, waiting for one if need be.
    ///
    /// Dropping the future resets what was sent and gives the place back.
    pub async fn through(&mut self, entry: &Arc<DeploymentEntry>) -> Ending {
        self.begin(entry);
        if self.journal.wants_explanation() {
            self.explained = Some(entry.explain(&self.wish(), self.head.share));
        }
        if entry.hears_costs() {
            self.look_at_request().await;
        }
        let decision = stopwatch::Decision::begin();
        let mut admission = entry.offer(&self.wish());
        decision.end();
        let (mut failed, mut why) = (None, Why::First);
        let (ending, last) = loop {
            let ticket = match self.wait_for_place(entry, admission, failed.as_ref()).await {
                Ok(ticket) => ticket,
                Err(ending) => break (ending, None),
            };
            self.claim(&ticket, why);
            let _followed = self.follow(&ticket);
            let attempt = self.attempt(ticket.target(), Some(&ticket)).await;
            let ticket = self.keep_winner(ticket);
            match attempt {
                Attempt::Over(ending, outcome) => {
                    break (ending, Some(self.give_back(ticket, outcome)));
                }
                Attempt::Elsewhere(outcome, failure) => {
                    if !self.upload.may_repeat() {
                        break (Ending::Failed(failure), Some(self.give_back(ticket, outcome)));
                    }
                    self.note_attempt(&ticket, outcome);
                    why = Why::after(outcome);
                    admission = ticket.reoffer(outcome);
                    failed = Some(failure);
                }
                Attempt::Again(outcome, again) => {
                    self.note_attempt(&ticket, outcome);
                    why = Why::Retry;
                    admission = match self.retry(ticket, outcome, &again) {
                        Admission::Refused(_) => break (self.tell(again.held), None),
                        admission => admission,
                    };
                    failed = again.held.failure();
                }
            }
            // The answer of that attempt does not count.
            self.seen = Seen::default();
        };
        self.conclude(entry, ending, last).await
    }

    /// The call has ended before it was offered to the replicas of `entry`.
    pub async fn never_offered(&mut self, entry: &DeploymentEntry, ending: Ending) -> Ending {
        self.begin(entry);
        self.conclude(entry, ending, None).await
    }

    /// Tells the listener, if there is one, where the call goes now.
    fn follow(&self, ticket: &TicketGuard) -> Option<Followed> {
        let listener = self.listener.as_ref()?;
        let replica = ticket.target().as_replica()?;
        Followed::begin(listener, &replica.replica_id, &self.head.parts)
    }

    /// Another attempt of a call that had started, if it may have one.
    fn retry(&mut self, mut ticket: TicketGuard, outcome: Outcome, again: &Again) -> Admission {
        if !self.upload.may_repeat() {
            ticket.complete(outcome);
            return Admission::Refused(Refused::Spent);
        }
        self.attempts += 1;
        self.head.parts.headers.insert(PREVIOUS_ATTEMPTS, self.attempts.into());
        ticket.retry(outcome, again.pushback)
    }

    /// The call gets no other attempt: sends the caller what this one returned.
    fn tell(&mut self, held: Held) -> Ending {
        match held {
            Held::Failure(failure) => Ending::Failed(failure),
            Held::Answer(mut head) => {
                let explained = self.explained.as_ref().filter(|_| self.journal.is_asked);
                if let Some(explained) = explained {
                    head.headers.insert(EXPLAIN, explained.line());
                }
                match self.caller.head(*head, true) {
                    Ok(()) => Ending::Answered,
                    Err(Cancelled) => Ending::Cancelled,
                }
            }
        }
    }

    /// Sends the call to where `placement` says.
    pub async fn placed(&mut self, entry: &Arc<DeploymentEntry>, placement: Placement) -> Ending {
        let ticket = match placement {
            Placement::Any => return self.through(entry).await,
            Placement::Replica(replica_id) => {
                self.begin(entry);
                let ticket = entry.pin(&replica_id, self.model(), &self.head.cache_keys);
                self.head.parts.headers.insert(BYPASS, HeaderValue::from_static("1"));
                ticket.ok_or_else(|| {
                    let (application, deployment) = (&entry.application, &entry.deployment);
                    format!("{application}/{deployment} has no replica {replica_id:?}")
                })
            }
            Placement::Reserved(reservation) => {
                self.begin(entry);
                reservation.take().ok_or_else(|| {
                    let replica_id = reservation.replica_id();
                    format!("the place at replica {replica_id:?} was released or used before")
                })
            }
        };
        let (ending, last) = match ticket {
            Ok(ticket) => self.at(ticket).await,
            Err(text) => (not_started(Status::new(Code::Unavailable, text)), None),
        };
        self.conclude(entry, ending, last).await
    }

    /// Sends the call to this place, and nowhere else.
    async fn at(&mut self, ticket: TicketGuard) -> (Ending, Option<Last>) {
        self.claim(&ticket, Why::First);
        let attempt = self.attempt(ticket.target(), None).await;
        let (ending, outcome) = match attempt {
            Attempt::Over(ending, outcome) => (ending, outcome),
            Attempt::Elsewhere(outcome, mut failure) => {
                let replica_id =
                    ticket.target().as_replica().map_or("", |target| &target.replica_id);
                let text = format!("replica {replica_id:?}: {}", failure.status.message);
                failure.status = Status::new(failure.status.code, text);
                (Ending::Failed(failure), outcome)
            }
            Attempt::Again(outcome, again) => (self.tell(again.held), outcome),
        };
        (ending, Some(self.give_back(ticket, outcome)))
    }

    /// Notes the name under which the replica keeps a place for this attempt, if it does, and the
    /// attempt's span.
    pub(super) fn claim(&mut self, ticket: &TicketGuard, why: Why) {
        let headers = &mut self.head.parts.headers;
        match ticket.asker() {
            Some(asker) => drop(headers.insert(ASKER, asker.clone())),
            None => drop(headers.remove(ASKER)),
        }
        let (target, sent_at) = (ticket.target(), ticket.sent_at());
        if let Some(context) = self.journal.on_place(target, sent_at, why) {
            headers.insert(TRACEPARENT, context);
        }
    }

    /// Takes what has come of the request, of which the length says something about its cost.
    async fn look_at_request(&mut self) {
        let looked = |cx: &mut Context<'_>| Poll::Ready(self.upload.look(self.caller, cx));
        // That the caller has gone is noticed where the call waits or is sent.
        let _noticed_later = poll_fn(looked).await;
    }

    /// The length that the request says it has, or has; 0: unknown.
    fn request_bytes(&self) -> u64 {
        content_length(&self.head.parts.headers).or(self.upload.whole_bytes()).unwrap_or(0)
    }

    /// The call's request to the router.
    fn wish(&self) -> Wish<'_> {
        Wish {
            method: self.head.parts.uri.path(),
            request_bytes: self.request_bytes(),
            deadline: self.limits.deadline,
            model: self.model(),
            session: names::session_id(&self.head.parts.headers),
            cache_keys: &self.head.cache_keys,
            options: self.head.options,
            ranked: &self.head.ranked,
        }
    }

    /// The model that the call names, or an empty string.
    fn model(&self) -> &str {
        let model = names::model_id(&self.head.parts.headers);
        model.and_then(|model| std::str::from_utf8(model.as_bytes()).ok()).unwrap_or_default()
    }

    /// Sends the call to `target`, once.
    pub async fn to(&mut self, target: &Arc<Target>) -> Ending {
        let ending = match self.attempt(target, None).await {
            Attempt::Over(ending, _) => ending,
            Attempt::Elsewhere(_, failure) => Ending::Failed(failure),
            Attempt::Again(_, again) => self.tell(again.held),
        };
        self.settle(&ending).await;
        ending
    }

    /// Waits until it is certain what the caller is told. The call has no place any more, so a slow
    /// caller keeps nobody else waiting; one that stalls is given up by its end.
    pub(super) async fn settle(&mut self, ending: &Ending) {
        if matches!(ending, Ending::Answered) {
            poll_fn(|cx| match self.caller.poll_settled(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => self.caller.poll_cancelled(cx).map(|Cancelled| ()),
            })
            .await;
        }
    }

    async fn wait_for_place(
        &mut self,
        entry: &Arc<DeploymentEntry>,
        admission: Admission,
        last: Option<&Failure>,
    ) -> Result<TicketGuard, Ending> {
        let placed = match admission {
            Admission::Send(ticket) => Ok(ticket),
            Admission::Refused(refused) => Err(refused),
            Admission::Parked(mut waiter) => {
                let waited = poll_fn(|cx| self.poll_or_end(cx, |cx| waiter.poll(cx))).await;
                self.note_wait(entry, &waiter, &waited);
                match waited {
                    // The deadline has passed, whether the router or the call notices it first.
                    Err(Ending::Failed(failure)) if failure.status.is_late() => {
                        drop(waiter);
                        Err(Refused::Expired(entry.crowd()))
                    }
                    placed => placed?,
                }
            }
        };
        placed.map_err(|refused| {
            entry.tally.refuse(refused);
            self.journal.on_refused(refused);
            if self.explained.is_some() {
                let seen = entry.explain(&self.wish(), self.head.share);
                self.explained = Some(Explained { refused: Some(refused), ..seen });
            }
            let status = refused.status(&entry.application, &entry.deployment);
            not_started(refused_after(last, status))
        })
    }

    /// Polls `wait`, and anything that may end the call meanwhile.
    pub fn poll_or_end<T>(
        &mut self,
        cx: &mut Context<'_>,
        wait: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Ending>> {
        match wait(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => self.poll_end(cx).map(Err),
        }
    }

    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        if self.caller.poll_cancelled(cx).is_ready() {
            return Poll::Ready(Ending::Cancelled);
        }
        self.limits.poll(cx).map(|status| Ending::Failed(Failure::new(status, false)))
    }
}

fn not_started(status: Status) -> Ending {
    Ending::Failed(Failure::new(status, true))
}

/// The status of a call that has failed before.
fn refused_after(last: Option<&Failure>, status: Status) -> Status {
    let Some(last) = last else { return status };
    let message = format!("{}; the last attempt failed: {}", status.message, last.status.message);
    Status { message, ..status }
}
