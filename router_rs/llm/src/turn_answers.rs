//! The frame of an answer that consists of one turn: a stream of events, or one object.

use std::fmt::Debug;

use bytes::BytesMut;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use router_protocol::grpc::Status;

use crate::errors::{ApiError, Dialect};
use crate::generation::Generation;
use crate::messages::Usage;
use crate::parts::{Part, WriteParts};
use crate::turn::{Ending, Turn};
use crate::write::{JSON, end_json, put, stream_head};
use crate::{Answer, Output};

/// The form of errors that are an answer of their own.
#[derive(Clone, Debug)]
pub(crate) struct ErrorForm {
    pub(crate) dialect: Dialect,
    /// Names the request in Anthropic's errors.
    pub(crate) id: String,
}

/// Writes the events of a turn, besides those of its parts.
pub(crate) trait WriteTurn: WriteParts {
    /// # Errors
    /// The engine's answer makes no sense as a whole.
    fn finish(
        &mut self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &Usage,
    ) -> Result<(), Status>;

    /// The turn has failed; of the parts that have begun, so many have ended.
    fn fail(&mut self, out: &mut BytesMut, parts: &[Part], ended: usize, status: &Status);

    /// The keep-alive event of the stream.
    fn keep_alive(&self) -> &'static str {
        WAITING
    }
}

/// A comment, which every client ignores.
pub(crate) const WAITING: &str = ": waiting\n\n";

/// A stream of events.
#[derive(Debug)]
pub(crate) struct TurnStream<W> {
    generation: Generation,
    turn: Turn<W>,
    errors: ErrorForm,
    has_head: bool,
}

/// Writes a whole turn.
pub(crate) trait WriteWholeTurn: Debug + Send {
    /// # Errors
    /// The engine's answer makes no sense as a whole.
    fn write(
        &self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &Usage,
    ) -> Result<(), Status>;

    fn content_type(&self) -> HeaderValue {
        JSON
    }
}

/// One object.
#[derive(Debug)]
pub(crate) struct WholeTurn<W> {
    generation: Generation,
    turn: Turn<()>,
    errors: ErrorForm,
    writer: W,
}

// === impl ErrorForm ===

impl ErrorForm {
    fn answer(&self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        output.body.clear();
        ApiError::of(status).answer(self.dialect, &self.id, headers, output);
    }
}

// === impl TurnStream ===

impl<W: WriteTurn> TurnStream<W> {
    pub(crate) fn new(generation: Generation, turn: Turn<W>, errors: ErrorForm) -> Self {
        Self { generation, turn, errors, has_head: false }
    }

    fn put_head(&mut self, output: &mut Output) {
        if !self.has_head {
            self.has_head = true;
            let mut head = stream_head();
            self.errors.dialect.put_request_id(&self.errors.id, &mut head.headers);
            output.head = Some(head);
        }
    }

    fn end(&mut self, output: &mut Output) -> Result<(), Status> {
        self.turn.check()?;
        let (ending, usage) = (self.turn.ending(), self.generation.usage());
        let (writer, parts) = self.turn.parts().all();
        writer.finish(&mut output.body, parts, &ending, &usage)?;
        output.is_ended = true;
        Ok(())
    }
}

impl<W: WriteTurn> Answer for TurnStream<W> {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        let length = output.body.len();
        self.generation.message(message, &mut self.turn, &mut output.body)?;
        self.turn.check()?;
        if output.body.len() > length {
            self.put_head(output);
        }
        if self.generation.is_done() { self.end(output) } else { Ok(()) }
    }

    fn finish(&mut self, output: &mut Output) {
        let result = self.generation.finish(&mut self.turn, &mut output.body);
        if let Err(status) = result.and_then(|()| self.end(output)) {
            return self.fail(&status, &HeaderMap::new(), output);
        }
        self.put_head(output);
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        if !self.has_head {
            return self.errors.answer(status, headers, output);
        }
        let (writer, parts, ended) = self.turn.parts().shown();
        writer.fail(&mut output.body, parts, ended, status);
        output.is_ended = true;
    }

    fn keep_alive(&mut self, output: &mut Output) {
        self.put_head(output);
        put(&mut output.body, self.turn.parts().writer().keep_alive());
    }
}

// === impl WholeTurn ===

impl<W: WriteWholeTurn> WholeTurn<W> {
    pub(crate) fn new(
        generation: Generation,
        turn: Turn<()>,
        errors: ErrorForm,
        writer: W,
    ) -> Self {
        Self { generation, turn, errors, writer }
    }

    fn end(&mut self, output: &mut Output) -> Result<(), Status> {
        self.turn.check()?;
        let (ending, usage) = (self.turn.ending(), self.generation.usage());
        let ((), parts) = self.turn.parts().all();
        self.writer.write(&mut output.body, parts, &ending, &usage)?;
        end_json(output);
        if let Some(head) = &mut output.head {
            head.headers.insert(CONTENT_TYPE, self.writer.content_type());
            self.errors.dialect.put_request_id(&self.errors.id, &mut head.headers);
        }
        Ok(())
    }
}

impl<W: WriteWholeTurn> Answer for WholeTurn<W> {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        self.generation.message(message, &mut self.turn, &mut output.body)?;
        self.turn.check()?;
        if self.generation.is_done() { self.end(output) } else { Ok(()) }
    }

    fn finish(&mut self, output: &mut Output) {
        let result = self.generation.finish(&mut self.turn, &mut output.body);
        if let Err(status) = result.and_then(|()| self.end(output)) {
            self.fail(&status, &HeaderMap::new(), output);
        }
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        self.errors.answer(status, headers, output);
    }

    fn keep_alive(&mut self, _: &mut Output) {}
}
