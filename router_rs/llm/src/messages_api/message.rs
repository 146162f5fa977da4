//! The objects in an answer of Anthropic's Messages API.

use std::borrow::Cow;

use router_protocol::grpc::{Code, Status};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::call_json::{closed, object_of};
use crate::messages::{self, FinishReason};
use crate::parts::{Kind, Part};
use crate::turn::Ending;

/// The values that all objects and events of one message share.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) id: u128,
    pub(super) model: String,
    /// The client wants to know that the model thinks, but not what.
    pub(super) omits_thinking: bool,
    /// The client's own stop sequences; engines may name those of the model.
    pub(super) stop: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Message<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block<'a>>,
    #[serde(flatten)]
    end: End,
    usage: Usage,
}

/// How a message ends; nothing while it has not.
#[derive(Debug, Default, Serialize)]
pub(super) struct End {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text { text: &'a str },
    Thinking { thinking: &'a str, signature: &'static str },
    ToolUse { id: &'a str, name: &'a str, input: Cow<'a, RawValue> },
}

/// Input tokens are those that were not found in the cache.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "the API's document has these names")]
pub(super) struct Usage {
    input_tokens: u32,
    cache_creation_input_tokens: u32,
    cache_read_input_tokens: u32,
    output_tokens: u32,
}

impl From<&messages::Usage> for Usage {
    fn from(usage: &messages::Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.completion_tokens,
        }
    }
}

impl Shape {
    pub(super) fn message<'a>(
        &'a self,
        content: Vec<Block<'a>>,
        end: End,
        usage: &messages::Usage,
    ) -> Message<'a> {
        Message {
            id: format!("msg_{:032x}", self.id),
            r#type: "message",
            role: "assistant",
            model: &self.model,
            content,
            end,
            usage: usage.into(),
        }
    }

    pub(super) fn request_id(&self) -> String {
        request_id(self.id)
    }

    /// The content blocks of a whole message.
    ///
    /// # Errors
    /// `INTERNAL`: the arguments of a call are not an object.
    pub(super) fn blocks<'a>(
        &self,
        parts: &'a [Part],
        ending: &Ending,
    ) -> Result<Vec<Block<'a>>, Status> {
        let block = |part: &'a Part| match part.kind {
            Kind::Text | Kind::Refusal => Ok(Block::Text { text: &part.text }),
            Kind::Reasoning => {
                let thinking = if self.omits_thinking { "" } else { &*part.text };
                Ok(Block::Thinking { thinking, signature: "" })
            }
            Kind::Call(_) => input_of(part, ending).map(|input| Block::ToolUse {
                id: &part.id,
                name: &part.name,
                input,
            }),
        };
        parts.iter().map(block).collect()
    }

    pub(super) fn end(&self, ending: &Ending, parts: &[Part]) -> End {
        let refuses = parts.iter().any(|part| part.kind == Kind::Refusal);
        let stop = ending.stop.as_ref().filter(|stop| self.stop.contains(stop));
        let reason = match ending.reason {
            _ if stop.is_some() => "stop_sequence",
            FinishReason::Length => "max_tokens",
            FinishReason::ContentFilter => "refusal",
            FinishReason::ToolCalls => "tool_use",
            FinishReason::Unspecified | FinishReason::Stop if refuses => "refusal",
            FinishReason::Unspecified | FinishReason::Stop => "end_turn",
        };
        End { stop_reason: Some(reason), stop_sequence: stop.cloned() }
    }
}

/// The id of the request in errors.
pub(super) fn request_id(id: u128) -> String {
    format!("req_{id:032x}")
}

impl<'a> Block<'a> {
    /// A content block as it begins.
    pub(super) fn begun(part: &'a Part) -> Self {
        match part.kind {
            Kind::Text | Kind::Refusal => Self::Text { text: "" },
            Kind::Reasoning => Self::Thinking { thinking: "", signature: "" },
            Kind::Call(_) => {
                let input = object_of("").expect("invariant: no arguments are an empty object");
                Self::ToolUse { id: &part.id, name: &part.name, input: Cow::Borrowed(input) }
            }
        }
    }
}

/// The arguments of a call as the input of a tool, which is always an object. That of an answer
/// which was cut off has what had come.
pub(super) fn input_of<'a>(part: &'a Part, ending: &Ending) -> Result<Cow<'a, RawValue>, Status> {
    if let Some(object) = object_of(&part.text) {
        return Ok(Cow::Borrowed(object));
    }
    let cut = ending.is_cut().then(|| closed(&part.text));
    let object = cut.as_deref().and_then(object_of).map(ToOwned::to_owned);
    object.map(Cow::Owned).ok_or_else(|| {
        let text = format!("the model's arguments for the tool {:?} are no JSON object", part.name);
        Status::new(Code::Internal, text)
    })
}
