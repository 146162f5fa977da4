//! The answer to a chat as one object: `chat.completion`
//! (platform.openai.com/docs/api-reference/chat/object).

use bytes::BytesMut;

use crate::answers::WriteWhole;
use crate::generation::{Collected, CollectedChoice};
use crate::logprobs::put_chat;
use crate::messages::{ToolCall, Usage};
use crate::reason::finish_reason;
use crate::shape::Shape;
use crate::usage::put_usage;
use crate::write::{put, put_integer, put_list, put_text, put_text_or_null};

#[derive(Debug)]
pub(super) struct WholeChat(pub(super) Shape);

impl WriteWhole for WholeChat {
    fn write(&self, answer: &Collected, usage: &Usage, out: &mut BytesMut) {
        self.0.put(out, "chat.completion");
        put(out, r#","choices":"#);
        put_list(out, answer.choices.iter().enumerate(), |out, (index, choice)| {
            put_choice(out, index, choice, self.0.top_logprobs);
        });
        put(out, r#","usage":"#);
        put_usage(out, usage);
        put(out, "}");
    }
}

fn put_choice(out: &mut BytesMut, index: usize, choice: &CollectedChoice, top: Option<usize>) {
    put(out, r#"{"index":"#);
    put_integer(out, index as u64);
    put(out, r#","message":{"role":"assistant","content":"#);
    let is_elsewhere = !choice.calls.is_empty() || !choice.refusal.is_empty();
    let has_content = !choice.text.is_empty() || !is_elsewhere;
    put_text_or_null(out, has_content.then_some(&choice.text));
    put(out, r#","refusal":"#);
    put_text_or_null(out, Some(&*choice.refusal).filter(|text| !text.is_empty()));
    if !choice.reasoning.is_empty() {
        // Both names, as in a stream.
        put(out, r#","reasoning_content":"#);
        put_text(out, &choice.reasoning);
        put(out, r#","reasoning":"#);
        put_text(out, &choice.reasoning);
    }
    if !choice.calls.is_empty() {
        put(out, r#","tool_calls":"#);
        put_list(out, &choice.calls, put_call);
    }
    put(out, r#"},"logprobs":"#);
    match top {
        Some(top) if !choice.logprobs.is_empty() => put_chat(out, &choice.logprobs, top),
        _ => put(out, "null"),
    }
    put(out, r#","finish_reason":"#);
    put_text_or_null(out, choice.reason.map(finish_reason));
    put(out, "}");
}

fn put_call(out: &mut BytesMut, call: &ToolCall) {
    put(out, r#"{"id":"#);
    put_text(out, &call.id);
    put(out, r#","type":"function","function":{"name":"#);
    put_text(out, &call.name);
    put(out, r#","arguments":"#);
    put_text(out, &call.arguments);
    put(out, "}}");
}
