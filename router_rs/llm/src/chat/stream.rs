//! The events of a chat: `chat.completion.chunk`
//! (platform.openai.com/docs/api-reference/chat-streaming).

use bytes::BytesMut;

use crate::answers::Events;
use crate::generation::Sink;
use crate::logprobs::put_chat;
use crate::messages::{FinishReason, TokenLogprob, Usage};
use crate::reason::finish_reason;
use crate::sampling::StreamOptions;
use crate::shape::Shape;
use crate::usage::put_usage;
use crate::write::{put, put_integer, put_text};

#[derive(Debug)]
pub(super) struct ChatEvents {
    /// Up to the index of the choice.
    start: Box<str>,
    /// What follows an ordinary delta, if `options` do not ask for usage in each event.
    rest: &'static str,
    top_logprobs: Option<usize>,
    options: StreamOptions,
    /// So far.
    usage: Usage,
}

const REST: &str = "},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const REST_WITH_USAGE: &str = "},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";

// === impl ChatEvents ===

impl ChatEvents {
    pub(super) fn new(shape: Shape, options: StreamOptions) -> Self {
        let mut start = BytesMut::from("data: ");
        shape.put(&mut start, "chat.completion.chunk");
        put(&mut start, r#","choices":[{"index":"#);
        let start = String::from_utf8(start.into()).expect("invariant: it was made of texts");
        Self {
            start: start.into(),
            rest: if options.has_usage { REST_WITH_USAGE } else { REST },
            top_logprobs: shape.top_logprobs,
            options,
            usage: Usage::default(),
        }
    }

    /// Up to the fields of the delta.
    fn begin_event(&self, out: &mut BytesMut, choice: usize) {
        put(out, &self.start);
        put_integer(out, choice as u64);
        put(out, r#","delta":{"#);
    }

    /// After the fields of a delta that is not the choice's last.
    fn end_event(&self, out: &mut BytesMut) {
        if self.options.has_continuous_usage {
            self.end_event_with(out, &[], None);
        } else {
            put(out, self.rest);
        }
    }

    fn end_event_with(&self, out: &mut BytesMut, logprobs: &[TokenLogprob], reason: Option<&str>) {
        put(out, r#"},"logprobs":"#);
        match self.top_logprobs {
            Some(top) if !logprobs.is_empty() => put_chat(out, logprobs, top),
            _ => put(out, "null"),
        }
        put(out, r#","finish_reason":"#);
        match reason {
            Some(reason) => put_text(out, reason),
            None => put(out, "null"),
        }
        put(out, "}]");
        if self.options.has_continuous_usage {
            put(out, r#","usage":"#);
            put_usage(out, &self.usage);
        } else if self.options.has_usage {
            put(out, r#","usage":null"#);
        }
        put(out, "}\n\n");
    }

    /// An event with one field that is a text.
    fn text_event(&self, out: &mut BytesMut, choice: usize, field: &str, text: &str) {
        self.begin_event(out, choice);
        put(out, field);
        put_text(out, text);
        self.end_event(out);
    }
}

impl Sink for ChatEvents {
    fn begin(&mut self, out: &mut BytesMut, choice: usize, has_text: bool) {
        self.begin_event(out, choice);
        let content = if has_text { r#""content":"""# } else { r#""content":null"# };
        put(out, r#""role":"assistant","#);
        put(out, content);
        self.end_event(out);
    }

    fn text(&mut self, out: &mut BytesMut, choice: usize, text: &str, logprobs: &[TokenLogprob]) {
        self.begin_event(out, choice);
        put(out, r#""content":"#);
        put_text(out, text);
        if logprobs.is_empty() {
            self.end_event(out);
        } else {
            self.end_event_with(out, logprobs, None);
        }
    }

    /// The field has two names: DeepSeek's, which most clients read, and vLLM's and OpenRouter's, which
    /// others do. Those who know both take the first.
    fn reasoning(&mut self, out: &mut BytesMut, choice: usize, text: &str) {
        self.begin_event(out, choice);
        put(out, r#""reasoning_content":"#);
        put_text(out, text);
        put(out, r#","reasoning":"#);
        put_text(out, text);
        self.end_event(out);
    }

    fn refusal(&mut self, out: &mut BytesMut, choice: usize, text: &str) {
        self.text_event(out, choice, r#""refusal":"#, text);
    }

    fn call(&mut self, out: &mut BytesMut, choice: usize, call: usize, id: &str, name: &str) {
        self.begin_event(out, choice);
        put(out, r#""tool_calls":[{"index":"#);
        put_integer(out, call as u64);
        put(out, r#","id":"#);
        put_text(out, id);
        put(out, r#","type":"function","function":{"name":"#);
        put_text(out, name);
        put(out, r#","arguments":""}}]"#);
        self.end_event(out);
    }

    fn arguments(&mut self, out: &mut BytesMut, choice: usize, call: usize, json: &str) {
        self.begin_event(out, choice);
        put(out, r#""tool_calls":[{"index":"#);
        put_integer(out, call as u64);
        put(out, r#","function":{"arguments":"#);
        put_text(out, json);
        put(out, "}}]");
        self.end_event(out);
    }

    fn end(&mut self, out: &mut BytesMut, choice: usize, reason: FinishReason, _: Option<&str>) {
        self.begin_event(out, choice);
        self.end_event_with(out, &[], Some(finish_reason(reason)));
    }

    fn usage(&mut self, usage: &Usage) {
        self.usage.clone_from(usage);
    }
}

impl Events for ChatEvents {
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
