//! Sits between a client's end and the exchange, and uses gRPC towards the exchange.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode, response};
use router_call as call;
use router_call::{Caller, Cancelled, ClientEnd, Piece, Refusal};
use router_io::poll_others_first;
use router_protocol::grpc::{Code, Status, whole_seconds};
use router_protocol::names::ANSWERED_BY;

use super::coder::{AnswerCoder, Failure, Outbox, RequestCoder, Taken};
use super::credit::Credit;
use super::opened::Transcoding;
use super::silence::Silence;
use super::work::{LONG_BYTES, Work, Working};

/// The least that a message counts, for its overhead beyond its bytes. Arbitrary.
const MESSAGE_BYTES_MIN: usize = 256;

/// A client of another protocol, as the exchange sees it.
///
/// `E` is the end of a plain HTTP client: it is given HTTP, not gRPC. A request that turns out to
/// be wrong ends the exchange as if the client were gone, and [`ClientEnd::poll_finish`] answers
/// it.
#[derive(Debug)]
pub struct Transcoded<E> {
    end: E,
    /// The server's name in answers of our own.
    answered_by: HeaderValue,
    request: Box<dyn RequestCoder>,
    answer: Box<dyn AnswerCoder>,
    credit: Credit,
    /// Bytes of the client that the request's coder has not consumed yet.
    unread_bytes: usize,
    /// A message of the client that is being converted, and the number of bytes that it was made
    /// of.
    reading: Option<(Working, usize)>,
    /// A message for the client that is being converted.
    writing: Option<Working>,
    /// How much of short messages may be converted before other tasks have their turn.
    turn_bytes_left: usize,
    outbox: Outbox,
    /// The client asked for the head of the answer only.
    is_head: bool,
    /// The replica's answer is complete, and this is its end.
    trailers: Option<HeaderMap>,
    is_complete: bool,
    /// For a client that is to know that its call goes on.
    silence: Option<Silence>,
    /// The client has got the end of its answer, or is gone.
    is_over: bool,
    /// What this side tells the client instead of the replica's answer.
    refused: Option<Refusal>,
}

impl<E: ClientEnd> Transcoded<E> {
    pub fn new(end: E, transcoding: Transcoding) -> Self {
        let silence = transcoding.answer.silence_max().map(Silence::new);
        Self {
            end,
            answered_by: transcoding.answered_by,
            request: transcoding.request,
            answer: transcoding.answer,
            credit: Credit::default(),
            unread_bytes: 0,
            reading: None,
            writing: None,
            turn_bytes_left: LONG_BYTES,
            outbox: Outbox::default(),
            is_head: transcoding.is_head,
            trailers: None,
            is_complete: false,
            silence,
            is_over: false,
            refused: None,
        }
    }

    /// The client's own end.
    #[cfg(test)]
    pub fn end(&mut self) -> &mut E {
        &mut self.end
    }

    /// The next piece for the replica, or the error in the request.
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Result<Piece, Status>, Cancelled>> {
        if let Some((working, read_bytes)) = &mut self.reading {
            let made = ready!(working.poll(cx));
            let read_bytes = *read_bytes;
            self.reading = None;
            return Poll::Ready(Ok(
                made.map(|message| self.piece(read_bytes, message.into_bytes()))
            ));
        }
        loop {
            ready!(self.poll_turn(cx));
            let taken = match self.request.take() {
                Ok(taken) => taken,
                Err(status) => return Poll::Ready(Ok(Err(status))),
            };
            let still_unread = self.request.unread_bytes();
            let read_bytes = self.unread_bytes - still_unread;
            self.unread_bytes = still_unread;
            match taken {
                Taken::Piece(bytes) => {
                    self.spend(bytes.len());
                    return Poll::Ready(Ok(Ok(self.piece(read_bytes, bytes))));
                }
                Taken::Long(work) => {
                    self.reading = Some((work.start(), read_bytes));
                    return self.poll_request(cx);
                }
                Taken::End => {
                    self.release(read_bytes);
                    return Poll::Ready(Ok(Ok(Piece { bytes: Bytes::new(), is_last: true })));
                }
                // The bytes read are held until their message is complete, within the limit for a
                // message. Without a new window the rest of the message could not come.
                Taken::NeedsMore => self.release(read_bytes),
            }
            let piece = ready!(self.end.poll_piece(cx))?;
            self.unread_bytes += piece.bytes.len();
            self.request.give(piece.bytes, piece.is_last);
        }
    }

    fn piece(&mut self, read_bytes: usize, bytes: Bytes) -> Piece {
        self.credit.made(read_bytes, bytes.len());
        Piece { bytes, is_last: false }
    }

    /// Counts a short message that was converted from or to this many bytes.
    fn spend(&mut self, bytes: usize) {
        self.turn_bytes_left = self.turn_bytes_left.saturating_sub(bytes.max(MESSAGE_BYTES_MIN));
    }

    /// Ready while some of the turn is left, or else when other tasks have had theirs.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn_bytes_left > 0 {
            return Poll::Ready(());
        }
        self.turn_bytes_left = LONG_BYTES;
        poll_others_first(cx);
        Poll::Pending
    }

    /// Returns window to the client.
    fn release(&mut self, bytes: usize) {
        if bytes > 0 {
            self.end.accepted(bytes);
        }
    }

    /// Aborts the exchange, and answers the client.
    fn refuse(&mut self, status: Status) -> Cancelled {
        self.fail_with(&Failure { status: &status, headers: &HeaderMap::new(), is_of_mesh: false });
        self.refused = Some(status.into());
        Cancelled
    }

    fn fail_with(&mut self, failure: &Failure<'_>) {
        (self.reading, self.writing) = (None, None);
        if !self.outbox.is_ended {
            self.answer.fail(failure, &mut self.outbox);
        }
    }

    /// Sends the client all pending output; ready when nothing is left.
    ///
    /// An answer that cannot be carried is replaced by its failure: see [`Transcoded::refused`].
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        while !self.is_over {
            if !ready!(self.poll_advance(cx))? {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the next pending output, or else converts a bit more; false: nothing more has come.
    fn poll_advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Cancelled>> {
        self.send_head()?;
        if self.is_head {
            self.outbox.body.clear();
        }
        if let Some(piece) = self.outbox.body.front_mut() {
            let room = ready!(self.end.poll_room(piece.len(), cx))?;
            self.end.body(piece.split_to(room))?;
            self.silence.iter_mut().for_each(Silence::on_output);
            if piece.is_empty() {
                self.outbox.body.pop_front();
            }
        } else if self.outbox.is_ended {
            self.is_over = true;
            if self.outbox.is_broken {
                return Poll::Ready(Err(Cancelled));
            }
            self.end.trailers(HeaderMap::new())?;
        } else {
            return self.poll_convert(cx).map(Ok);
        }
        Poll::Ready(Ok(true))
    }

    /// Converts a bit more of the answer; false: nothing more has come.
    fn poll_convert(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(working) = &mut self.writing {
            let made = ready!(working.poll(cx));
            self.writing = None;
            match made {
                Ok(made) => self.answer.resume(made, &mut self.outbox),
                Err(status) => drop(self.refuse(status)),
            }
            return Poll::Ready(true);
        }
        ready!(self.poll_turn(cx));
        let has_converted = self.convert();
        self.writing = self.outbox.work.take().map(Work::start);
        if has_converted {
            self.spend(self.outbox.body.back().map_or(0, Bytes::len));
        }
        Poll::Ready(has_converted || self.poll_silence(cx).is_ready())
    }

    /// Ready when a keep-alive message for the client has been written.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(silence) = &mut self.silence else { return Poll::Pending };
        ready!(silence.poll(cx));
        self.answer.keep_alive(&mut self.outbox);
        Poll::Ready(())
    }

    fn convert(&mut self) -> bool {
        let converted = match self.answer.step(&mut self.outbox) {
            Ok(false) => match self.trailers.take() {
                Some(trailers) => self.answer.finish(trailers, &mut self.outbox).map(|()| true),
                None => Ok(false),
            },
            result => result,
        };
        converted.unwrap_or_else(|status| {
            self.refuse(status);
            true
        })
    }

    fn send_head(&mut self) -> Result<(), Cancelled> {
        let Some(head) = self.outbox.head.take() else { return Ok(()) };
        if self.is_head {
            self.outbox.body.clear();
        }
        let is_last = self.outbox.is_ended && self.outbox.body.is_empty();
        self.is_over = is_last;
        self.end.head(head, is_last)
    }
}

impl<E: ClientEnd> Caller for Transcoded<E> {
    fn on_sent(&mut self, peer: &Arc<str>) {
        self.end.on_sent(peer);
    }

    fn peer(&self, headers: &HeaderMap) -> String {
        self.end.peer(headers)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        Poll::Ready(match ready!(self.poll_request(cx))? {
            Ok(piece) => Ok(piece),
            Err(status) => Err(self.refuse(status)),
        })
    }

    fn accepted(&mut self, bytes: usize) {
        let of_client = self.credit.accepted(bytes);
        self.release(of_client);
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        // The exchange has nothing to do at the moment: pending output for which the client had no
        // room may go.
        let is_gone = matches!(self.poll_flush(cx), Poll::Ready(Err(Cancelled)));
        if is_gone || self.refused.is_some() || self.has_enough() {
            return Poll::Ready(Cancelled);
        }
        self.end.poll_cancelled(cx)
    }

    fn is_slow(&self) -> bool {
        self.end.is_slow()
    }

    fn on_give_way(&mut self) {
        self.end.on_give_way();
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        if head.status != StatusCode::OK {
            let text = format!("the replica answered with HTTP status {}", head.status.as_u16());
            return Err(self.refuse(Status::new(Code::from_http(head.status), text)));
        }
        if is_last {
            return self.trailers(head.headers);
        }
        self.answer.head(head.headers, &mut self.outbox);
        self.send_head()
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        ready!(self.poll_flush(cx))?;
        let is_over = self.refused.is_some() || self.has_enough();
        Poll::Ready(if is_over { Err(Cancelled) } else { Ok(wanted) })
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        // A copy, since a replica on this machine may be able to change the original while it is
        // checked and converted (`router_arena`).
        self.answer.give(Bytes::copy_from_slice(&bytes));
        Ok(())
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        // The client may have no room for the data before the trailers: `poll_settled` continues,
        // and then `poll_finish`.
        (self.trailers, self.is_complete) = (Some(trailers), true);
        Ok(())
    }

    /// What is known of the end stays in the outbox: nobody sees it before it is recorded.
    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over && !self.outbox.is_ended {
            match ready!(self.poll_advance(cx)) {
                Ok(true) => {}
                Ok(false) | Err(Cancelled) => break,
            }
        }
        Poll::Ready(())
    }

    fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref().or(self.end.refused())
    }

    fn has_enough(&self) -> bool {
        self.outbox.is_ended && !self.is_complete && self.refused().is_none()
    }
}

impl<E: ClientEnd> ClientEnd for Transcoded<E> {
    fn fail(&mut self, failure: &call::Failure) {
        let (status, mut headers) = (&failure.status, HeaderMap::new());
        failure.write_explanation(&mut headers);
        headers.insert(ANSWERED_BY, self.answered_by.clone());
        if let Some(pushback) = status.pushback {
            headers.insert(RETRY_AFTER, whole_seconds(pushback).into());
        }
        self.fail_with(&Failure { status, headers: &headers, is_of_mesh: true });
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.refused().is_some() {
            // The client has got its answer already.
            return self.end.poll_finish(cx);
        }
        // A client that is gone counts as finished: nothing can be sent to it.
        let _nobody_left = ready!(self.poll_flush(cx));
        self.end.poll_finish(cx)
    }
}
