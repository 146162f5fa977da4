//! The fields of its request that a response repeats.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::json::{Json, Object};

type Raw = Box<RawValue>;

/// Fields as the client has written them, or the defaults of the API's document. Those that are
/// null are up to the engine.
#[derive(Debug, Serialize)]
pub(super) struct Echo {
    instructions: Option<Raw>,
    max_output_tokens: Option<Raw>,
    max_tool_calls: Option<Raw>,
    metadata: Raw,
    parallel_tool_calls: Raw,
    prompt_cache_key: Option<Raw>,
    reasoning: Raw,
    safety_identifier: Option<Raw>,
    temperature: Option<Raw>,
    text: Raw,
    tool_choice: Raw,
    tools: Raw,
    top_logprobs: Raw,
    top_p: Option<Raw>,
    user: Option<Raw>,
}

impl Echo {
    /// Nothing is checked: that is done where the fields are read.
    pub(super) fn read(body: &Object<'_>) -> Self {
        let or_null = |name| body.peek(name).map(Json::raw).map(raw);
        let or = |name, default| raw(body.peek(name).map_or(default, Json::raw));
        Self {
            instructions: or_null("instructions"),
            max_output_tokens: or_null("max_output_tokens"),
            max_tool_calls: or_null("max_tool_calls"),
            metadata: or("metadata", "{}"),
            parallel_tool_calls: or("parallel_tool_calls", "true"),
            prompt_cache_key: or_null("prompt_cache_key"),
            reasoning: or("reasoning", r#"{"effort":null,"summary":null}"#),
            safety_identifier: or_null("safety_identifier"),
            temperature: or_null("temperature"),
            text: or("text", r#"{"format":{"type":"text"}}"#),
            tool_choice: or("tool_choice", r#""auto""#),
            tools: or("tools", "[]"),
            top_logprobs: or("top_logprobs", "0"),
            top_p: or_null("top_p"),
            user: or_null("user"),
        }
    }
}

/// On one line, as the data of an event has to be. Strings have no line ends that are not escaped.
fn raw(json: &str) -> Raw {
    let line = json.replace(['\n', '\r'], " ");
    RawValue::from_string(line).expect("invariant: white space between values does not matter")
}
