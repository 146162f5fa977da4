//! Normalises the output of engines, so that it fits the documentation of every API.
//!
//! Engines differ in how they cut text, whether they number tool calls from 0, and whether they
//! report why a choice has ended. A [`Generation`] reads their deltas and calls a [`Sink`] in an
//! order that every API can express: a choice begins once, and ends once with a reason; its text
//! has whole characters and no stop sequence; a tool call has its id and name once, before its
//! arguments.

mod choice;
mod collected;
mod sink;

use bytes::BytesMut;
use prost::Message;
use router_protocol::grpc::{Code, Status};

use self::choice::Choice;
pub(crate) use self::collected::{Collected, CollectedChoice};
pub(crate) use self::sink::{Expected, Sink};
use crate::messages::{Delta, Usage};

/// The choices of one answer.
#[derive(Debug)]
pub(crate) struct Generation {
    expected: Expected,
    /// Read in place, so that its buffers are used again.
    delta: Delta,
    /// Those that have begun, and those before them.
    choices: Vec<Choice>,
    usage: Option<Usage>,
    tokens: u32,
}

// === impl Generation ===

impl Generation {
    pub(crate) fn new(expected: Expected) -> Self {
        let (delta, choices, usage, tokens) = Default::default();
        Self { expected, delta, choices, usage, tokens }
    }

    /// The engine's next delta.
    ///
    /// # Errors
    /// It makes no sense.
    pub(crate) fn message(
        &mut self,
        message: &[u8],
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        self.delta.clear();
        self.delta.merge(message).map_err(|error| {
            let text = format!("the engine's answer cannot be read as a Delta: {error}");
            Status::new(Code::Internal, text)
        })?;
        self.tokens = self.tokens.saturating_add(self.delta.token_ids.len() as u32);
        if let Some(usage) = self.delta.usage.take() {
            sink.usage(&usage);
            self.usage = Some(usage);
        }
        let index = self.delta.index as usize;
        if index >= self.expected.choices {
            let text = format!(
                "the engine has answered with choice {index}; asked for were {}",
                self.expected.choices
            );
            return Err(Status::new(Code::Internal, text));
        }
        while self.choices.len() <= index {
            self.choices.push(Choice::new(self.choices.len(), &self.expected.stops));
        }
        self.choices[index].delta(&mut self.delta, &self.expected, sink, out)
    }

    /// Whether the client has got all that it asked for although the engine goes on: a stop sequence
    /// has ended a choice before the engine did.
    pub(crate) fn is_done(&self) -> bool {
        let is_complete = self.choices.len() == self.expected.choices;
        is_complete
            && self.choices.iter().all(Choice::has_ended)
            && self.choices.iter().any(Choice::is_running)
    }

    /// The engine has ended without an error: so have the choices that it has begun.
    ///
    /// # Errors
    /// Some choices have not begun, or a tool was called without a name.
    pub(crate) fn finish(
        &mut self,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        let has_any = self.choices.iter().any(Choice::has_begun);
        for index in 0..self.expected.choices {
            if self.choices.len() == index {
                self.choices.push(Choice::new(index, &self.expected.stops));
            }
            let choice = &mut self.choices[index];
            if has_any && !choice.has_begun() {
                let text = format!(
                    "the engine has ended without choice {index}; asked for were {}",
                    self.expected.choices
                );
                return Err(Status::new(Code::Internal, text));
            }
            choice.finish(&self.expected, sink, out)?;
        }
        Ok(())
    }

    /// The engine's counts. If there are none, the tokens of the answer are counted here, and those
    /// of the prompt are unknown.
    pub(crate) fn usage(&self) -> Usage {
        let counted = || Usage { completion_tokens: self.tokens, ..Usage::default() };
        self.usage.clone().unwrap_or_else(counted)
    }
}
