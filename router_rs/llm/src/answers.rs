//! The frame of each kind of answer: a stream of events, one object made of a stream of deltas, or one
//! object made of one message.

use std::fmt::Debug;

use bytes::BytesMut;
use http::HeaderMap;
use prost::Message;
use router_protocol::grpc::{Code, Status};

use crate::errors::{ApiError, Dialect};
use crate::generation::{Collected, Generation, Sink};
use crate::messages::Usage;
use crate::write::{end_json, put, stream_head};
use crate::{Answer, Output};

const DONE: &str = "data: [DONE]\n\n";

/// A sink that writes OpenAI's events.
pub(crate) trait Events: Sink {
    /// The last event before the end: the usage, if it was requested.
    fn last(&mut self, usage: &Usage, out: &mut BytesMut);
}

/// A stream of OpenAI's events.
#[derive(Debug)]
pub(crate) struct Stream<E> {
    generation: Generation,
    events: E,
    has_begun: bool,
}

/// Writes a whole answer.
pub(crate) trait WriteWhole: Debug + Send {
    fn write(&self, answer: &Collected, usage: &Usage, out: &mut BytesMut);
}

/// One object, made of all deltas.
#[derive(Debug)]
pub(crate) struct Whole<W> {
    generation: Generation,
    collected: Collected,
    writer: W,
}

/// Writes the answer to a call with one message.
pub(crate) trait WriteOne: Debug + Send {
    type Message: Message + Default + Debug;

    /// # Errors
    /// The message does not fit the request.
    fn write(&self, message: Self::Message, out: &mut BytesMut) -> Result<(), Status>;
}

/// One object, made of one message.
#[derive(Debug)]
pub(crate) struct One<W> {
    writer: W,
    has_message: bool,
    dialect: Dialect,
    id: String,
}

// === impl Stream ===

impl<E: Events> Stream<E> {
    pub(crate) fn new(generation: Generation, events: E) -> Self {
        Self { generation, events, has_begun: false }
    }

    fn begin(&mut self, output: &mut Output) {
        if !self.has_begun {
            self.has_begun = true;
            output.head = Some(stream_head());
        }
    }

    fn end(&mut self, output: &mut Output) {
        self.begin(output);
        self.events.last(&self.generation.usage(), &mut output.body);
        put(&mut output.body, DONE);
        output.is_ended = true;
    }
}

impl<E: Events> Answer for Stream<E> {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        let length = output.body.len();
        let result = self.generation.message(message, &mut self.events, &mut output.body);
        if result.is_err() && !self.has_begun {
            // Then the error is the whole answer.
            output.body.truncate(length);
        } else if output.body.len() > length {
            self.begin(output);
        }
        result?;
        if self.generation.is_done() {
            self.end(output);
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut Output) {
        let length = output.body.len();
        match self.generation.finish(&mut self.events, &mut output.body) {
            Ok(()) => self.end(output),
            Err(status) => {
                output.body.truncate(length);
                self.fail(&status, &HeaderMap::new(), output);
            }
        }
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        let error = ApiError::of(status);
        if !self.has_begun {
            return error.answer(Dialect::OpenAi, "", headers, output);
        }
        put(&mut output.body, "data: ");
        error.put_body(Dialect::OpenAi, "", &mut output.body);
        put(&mut output.body, "\n\n");
        put(&mut output.body, DONE);
        output.is_ended = true;
    }

    fn keep_alive(&mut self, output: &mut Output) {
        self.begin(output);
        put(&mut output.body, ": waiting\n\n");
    }
}

// === impl Whole ===

impl<W: WriteWhole> Whole<W> {
    pub(crate) fn new(generation: Generation, writer: W) -> Self {
        Self { generation, collected: Collected::default(), writer }
    }

    fn end(&mut self, output: &mut Output) {
        self.writer.write(&self.collected, &self.generation.usage(), &mut output.body);
        end_json(output);
    }
}

impl<W: WriteWhole> Answer for Whole<W> {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        self.generation.message(message, &mut self.collected, &mut output.body)?;
        self.collected.check_size()?;
        if self.generation.is_done() {
            self.end(output);
        }
        Ok(())
    }

    fn finish(&mut self, output: &mut Output) {
        match self.generation.finish(&mut self.collected, &mut output.body) {
            Ok(()) => self.end(output),
            Err(status) => self.fail(&status, &HeaderMap::new(), output),
        }
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        ApiError::of(status).answer(Dialect::OpenAi, "", headers, output);
    }

    fn keep_alive(&mut self, _output: &mut Output) {}
}

// === impl One ===

impl<W: WriteOne> One<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self::in_dialect(writer, Dialect::OpenAi, String::new())
    }

    /// `id` names the request in Anthropic's errors.
    pub(crate) fn in_dialect(writer: W, dialect: Dialect, id: String) -> Self {
        Self { writer, has_message: false, dialect, id }
    }
}

impl<W: WriteOne> Answer for One<W> {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        if self.has_message {
            return Err(Status::new(Code::Internal, "the engine has answered twice"));
        }
        self.has_message = true;
        let message = W::Message::decode(message).map_err(|error| {
            let text = format!("the engine's answer cannot be read: {error}");
            Status::new(Code::Internal, text)
        })?;
        let result = self.writer.write(message, &mut output.body);
        if result.is_err() {
            output.body.clear();
        }
        result
    }

    fn finish(&mut self, output: &mut Output) {
        if self.has_message {
            end_json(output);
            if let Some(head) = &mut output.head {
                self.dialect.put_request_id(&self.id, &mut head.headers);
            }
            return;
        }
        let status = Status::new(Code::Internal, "the engine has ended without an answer");
        self.fail(&status, &HeaderMap::new(), output);
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        output.body.clear();
        ApiError::of(status).answer(self.dialect, &self.id, headers, output);
    }

    fn keep_alive(&mut self, _output: &mut Output) {}
}
