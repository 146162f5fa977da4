//! A second attempt beside the first, when the first is late: the attempt whose answer begins first
//! counts.
//!
//! Only for calls that may be repeated and whose request has arrived completely. The router decides
//! when, and whether there is a place.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Response;
use router_call::{Caller, Cancelled};
use router_core::Outcome;
use router_io::Alarm;
use router_upstream::answer::AnswerBody;
use router_upstream::call_error::CallError;
use router_upstream::connection::{Permit, Started};
use router_upstream::pool::{Acquired, acquire};
use router_upstream::request_body::RequestBody;

use super::Exchange;
use super::attempt_outcome::Attempt;
use crate::ending::Ending;
use crate::entry::TicketGuard;
use crate::exchange::silence::Silence;
use crate::exchange::upload::Upload;
use crate::records::Why;

/// The attempt whose answer began, or broke, first.
pub(super) struct Won {
    pub response: Result<Response<AnswerBody>, CallError>,
    pub body: Option<RequestBody>,
    pub permit: Permit,
    /// The rest of the request to send, if it is not the exchange's own.
    pub upload: Option<Upload>,
}

impl Won {
    fn new(
        started: Started,
        response: Result<Response<AnswerBody>, CallError>,
        upload: Option<Upload>,
    ) -> Self {
        let Started { body, permit, .. } = started;
        Self { response, body, permit, upload }
    }
}

/// The second attempt.
struct Second {
    started: Started,
    upload: Upload,
    ticket: TicketGuard,
}

/// The attempts in flight.
struct Race {
    first: Option<Started>,
    /// Fires once, when the first is late.
    alarm: Option<Alarm>,
    second: Option<Second>,
}

impl<C: Caller> Exchange<'_, C> {
    /// Sends the request, and sends it again if the answer is late. If the second attempt wins, its
    /// place is in `self.hedged`; dropping the loser resets it.
    pub(super) async fn race(
        &mut self,
        first: Started,
        ticket: &TicketGuard,
        after: Duration,
        silence: &mut Silence,
    ) -> Result<Won, Box<Attempt>> {
        let alarm = Some(Alarm::at(Instant::now() + after));
        let mut race = Race { first: Some(first), alarm, second: None };
        poll_fn(|cx| {
            let is_sent = match race.poll_upload(self, cx) {
                Poll::Ready(Err(Cancelled)) => {
                    let attempt = Attempt::Over(Ending::Cancelled, Outcome::Cancelled);
                    return Poll::Ready(Err(Box::new(attempt)));
                }
                uploaded => uploaded.is_ready(),
            };
            if is_sent && race.poll_late(cx) {
                race.second = self.begin_second(ticket);
            }
            if let Poll::Ready(won) = race.poll_first(cx) {
                return Poll::Ready(Ok(won));
            }
            if let Poll::Ready((won, ticket)) = race.poll_second(self.caller, cx) {
                self.hedged = Some(ticket);
                return Poll::Ready(Ok(won));
            }
            if let Poll::Ready(ending) = silence.poll(is_sent, false, cx) {
                let attempt = Attempt::Over(ending, Outcome::Failed).held_if(true);
                return Poll::Ready(Err(Box::new(attempt)));
            }
            self.poll_end(cx).map(|ending| {
                let outcome = ending.outcome(false);
                Err(Box::new(Attempt::Over(ending, outcome)))
            })
        })
        .await
    }

    /// Takes a second place and sends the request there, if a connection is open: waiting for one
    /// would take longer than the first may still need.
    fn begin_second(&mut self, first: &TicketGuard) -> Option<Second> {
        if !self.upload.is_complete() || !self.upload.may_repeat() {
            return None;
        }
        let ticket = first.hedge()?;
        let Acquired::Open(connection) = acquire(ticket.target()) else { return None };
        self.claim(&ticket, Why::Hedge);
        let mut upload = self.upload.again();
        self.set_timeout();
        // If the connection has just closed, the call gets no second attempt.
        let started = upload.start(&connection, &self.head.parts).ok()?;
        Some(Second { started, upload, ticket })
    }
}

impl Race {
    fn poll_upload<C: Caller>(
        &mut self,
        exchange: &mut Exchange<'_, C>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        match &mut self.first {
            Some(first) => exchange.upload.poll(exchange.caller, first.body.as_mut(), cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> bool {
        let is_late = self.alarm.as_mut().is_some_and(|alarm| alarm.poll(cx).is_ready());
        if is_late {
            self.alarm = None;
        }
        is_late
    }

    /// If the first attempt breaks, the second takes over the call.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Won> {
        let Some(first) = &mut self.first else { return Poll::Pending };
        let Poll::Ready(response) = Pin::new(&mut first.response).poll(cx) else {
            return Poll::Pending;
        };
        let Some(started) = self.first.take() else { return Poll::Pending };
        if response.is_err() && self.second.is_some() {
            return Poll::Pending;
        }
        Poll::Ready(Won::new(started, response, None))
    }

    fn poll_second<C: Caller>(
        &mut self,
        caller: &mut C,
        cx: &mut Context<'_>,
    ) -> Poll<(Won, TicketGuard)> {
        let Some(second) = &mut self.second else { return Poll::Pending };
        // It has the whole request, so it asks the caller for nothing. If it cannot send the
        // request, its answer explains why.
        let _sent_or_not = second.upload.poll(caller, second.started.body.as_mut(), cx);
        let Poll::Ready(response) = Pin::new(&mut second.started.response).poll(cx) else {
            return Poll::Pending;
        };
        let Some(Second { started, upload, mut ticket }) = self.second.take() else {
            return Poll::Pending;
        };
        if response.is_err() && self.first.is_some() {
            ticket.complete(Outcome::Failed);
            return Poll::Pending;
        }
        Poll::Ready((Won::new(started, response, Some(upload)), ticket))
    }
}
