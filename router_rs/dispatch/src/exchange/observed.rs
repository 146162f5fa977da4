//! The counts and records of a call, and its trace.

use router_call::{Caller, Door};
use router_core::Outcome;
use router_protocol::grpc::Code;

use super::Exchange;
use super::attempt_outcome::Last;
use crate::ending::Ending;
use crate::entry::{DeploymentEntry, TicketGuard, WaiterGuard};
use crate::explain::{self, Explained};
use crate::records::Over;
use crate::refused::Refused;
use crate::tally::End;

impl<C: Caller> Exchange<'_, C> {
    /// Decides whether the call is sampled, if records are kept.
    pub(super) fn begin(&mut self, entry: &DeploymentEntry) {
        if self.head.door == Door::Mirror {
            return;
        }
        self.journal.is_asked = explain::is_asked(&self.head.parts.headers);
        if let Some(records) = entry.records() {
            let draw = || entry.draw();
            records.begin(&mut self.journal, entry.clock(), &mut self.head, draw);
        }
    }

    /// Keeps the place of the attempt whose answer counts, and gives the other one back.
    pub(super) fn keep_winner(&mut self, first: TicketGuard) -> TicketGuard {
        let Some(second) = self.hedged.take() else { return first };
        self.journal.on_hedge_won(first.target());
        second
    }

    /// The attempt is over, and there may be another.
    pub(super) fn note_attempt(&mut self, ticket: &TicketGuard, outcome: Outcome) {
        if self.journal.is_on() {
            let (target, now) = (ticket.target(), ticket.entry().now());
            self.journal.on_attempt(target, outcome, &self.seen, now);
        }
    }

    /// The last attempt is over.
    pub(super) fn give_back(&mut self, mut ticket: TicketGuard, outcome: Outcome) -> Last {
        let now = ticket.complete_begun(outcome, self.seen.first_data_at);
        self.journal.on_last_attempt(outcome, &self.seen, now);
        Last { ticket, now }
    }

    /// The call is over for the router, which counts it. Adds an explanation to a failure, if the
    /// call asks for one.
    pub(super) async fn conclude(
        &mut self,
        entry: &DeploymentEntry,
        mut ending: Ending,
        last: Option<Last>,
    ) -> Ending {
        if matches!(ending, Ending::Cancelled) && self.caller.has_enough() {
            ending = Ending::Answered;
            self.seen.code.get_or_insert(Code::Ok);
        }
        self.settle(&ending).await;
        let refused = self.caller.refused();
        let end = End::of(&ending, refused, &self.seen, self.head.door);
        entry.tally.count(end, self.upload.sent_bytes(), self.seen.bytes);
        self.record(entry, &ending, end, last.as_ref());
        let explained = self.explained.as_ref().filter(|_| self.journal.is_asked);
        if let (Ending::Failed(failure), Some(explained)) = (&mut ending, explained) {
            failure.explanation = Some(Box::new(explained.line()));
        }
        ending
    }

    /// Records the call, if it is worth it.
    fn record(&self, entry: &DeploymentEntry, ending: &Ending, end: End, last: Option<&Last>) {
        let Some(records) = entry.records().filter(|_| self.journal.is_on()) else { return };
        let explained = || self.explained.as_ref().map_or_else(String::new, Explained::text);
        let over = Over {
            application: &entry.application,
            deployment: &entry.deployment,
            clock: entry.clock(),
            head: &self.head,
            ending,
            refused: self.caller.refused(),
            end,
            seen: &self.seen,
            target: last.map(|last| last.ticket.target()),
            now: last.map_or_else(|| entry.now(), |last| last.now),
            request_bytes: self.upload.sent_bytes(),
            peer: &|| self.caller.peer(&self.head.parts.headers),
            explanation: &explained,
        };
        records.on_end(&self.journal, &over);
    }

    /// A wait in the router is over, in any way.
    pub(super) fn note_wait(
        &mut self,
        entry: &DeploymentEntry,
        waiter: &WaiterGuard,
        waited: &Result<Result<TicketGuard, Refused>, Ending>,
    ) {
        if self.journal.is_on() {
            let until = match waited {
                Ok(Ok(ticket)) => ticket.sent_at(),
                Ok(Err(_)) | Err(_) => entry.now(),
            };
            self.journal.on_waited(waiter.since(), until);
        }
    }
}
