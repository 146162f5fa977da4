//! The streams of one HTTP/2 request, as an end of the exchange.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response, response};
use router_call::{Caller, Cancelled, Piece};
use router_dispatch::coalesce;
use router_upstream::request_body::poll_room;

use crate::ends::plain::Transport;
use crate::heads::date;

/// Handles HTTP/2 but not the protocol spoken over it. `B` is the data that its connection sends.
#[derive(Debug)]
pub(crate) struct Http2End<B: Buf = Bytes> {
    body: RecvStream,
    respond: SendResponse<B>,
    /// The answer's body, once its head has been sent.
    answer: Option<SendStream<B>>,
}

impl<B: Buf> Http2End<B> {
    pub(crate) fn new(body: RecvStream, respond: SendResponse<B>) -> Self {
        Self { body, respond, answer: None }
    }

    /// The answer's body, if it has begun.
    pub(crate) fn begun(&mut self) -> Option<&mut SendStream<B>> {
        self.answer.as_mut()
    }

    /// Answers with only a head.
    pub(crate) fn whole(&mut self, response: Response<()>) {
        // An error means that the client is gone.
        let _nobody_to_tell = self.respond.send_response(response, true);
    }

    fn answer(&mut self) -> Result<&mut SendStream<B>, Cancelled> {
        self.answer.as_mut().ok_or(Cancelled)
    }
}

impl<B: Buf + From<Bytes>> Transport for Http2End<B> {
    fn is_bodiless(&self) -> bool {
        self.body.is_end_stream()
    }

    fn complete_head(&self, headers: &mut HeaderMap) {
        date::add(headers);
    }

    fn abort(&mut self) {
        match &mut self.answer {
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
            Some(answer) => answer.send_reset(Reason::INTERNAL_ERROR),
        }
    }
}

impl<B: Buf + From<Bytes>> Caller for Http2End<B> {
    fn on_sent(&mut self, _peer: &Arc<str>) {}

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        Poll::Ready(match ready!(coalesce::poll_data(&mut self.body, cx)) {
            Some(Ok(bytes)) => Ok(Piece { bytes, is_last: self.body.is_end_stream() }),
            Some(Err(_)) => Err(Cancelled),
            // Neither gRPC nor ASGI has request trailers: they are dropped.
            None => Ok(Piece { bytes: Bytes::new(), is_last: true }),
        })
    }

    fn accepted(&mut self, bytes: usize) {
        // Fails only for a stream that is over, which needs no window.
        let _window_of_an_ended_stream = self.body.flow_control().release_capacity(bytes);
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        let reset = match &mut self.answer {
            None => self.respond.poll_reset(cx),
            Some(answer) => answer.poll_reset(cx),
        };
        reset.map(|_| Cancelled)
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        let answer = self.respond.send_response(Response::from_parts(head, ()), is_last);
        self.answer = Some(answer.map_err(|_| Cancelled)?);
        Ok(())
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        poll_room(self.answer()?, wanted, cx).map_err(|_| Cancelled)
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        self.answer()?.send_data(bytes.into(), false).map_err(|_| Cancelled)
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        let answer = self.answer()?;
        if trailers.is_empty() {
            answer.send_data(Bytes::new().into(), true).map_err(|_| Cancelled)
        } else {
            answer.send_trailers(trailers).map_err(|_| Cancelled)
        }
    }
}
