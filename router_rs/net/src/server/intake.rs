//! The request side of a call: bytes in, messages out.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use router_dispatch::coalesce::DataStream as _;
use router_protocol::grpc::{Code, Decoder, Encoding, Message, SizeLimit, Status, compress};

use super::http_body::HttpBody;
use super::request_body::{BodyState, Incoming, Taken};

/// Reads one request.
#[derive(Debug)]
pub(super) enum Intake {
    Grpc(Messages),
    Http(HttpBody),
}

impl Intake {
    /// Nothing more will be read. An HTTP/2 client that still sends is told to stop; others learn
    /// it from the end of the answer.
    pub(super) fn close(&mut self) {
        match self {
            Intake::Grpc(messages) => messages.close(),
            Intake::Http(body) => body.close(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Intake::Grpc(messages) => !matches!(messages.state, BodyState::Closed),
            Intake::Http(body) => body.is_open(),
        }
    }

    /// Reads the next message, or piece of a body that has none.
    ///
    /// The window is returned as soon as a chunk arrives. The caller bounds what this side holds:
    /// it stops polling when the user is behind.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Taken, Status>> {
        match self {
            Intake::Grpc(messages) => messages.poll(context),
            Intake::Http(body) => body.poll(context).map(Ok),
        }
    }
}

/// Reads the messages of one call.
#[derive(Debug)]
pub(super) struct Messages {
    state: BodyState,
    chunk: Bytes,
    decoder: Decoder,
    encoding: Encoding,
    size_limit: SizeLimit,
}

impl Messages {
    pub(super) fn new(body: Incoming, encoding: Encoding, size_limit: SizeLimit) -> Self {
        Self::with_state(BodyState::Open(body), Bytes::new(), encoding, size_limit)
    }

    /// For a body that came with its head.
    pub(super) fn of(body: Bytes, encoding: Encoding, size_limit: SizeLimit) -> Self {
        Self::with_state(BodyState::Ended, body, encoding, size_limit)
    }

    fn with_state(
        state: BodyState,
        chunk: Bytes,
        encoding: Encoding,
        size_limit: SizeLimit,
    ) -> Self {
        Self { state, chunk, decoder: Decoder::new(size_limit), encoding, size_limit }
    }

    fn close(&mut self) {
        self.state = BodyState::Closed;
        self.chunk.clear();
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Taken, Status>> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.chunk)? {
                return Poll::Ready(self.plain(message).map(Taken::Message));
            }
            let BodyState::Open(body) = &mut self.state else { return Poll::Ready(self.end()) };
            match ready!(body.poll_data(context)) {
                Some(Ok(chunk)) => {
                    body.release(chunk.len());
                    self.chunk = chunk;
                }
                Some(Err(_)) => {
                    self.close();
                    return Poll::Ready(Ok(Taken::Cancelled));
                }
                None => self.state = BodyState::Ended,
            }
        }
    }

    fn end(&mut self) -> Result<Taken, Status> {
        self.state = BodyState::Closed;
        if self.decoder.is_between_messages() {
            return Ok(Taken::End);
        }
        let text = "malformed frame: the request ended inside a message";
        Err(Status::new(Code::Internal, text))
    }

    fn plain(&self, message: Message) -> Result<Message, Status> {
        if !message.compressed {
            return Ok(message);
        }
        compress::decompress(self.encoding, message, self.size_limit)
    }
}
