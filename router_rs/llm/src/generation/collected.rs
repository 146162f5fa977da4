//! A whole answer, for clients that do not read a stream.

use bytes::BytesMut;
use router_protocol::grpc::{Code, Status};

use super::sink::Sink;
use crate::messages::{FinishReason, TokenLogprob, ToolCall};

/// The limit for an answer that is held until its end. Arbitrary: a thousand times the longest that models
/// write, so that only a broken engine reaches it.
const BYTES_MAX: usize = 256 << 20;

/// The output of all choices so far.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub choices: Vec<CollectedChoice>,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct CollectedChoice {
    pub text: String,
    pub reasoning: String,
    pub refusal: String,
    pub calls: Vec<ToolCall>,
    pub logprobs: Vec<TokenLogprob>,
    pub reason: Option<FinishReason>,
    pub stop: Option<String>,
}

// === impl Collected ===

impl Collected {
    /// # Errors
    /// It is more than any model writes.
    pub(crate) fn check_size(&self) -> Result<(), Status> {
        if self.bytes <= BYTES_MAX {
            return Ok(());
        }
        let text = format!("the engine has answered with more than {BYTES_MAX} bytes");
        Err(Status::new(Code::Internal, text))
    }

    fn at(&mut self, choice: usize) -> &mut CollectedChoice {
        if self.choices.len() <= choice {
            self.choices.resize_with(choice + 1, CollectedChoice::default);
        }
        &mut self.choices[choice]
    }
}

impl Sink for Collected {
    fn begin(&mut self, _: &mut BytesMut, choice: usize, _has_text: bool) {
        self.at(choice);
    }

    fn text(&mut self, _: &mut BytesMut, choice: usize, text: &str, logprobs: &[TokenLogprob]) {
        self.bytes += text.len() + size_of_val(logprobs);
        let choice = self.at(choice);
        choice.text.push_str(text);
        choice.logprobs.extend_from_slice(logprobs);
    }

    fn reasoning(&mut self, _: &mut BytesMut, choice: usize, text: &str) {
        self.bytes += text.len();
        self.at(choice).reasoning.push_str(text);
    }

    fn refusal(&mut self, _: &mut BytesMut, choice: usize, text: &str) {
        self.bytes += text.len();
        self.at(choice).refusal.push_str(text);
    }

    fn call(&mut self, _: &mut BytesMut, choice: usize, call: usize, id: &str, name: &str) {
        let calls = &mut self.at(choice).calls;
        if calls.len() <= call {
            calls.resize_with(call + 1, ToolCall::default);
        }
        calls[call].id = id.into();
        calls[call].name = name.into();
    }

    fn arguments(&mut self, _: &mut BytesMut, choice: usize, call: usize, json: &str) {
        self.bytes += json.len();
        self.at(choice).calls[call].arguments.push_str(json);
    }

    fn end(&mut self, _: &mut BytesMut, choice: usize, reason: FinishReason, stop: Option<&str>) {
        let choice = self.at(choice);
        choice.reason = Some(reason);
        choice.stop = stop.map(str::to_owned);
    }
}
