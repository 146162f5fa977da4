//! One turn of an assistant: the only choice of a call of Messages or Responses, split into parts.

use bytes::BytesMut;
use router_protocol::grpc::Status;

use crate::generation::Sink;
use crate::messages::{FinishReason, TokenLogprob, Usage};
use crate::parts::{Kind, Parts, WriteParts};

/// Sorts the events of a generation into parts.
#[derive(Debug)]
pub(crate) struct Turn<W> {
    parts: Parts<W>,
    /// The client must not see any.
    hides_reasoning: bool,
    /// The engine's token counts so far.
    usage: Usage,
    ending: Option<Ending>,
    error: Option<Status>,
}

/// Why a turn has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) reason: FinishReason,
    /// The sequence that has ended it.
    pub(crate) stop: Option<String>,
}

impl Ending {
    /// The engine had more to say.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.reason, FinishReason::Length | FinishReason::ContentFilter)
    }
}

impl<W: WriteParts> Turn<W> {
    pub(crate) fn new(parts: Parts<W>) -> Self {
        let (usage, ending, error) = Default::default();
        Self { parts, hides_reasoning: false, usage, ending, error }
    }

    pub(crate) fn hiding_reasoning(self, hides_reasoning: bool) -> Self {
        Self { hides_reasoning, ..self }
    }

    /// Why it has ended; without a reason it has ended by itself.
    pub(crate) fn ending(&self) -> Ending {
        let by_itself = || Ending { reason: FinishReason::Stop, stop: None };
        self.ending.clone().unwrap_or_else(by_itself)
    }

    pub(crate) fn parts(&mut self) -> &mut Parts<W> {
        &mut self.parts
    }

    /// # Errors
    /// `INTERNAL`: the engine's output cannot be sorted into parts.
    pub(crate) fn check(&self) -> Result<(), Status> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Nothing is sorted any more after an error.
    fn sort(&mut self, sort: impl FnOnce(&mut Parts<W>) -> Result<(), Status>) {
        if self.error.is_none() {
            self.error = sort(&mut self.parts).err();
        }
    }
}

impl<W: WriteParts> Sink for Turn<W> {
    const KEEPS_ORDER: bool = true;

    fn begin(&mut self, out: &mut BytesMut, _: usize, _has_text: bool) {
        self.parts.writer().start(out, &self.usage);
    }

    fn text(&mut self, out: &mut BytesMut, _: usize, text: &str, logprobs: &[TokenLogprob]) {
        self.sort(|parts| parts.add(Kind::Text, text, logprobs, out));
    }

    fn reasoning(&mut self, out: &mut BytesMut, _: usize, text: &str) {
        if !self.hides_reasoning {
            self.sort(|parts| parts.add(Kind::Reasoning, text, &[], out));
        }
    }

    fn refusal(&mut self, out: &mut BytesMut, _: usize, text: &str) {
        self.sort(|parts| parts.add(Kind::Refusal, text, &[], out));
    }

    fn call(&mut self, out: &mut BytesMut, _: usize, call: usize, id: &str, name: &str) {
        self.sort(|parts| parts.add_call(call, id, name, out));
    }

    fn arguments(&mut self, out: &mut BytesMut, _: usize, call: usize, json: &str) {
        self.sort(|parts| parts.add_arguments(call, json, out));
    }

    fn end(&mut self, out: &mut BytesMut, _: usize, reason: FinishReason, stop: Option<&str>) {
        let ending = Ending { reason, stop: stop.map(str::to_owned) };
        self.sort(|parts| {
            parts.finish(ending.is_cut(), out);
            Ok(())
        });
        self.ending = Some(ending);
    }

    fn usage(&mut self, usage: &Usage) {
        self.usage = usage.clone();
    }
}
