//! The receiver of a generation's events, and the limits that the request sets for it.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::BytesMut;

use crate::hold::Stops;
use crate::messages::{FinishReason, TokenLogprob, Usage};

/// Writes an answer in the format of an API. Each method appends bytes for the client to `out`.
pub(crate) trait Sink: Debug + Send {
    /// Text and other events keep their order: text that is held back is written before a tool call
    /// or reasoning, so a stop sequence cannot continue after that.
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

    /// The token counts so far, for the events that follow.
    fn usage(&mut self, usage: &Usage) {
        let _ = usage;
    }
}

/// The answer that the request allows.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Of all prompts together; at least one.
    pub choices: usize,
    pub stops: Arc<Stops>,
    pub has_logprobs: bool,
    /// More than one tool call for each choice.
    pub has_parallel_calls: bool,
    /// Ids of tool calls are made from it if the engine makes none.
    pub id: u128,
}
