//! A completion, as events and as one object; both are called `text_completion`
//! (platform.openai.com/docs/api-reference/completions/object).

use bytes::BytesMut;

use crate::answers::{Events, WriteWhole};
use crate::generation::{Collected, CollectedChoice, Sink};
use crate::logprobs::{characters, put_completions};
use crate::messages::{FinishReason, TokenLogprob, Usage};
use crate::reason::finish_reason;
use crate::sampling::StreamOptions;
use crate::shape::Shape;
use crate::usage::put_usage;
use crate::write::{put, put_integer, put_list, put_text, put_text_or_null};

const OBJECT: &str = "text_completion";

/// The prompts, if they are to be repeated.
#[derive(Debug)]
pub(super) struct Echo {
    pub texts: Vec<Box<str>>,
    /// Choices for each prompt.
    pub n: usize,
}

#[derive(Debug)]
pub(super) struct CompletionEvents {
    /// Up to the index of the choice.
    start: Box<str>,
    echo: Echo,
    top_logprobs: Option<usize>,
    options: StreamOptions,
    usage: Usage,
    /// Where the text of each choice goes on, in characters; only kept for log probabilities.
    offsets: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct WholeCompletion {
    pub shape: Shape,
    pub echo: Echo,
}

// === impl Echo ===

impl Echo {
    /// The prompt that the choice repeats; may be empty.
    fn of(&self, choice: usize) -> &str {
        self.texts.get(choice / self.n).map_or("", |text| text)
    }
}

// === impl CompletionEvents ===

impl CompletionEvents {
    pub(super) fn new(shape: Shape, options: StreamOptions, echo: Echo) -> Self {
        let mut start = BytesMut::from("data: ");
        shape.put(&mut start, OBJECT);
        put(&mut start, r#","choices":[{"index":"#);
        let start = String::from_utf8(start.into()).expect("invariant: it was made of texts");
        let (usage, offsets) = Default::default();
        let top_logprobs = shape.top_logprobs;
        Self { start: start.into(), echo, top_logprobs, options, usage, offsets }
    }

    fn event(
        &mut self,
        out: &mut BytesMut,
        choice: usize,
        text: &str,
        logprobs: &[TokenLogprob],
        reason: Option<&str>,
    ) {
        put(out, &self.start);
        put_integer(out, choice as u64);
        put(out, r#","text":"#);
        put_text(out, text);
        put(out, r#","logprobs":"#);
        match self.top_logprobs {
            Some(top) if !logprobs.is_empty() => {
                put_completions(out, logprobs, top, self.advance(choice, logprobs));
            }
            _ => put(out, "null"),
        }
        put(out, r#","finish_reason":"#);
        put_text_or_null(out, reason);
        put(out, "}]");
        if self.options.has_continuous_usage {
            put(out, r#","usage":"#);
            put_usage(out, &self.usage);
        } else if self.options.has_usage {
            put(out, r#","usage":null"#);
        }
        put(out, "}\n\n");
    }

    /// Where the tokens begin in the choice's text.
    fn advance(&mut self, choice: usize, logprobs: &[TokenLogprob]) -> usize {
        if self.offsets.len() <= choice {
            self.offsets.resize(choice + 1, 0);
        }
        let next = self.offsets[choice] + logprobs.iter().map(characters).sum::<usize>();
        std::mem::replace(&mut self.offsets[choice], next)
    }
}

impl Sink for CompletionEvents {
    fn begin(&mut self, out: &mut BytesMut, choice: usize, _has_text: bool) {
        if !self.echo.of(choice).is_empty() {
            let echo = std::mem::take(&mut self.echo.texts);
            self.event(out, choice, &echo[choice / self.echo.n], &[], None);
            self.echo.texts = echo;
        }
    }

    fn text(&mut self, out: &mut BytesMut, choice: usize, text: &str, logprobs: &[TokenLogprob]) {
        self.event(out, choice, text, logprobs, None);
    }

    // The API has no fields for these, and an engine that continues a text generates none of them.
    fn reasoning(&mut self, _: &mut BytesMut, _choice: usize, _text: &str) {}

    fn refusal(&mut self, _: &mut BytesMut, _choice: usize, _text: &str) {}

    fn call(&mut self, _: &mut BytesMut, _choice: usize, _call: usize, _id: &str, _name: &str) {}

    fn arguments(&mut self, _: &mut BytesMut, _choice: usize, _call: usize, _json: &str) {}

    fn end(&mut self, out: &mut BytesMut, choice: usize, reason: FinishReason, _: Option<&str>) {
        self.event(out, choice, "", &[], Some(without_calls(reason)));
    }

    fn usage(&mut self, usage: &Usage) {
        self.usage.clone_from(usage);
    }
}

impl Events for CompletionEvents {
    fn last(&mut self, usage: &Usage, out: &mut BytesMut) {
        if self.options.has_usage {
            let up_to_choices = self.start.len() - r#"{"index":"#.len();
            put(out, &self.start[..up_to_choices]);
            put(out, r#"],"usage":"#);
            put_usage(out, usage);
            put(out, "}\n\n");
        }
    }
}

/// Tools do not exist in this API.
fn without_calls(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::ToolCalls => finish_reason(FinishReason::Stop),
        _ => finish_reason(reason),
    }
}

// === impl WholeCompletion ===

impl WriteWhole for WholeCompletion {
    fn write(&self, answer: &Collected, usage: &Usage, out: &mut BytesMut) {
        self.shape.put(out, OBJECT);
        put(out, r#","choices":"#);
        put_list(out, answer.choices.iter().enumerate(), |out, (index, choice)| {
            self.put_choice(out, index, choice);
        });
        put(out, r#","usage":"#);
        put_usage(out, usage);
        put(out, "}");
    }
}

impl WholeCompletion {
    fn put_choice(&self, out: &mut BytesMut, index: usize, choice: &CollectedChoice) {
        put(out, r#"{"index":"#);
        put_integer(out, index as u64);
        put(out, r#","text":"#);
        put_text(out, &[self.echo.of(index), &choice.text].concat());
        put(out, r#","logprobs":"#);
        match self.shape.top_logprobs {
            Some(top) if !choice.logprobs.is_empty() => {
                put_completions(out, &choice.logprobs, top, 0);
            }
            _ => put(out, "null"),
        }
        put(out, r#","finish_reason":"#);
        put_text_or_null(out, choice.reason.map(without_calls));
        put(out, "}");
    }
}
