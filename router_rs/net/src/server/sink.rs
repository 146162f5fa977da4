//! The destination of an answer: an HTTP/2 stream, or a call of the wire.
//!
//! HTTP/2 errors mean that the client is gone, so they are not reported.

use std::task::{Context, Poll, ready};

use bytes::Buf;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response};
use router_arena::Reserved;
use router_protocol::grpc::Framed;

use super::wire_call::WireReply;

/// An answer that has not begun. Dropping it resets the call.
pub(super) enum Respond {
    Http2(SendResponse<Framed>),
    Wire(WireReply),
}

/// The rest of an answer. Dropping it resets the call, unless its end was sent.
pub(super) enum Sink {
    Http2(SendStream<Framed>),
    Wire(WireReply),
}

/// The client accepts no more.
#[derive(Debug)]
pub(super) struct ClientGone;

impl From<SendResponse<Framed>> for Respond {
    fn from(respond: SendResponse<Framed>) -> Self {
        Respond::Http2(respond)
    }
}

// === impl Respond ===

impl Respond {
    /// Ready when the client has reset the call or is gone.
    pub(super) fn poll_cancelled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Respond::Http2(respond) => respond.poll_reset(context).map(|_| ()),
            Respond::Wire(reply) => reply.poll_cancelled(context),
        }
    }

    /// Tells the router that work on the call has begun; HTTP/2 has no words for it.
    pub(super) fn tell_start(&self) {
        if let Respond::Wire(reply) = self {
            reply.tell_start();
        }
    }

    /// Sends the head of an answer whose rest follows; `None` if the rest is not wanted.
    pub(super) fn send_response(self, response: Response<()>) -> Option<Sink> {
        match self {
            Respond::Http2(mut respond) => {
                respond.send_response(response, false).ok().map(Sink::Http2)
            }
            Respond::Wire(reply) => {
                reply.send_head(&response);
                Some(Sink::Wire(reply))
            }
        }
    }

    /// Sends a complete answer.
    pub(super) fn send_whole(self, response: Response<()>, body: Framed, trailers: HeaderMap) {
        let mut respond = match self {
            Respond::Http2(respond) => respond,
            Respond::Wire(reply) => return reply.send_whole(&response, body, trailers),
        };
        let (has_body, has_trailers) = (body.has_remaining(), !trailers.is_empty());
        let Ok(mut stream) = respond.send_response(response, !has_body && !has_trailers) else {
            return;
        };
        if has_body {
            let _nobody_to_tell = stream.send_data(body, !has_trailers);
        }
        if has_trailers {
            let _nobody_to_tell = stream.send_trailers(trailers);
        }
    }

    pub(super) fn send_reset(self, reason: Reason) {
        match self {
            Respond::Http2(mut respond) => respond.send_reset(reason),
            Respond::Wire(reply) => reply.send_reset(reason),
        }
    }
}

// === impl Sink ===

impl Sink {
    /// As [`Respond::poll_cancelled`].
    pub(super) fn poll_cancelled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Sink::Http2(stream) => stream.poll_reset(context).map(|_| ()),
            Sink::Wire(reply) => reply.poll_cancelled(context),
        }
    }

    /// Waits until at least a part of `size` bytes could be sent now. It is also ready when the
    /// client is gone.
    pub(super) fn poll_room(&mut self, size: usize, context: &mut Context<'_>) -> Poll<()> {
        let stream = match self {
            Sink::Http2(stream) => stream,
            Sink::Wire(reply) => return reply.poll_room(context),
        };
        stream.reserve_capacity(size.max(1));
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }

    /// As `poll_room`; returns how many of the bytes that is, as far as it is known.
    pub(super) fn poll_room_bytes(
        &mut self,
        size: usize,
        context: &mut Context<'_>,
    ) -> Poll<usize> {
        match self {
            Sink::Http2(_) => self.poll_room(size, context).map(|()| size),
            Sink::Wire(reply) => reply.poll_room_bytes(context).map(|room| room.unwrap_or(size)),
        }
    }

    /// Room in the memory that both sides share, if they share some.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        match self {
            Sink::Http2(_) => None,
            Sink::Wire(reply) => reply.reserve(bytes),
        }
    }

    /// Sends what was put there.
    pub(super) fn send_reserved(&mut self, reserved: Reserved) {
        if let Sink::Wire(reply) = self {
            reply.send_reserved(reserved);
        }
    }

    /// # Errors
    /// The client accepts no more.
    pub(super) fn send_data(&mut self, data: Framed) -> Result<(), ClientGone> {
        match self {
            Sink::Http2(stream) => stream.send_data(data, false).map_err(|_| ClientGone),
            Sink::Wire(reply) => {
                reply.send_data(data.into_pieces());
                Ok(())
            }
        }
    }

    /// The end of the answer; nothing may follow.
    pub(super) fn send_trailers(&mut self, trailers: HeaderMap) {
        match self {
            Sink::Http2(stream) => {
                let _nobody_to_tell = stream.send_trailers(trailers);
            }
            Sink::Wire(reply) => reply.send_trailers(trailers),
        }
    }

    pub(super) fn send_reset(&mut self, reason: Reason) {
        match self {
            Sink::Http2(stream) => stream.send_reset(reason),
            Sink::Wire(reply) => reply.send_reset(reason),
        }
    }
}
