//! One choice of an answer.

use std::sync::Arc;

use bytes::BytesMut;
use router_protocol::grpc::{Code, Status};

use super::sink::{Expected, Sink};
use crate::hold::{Hold, Stops};
use crate::messages::{Delta, FinishReason, TokenLogprob, ToolCallDelta};

/// The limit for the tool calls of a choice: an engine that makes up indexes would fill the memory.
const CALLS_MAX: usize = 512;

/// The limit for arguments that wait for the name of their tool. Arbitrary.
const UNNAMED_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Choice {
    index: usize,
    hold: Hold,
    /// Those of text that is held back.
    logprobs: Vec<TokenLogprob>,
    /// The bytes of text that have been given and are not those of whole tokens.
    uncovered_bytes: usize,
    calls: Vec<Call>,
    has_begun: bool,
    has_ended: bool,
    /// The engine has not ended it.
    is_running: bool,
}

#[derive(Debug)]
struct Call {
    /// Of the engine.
    index: u32,
    id: String,
    /// What came before the name.
    arguments: String,
    is_named: bool,
    has_arguments: bool,
}

// === impl Choice ===

impl Choice {
    pub(super) fn new(index: usize, stops: &Arc<Stops>) -> Self {
        let (logprobs, uncovered_bytes, calls, has_begun, has_ended) = Default::default();
        let hold = Hold::new(Arc::clone(stops));
        let is_running = true;
        Self { index, hold, logprobs, uncovered_bytes, calls, has_begun, has_ended, is_running }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running
    }

    pub(super) fn delta(
        &mut self,
        delta: &mut Delta,
        expected: &Expected,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        let is_last = delta.finish_reason != FinishReason::Unspecified as i32;
        self.is_running &= !is_last;
        if self.has_ended || !(is_last || has_content(delta)) {
            return Ok(());
        }
        self.begin(!delta.text.is_empty() || !delta.text_bytes.is_empty(), sink, out);
        if !delta.reasoning.is_empty() {
            self.let_go(expected, sink, out);
            sink.reasoning(out, self.index, &delta.reasoning);
        }
        let stop = self.text(delta, is_last, expected.has_logprobs, sink, out);
        if !(delta.refusal.is_empty() && delta.tool_calls.is_empty()) {
            self.let_go(expected, sink, out);
        }
        if !delta.refusal.is_empty() {
            sink.refusal(out, self.index, &delta.refusal);
        }
        for call in delta.tool_calls.drain(..) {
            self.call(call, expected, sink, out)?;
        }
        if let Some(stop) = stop {
            return self.end(FinishReason::Stop, Some(&stop), sink, out);
        }
        if is_last {
            // An unknown reason ends the choice too.
            let reason = FinishReason::try_from(delta.finish_reason).unwrap_or(FinishReason::Stop);
            let stop = Some(&*delta.stop_sequence).filter(|stop| !stop.is_empty());
            return self.end(reason, stop, sink, out);
        }
        Ok(())
    }

    fn begin(&mut self, has_text: bool, sink: &mut impl Sink, out: &mut BytesMut) {
        if !self.has_begun {
            self.has_begun = true;
            sink.begin(out, self.index, has_text);
        }
    }

    /// The stop sequence that has come, if one has.
    fn text(
        &mut self,
        delta: &mut Delta,
        is_last: bool,
        has_logprobs: bool,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Option<String> {
        let given = self.hold.take(&delta.text, &delta.text_bytes, is_last);
        let mut count = 0;
        if has_logprobs {
            self.logprobs.append(&mut delta.logprobs);
            self.uncovered_bytes += given.text.len();
            count = if given.is_partial || given.stop.is_some() {
                covered(&self.logprobs, &mut self.uncovered_bytes)
            } else {
                self.uncovered_bytes = 0;
                self.logprobs.len()
            };
        }
        if !given.text.is_empty() || count > 0 {
            sink.text(out, self.index, given.text, &self.logprobs[..count]);
        }
        self.logprobs.drain(..count);
        given.stop.map(str::to_owned)
    }

    /// Gives the text that is held back, if the next event must not overtake it.
    fn let_go<S: Sink>(&mut self, expected: &Expected, sink: &mut S, out: &mut BytesMut) {
        if S::KEEPS_ORDER && self.hold.is_holding() {
            self.text(&mut Delta::default(), true, expected.has_logprobs, sink, out);
        }
    }

    fn call(
        &mut self,
        piece: ToolCallDelta,
        expected: &Expected,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        let known = self.calls.iter().position(|call| call.index == piece.index);
        if known.is_none() && !self.calls.is_empty() && !expected.has_parallel_calls {
            return Ok(());
        }
        if known.is_none() && self.calls.len() == CALLS_MAX {
            let text = format!("the engine has made more than {CALLS_MAX} tool calls in a choice");
            return Err(Status::new(Code::Internal, text));
        }
        let at = known.unwrap_or(self.calls.len());
        if known.is_none() {
            self.calls.push(Call::new(piece.index));
        }
        let call = &mut self.calls[at];
        let arguments = call.name(&piece, |id, name| {
            let made = made_id(expected.id, self.index, at);
            sink.call(out, self.index, at, if id.is_empty() { &made } else { id }, name);
        });
        if call.arguments.len() > UNNAMED_BYTES_MAX {
            let text = format!(
                "the engine has sent more than {UNNAMED_BYTES_MAX} bytes of arguments before the \
                 name of their tool"
            );
            return Err(Status::new(Code::Internal, text));
        }
        for arguments in [arguments.as_deref().unwrap_or_default(), &piece.arguments] {
            if call.is_named && !arguments.is_empty() {
                call.has_arguments = true;
                sink.arguments(out, self.index, at, arguments);
            }
        }
        Ok(())
    }

    /// `stop` is the sequence that has ended it, as far as it is known.
    fn end(
        &mut self,
        reason: FinishReason,
        stop: Option<&str>,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        self.has_ended = true;
        let reason = match reason {
            FinishReason::Unspecified | FinishReason::Stop | FinishReason::ToolCalls => {
                self.end_calls(sink, out)?
            }
            // An answer that was cut off keeps its reason, even with tool calls.
            FinishReason::Length | FinishReason::ContentFilter => reason,
        };
        sink.end(out, self.index, reason, stop);
        Ok(())
    }

    /// A call without arguments has an empty object of them: clients parse what they get.
    fn end_calls(
        &mut self,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<FinishReason, Status> {
        for (at, call) in self.calls.iter().enumerate() {
            if !call.is_named {
                let text = format!("the engine has not named the tool of call {at}");
                return Err(Status::new(Code::Internal, text));
            }
            if !call.has_arguments {
                sink.arguments(out, self.index, at, "{}");
            }
        }
        let has_none = self.calls.is_empty();
        Ok(if has_none { FinishReason::Stop } else { FinishReason::ToolCalls })
    }

    /// The engine has ended its answer.
    pub(super) fn finish(
        &mut self,
        expected: &Expected,
        sink: &mut impl Sink,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        self.is_running = false;
        if self.has_ended {
            return Ok(());
        }
        self.begin(false, sink, out);
        self.text(&mut Delta::default(), true, expected.has_logprobs, sink, out);
        self.end(FinishReason::Stop, None, sink, out)
    }
}

/// Whether there is something for a client in it.
fn has_content(delta: &Delta) -> bool {
    let has_text = !delta.text.is_empty() || !delta.text_bytes.is_empty();
    has_text
        || !delta.reasoning.is_empty()
        || !delta.tool_calls.is_empty()
        || !delta.refusal.is_empty()
        || !delta.logprobs.is_empty()
}

/// How many of the tokens are in so much text, which is used up. Tokens have no text if they are not
/// shown, as the one at the end of a turn.
fn covered(logprobs: &[TokenLogprob], bytes: &mut usize) -> usize {
    let is_covered = |token: &&TokenLogprob| {
        let named =
            if token.token_bytes.is_empty() { token.token.len() } else { token.token_bytes.len() };
        let left = bytes.checked_sub(named);
        left.inspect(|left| *bytes = *left).is_some()
    };
    logprobs.iter().take_while(is_covered).count()
}

fn made_id(id: u128, choice: usize, call: usize) -> String {
    let number = (choice as u128) << 16 | call as u128;
    format!("call_{:032x}", id.wrapping_add(1 + number))
}

// === impl Call ===

impl Call {
    fn new(index: u32) -> Self {
        let (id, arguments) = Default::default();
        Self { index, id, arguments, is_named: false, has_arguments: false }
    }

    /// Takes id and name, which count once; `begin` is called when they are known. Returns the arguments
    /// that came too early.
    fn name(&mut self, piece: &ToolCallDelta, begin: impl FnOnce(&str, &str)) -> Option<String> {
        if self.is_named {
            return None;
        }
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
        }
        if piece.name.is_empty() {
            self.arguments.push_str(&piece.arguments);
            return None;
        }
        self.is_named = true;
        begin(&self.id, &piece.name);
        Some(std::mem::take(&mut self.arguments))
    }
}
