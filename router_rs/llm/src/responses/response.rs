//! The objects in an answer of OpenAI's Responses API.

use serde::Serialize;

use crate::messages::{self, FinishReason};
use crate::parts::{Kind, Part};
use crate::turn::Ending;

use super::echo::Echo;
use super::logprobs::{Detail, Logprob};

/// The values that all objects and events of one response share.
#[derive(Debug)]
pub(super) struct Shape {
    /// As in the ids of the response and its items.
    pub(super) id: u128,
    pub(super) model: String,
    /// Unix time in seconds.
    pub(super) created: u64,
    pub(super) echo: Echo,
}

/// A response in its current state.
#[derive(Debug, Serialize)]
pub(super) struct Response<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    pub(super) status: &'static str,
    background: bool,
    pub(super) error: Option<Failure<'a>>,
    incomplete_details: Option<Incomplete>,
    model: &'a str,
    output: Vec<Item<'a>>,
    previous_response_id: Option<()>,
    service_tier: &'static str,
    store: bool,
    truncation: &'static str,
    usage: Option<Usage>,
    #[serde(flatten)]
    echo: &'a Echo,
}

#[derive(Debug, Serialize)]
pub(super) struct Failure<'a> {
    pub(super) code: &'static str,
    pub(super) message: &'a str,
}

#[derive(Debug, Serialize)]
struct Incomplete {
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct Usage {
    input_tokens: u32,
    input_tokens_details: InputDetails,
    output_tokens: u32,
    output_tokens_details: OutputDetails,
    total_tokens: u32,
}

#[derive(Debug, Serialize)]
struct InputDetails {
    cached_tokens: u32,
    cache_write_tokens: u32,
}

#[derive(Debug, Serialize)]
struct OutputDetails {
    reasoning_tokens: u32,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<Content<'a>>,
    },
    Reasoning {
        id: String,
        status: &'static str,
        summary: [(); 0],
        content: Vec<Content<'a>>,
    },
    FunctionCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    OutputText { text: &'a str, annotations: [(); 0], logprobs: Vec<Logprob<'a>> },
    Refusal { refusal: &'a str },
    ReasoningText { text: &'a str },
}

// === impl Shape ===

impl Shape {
    /// A response that has just begun.
    pub(super) fn begun(&self) -> Response<'_> {
        Response {
            id: format!("resp_{:032x}", self.id),
            object: "response",
            created_at: self.created,
            status: "in_progress",
            background: false,
            error: None,
            incomplete_details: None,
            model: &self.model,
            output: Vec::new(),
            previous_response_id: None,
            service_tier: "default",
            store: false,
            truncation: "disabled",
            usage: None,
            echo: &self.echo,
        }
    }

    /// A response whose engine has ended.
    pub(super) fn ended<'a>(
        &'a self,
        parts: &'a [Part],
        ending: &Ending,
        usage: &messages::Usage,
    ) -> Response<'a> {
        let reason = incomplete_reason(ending);
        let whole_count = parts.len().saturating_sub(usize::from(ending.is_cut()));
        Response {
            status: if reason.is_some() { "incomplete" } else { "completed" },
            incomplete_details: reason.map(|reason| Incomplete { reason }),
            output: self.items(parts, whole_count),
            usage: Some(usage.into()),
            ..self.begun()
        }
    }

    /// A response whose engine has failed, with what the client has got of it.
    pub(super) fn failed<'a>(
        &'a self,
        parts: &'a [Part],
        whole_count: usize,
        error: Failure<'a>,
    ) -> Response<'a> {
        let output = self.items(parts, whole_count);
        Response { status: "failed", error: Some(error), output, ..self.begun() }
    }

    fn items<'a>(&self, parts: &'a [Part], whole_count: usize) -> Vec<Item<'a>> {
        let parts = parts.iter().enumerate();
        parts
            .map(|(index, part)| self.item(index, part, item_status(index < whole_count)))
            .collect()
    }

    /// A whole item.
    pub(super) fn item<'a>(&self, index: usize, part: &'a Part, status: &'static str) -> Item<'a> {
        let content = |part| vec![content_of(part)];
        self.item_with(index, part, status, content, &part.text)
    }

    /// An item as it begins.
    pub(super) fn begun_item<'a>(&self, index: usize, part: &'a Part) -> Item<'a> {
        self.item_with(index, part, "in_progress", |_| Vec::new(), "")
    }

    fn item_with<'a>(
        &self,
        index: usize,
        part: &'a Part,
        status: &'static str,
        content: impl Fn(&'a Part) -> Vec<Content<'a>>,
        arguments: &'a str,
    ) -> Item<'a> {
        let id = self.item_id(index, part);
        match part.kind {
            Kind::Text | Kind::Refusal => {
                Item::Message { id, status, role: "assistant", content: content(part) }
            }
            Kind::Reasoning => Item::Reasoning { id, status, summary: [], content: content(part) },
            Kind::Call(_) => {
                let (call_id, name) = (&*part.id, &*part.name);
                Item::FunctionCall { id, status, call_id, name, arguments }
            }
        }
    }

    pub(super) fn item_id(&self, index: usize, part: &Part) -> String {
        let kind = match part.kind {
            Kind::Text | Kind::Refusal => "msg",
            Kind::Reasoning => "rs",
            Kind::Call(_) => "fc",
        };
        format!("{kind}_{:032x}{index:03x}", self.id)
    }
}

pub(super) fn item_status(is_whole: bool) -> &'static str {
    if is_whole { "completed" } else { "incomplete" }
}

/// Why a response is incomplete, `None` if it is not.
fn incomplete_reason(ending: &Ending) -> Option<&'static str> {
    match ending.reason {
        FinishReason::Length => Some("max_output_tokens"),
        FinishReason::ContentFilter => Some("content_filter"),
        FinishReason::Unspecified | FinishReason::Stop | FinishReason::ToolCalls => None,
    }
}

/// The only content of an item that has some.
pub(super) fn content_of(part: &Part) -> Content<'_> {
    match part.kind {
        Kind::Refusal => Content::Refusal { refusal: &part.text },
        Kind::Reasoning => Content::ReasoningText { text: &part.text },
        Kind::Text | Kind::Call(_) => Content::OutputText {
            text: &part.text,
            annotations: [],
            logprobs: Logprob::all(&part.logprobs, Detail::WithBytes),
        },
    }
}

/// The same, without any text yet.
pub(super) fn begun_content(kind: Kind) -> Content<'static> {
    match kind {
        Kind::Refusal => Content::Refusal { refusal: "" },
        Kind::Reasoning => Content::ReasoningText { text: "" },
        Kind::Text | Kind::Call(_) => {
            Content::OutputText { text: "", annotations: [], logprobs: Vec::new() }
        }
    }
}

impl From<&messages::Usage> for Usage {
    fn from(usage: &messages::Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
        }
    }
}
