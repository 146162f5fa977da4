//! Who is told of a generation, and what was asked for.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::BytesMut;

use crate::hold::Stops;
use crate::messages::{FinishReason, TokenLogprob, Usage};

/// Who writes down what happens. Each method appends to `out` what a client is sent, in one go.
pub(crate) trait Sink: Debug + Send {
    /// Text and what is no text are told in their order, so that no text is held back when the other
    /// comes; a stop sequence cannot go on after it.
    const KEEPS_ORDER: bool = false;

    /// The choice begins; `has_text` says whether its first delta has text.
    fn begin(&mut self, out: &mut BytesMut, choice: usize, has_text: bool);

    /// The logprobs are those of this text's tokens; one of the two may be empty.
    fn text(&mut self, out: &mut BytesMut, choice: usize, text: &str, logprobs: &[TokenLogprob]);

    fn reasoning(&mut self, out: &mut BytesMut, choice: usize, text: &str);

    fn refusal(&mut self, out: &mut BytesMut, choice: usize, text: &str);

    /// Calls are numbered from 0.
    fn call(&mut self, out: &mut BytesMut, choice: usize, call: usize, id: &str, name: &str);

    fn arguments(&mut self, out: &mut BytesMut, choice: usize, call: usize, json: &str);

    /// Nothing of the choice follows. `stop` is the sequence that has ended it, if one has.
    fn end(&mut self, out: &mut BytesMut, choice: usize, reason: FinishReason, stop: Option<&str>);

    /// What the client may be told of tokens so far, before what comes next.
    fn usage(&mut self, usage: &Usage) {
        let _ = usage;
    }
}

/// What the request lets the engine answer.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Of all prompts together; at least one.
    pub choices: usize,
    pub stops: Arc<Stops>,
    pub has_logprobs: bool,
    /// More than one tool call for each choice.
    pub has_parallel_calls: bool,
    /// Ids of tool calls are made of it, where the engine makes none.
    pub id: u128,
}
