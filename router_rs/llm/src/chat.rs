//! `POST /v1/chat/completions`
//! (platform.openai.com/docs/api-reference/chat/create).

mod messages;
mod stream;
mod tools;
mod whole;

use bytes::Bytes;
use prost::Message;

use self::stream::ChatEvents;
pub(crate) use self::tools::check_choice;
use self::whole::WholeChat;
use crate::answers::{Stream, Whole};
use crate::errors::ApiError;
use crate::generation::{Expected, Generation};
use crate::json::{Json, Object, Wrong, object_as_written};
use crate::messages::{Chat, GenerateInput, GenerateRequest, Kind, ResponseFormat};
use crate::request::ApiRequest;
use crate::sampling::{Common, TOP_LOGPROBS_MAX, max_tokens};
use crate::shape::Shape;
use crate::{Answer, GENERATE, Opened, Resolved};

/// OpenAI's own values, and those of models that others serve.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

#[derive(Debug)]
pub(crate) struct ChatRequest(Common);

// === impl ChatRequest ===

impl ChatRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let mut common = Common::read(&mut body)?;
        refuse(&mut body)?;
        check(&body)?;
        let limit = body.read("max_tokens", max_tokens)?;
        let request = &mut common.request;
        request.max_tokens =
            body.read("max_completion_tokens", max_tokens)?.or(limit).unwrap_or_default();
        read_logprobs(&mut body, request)?;
        request.response_format = body.read("response_format", response_format)?.flatten();
        request.input = Some(GenerateInput::Chat(read_chat(&mut body)?));
        request.other_json = body.rest();
        Ok(Self(common))
    }
}

impl ApiRequest for ChatRequest {
    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    fn is_stream(&self) -> bool {
        self.0.stream.is_some()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Common { stream, stops, mut request, .. } = self.0;
        let shape = Shape {
            id: format!("chatcmpl-{:032x}", resolved.id),
            model: resolved.asked,
            created: resolved.created,
            top_logprobs: request.logprobs.then_some(request.top_logprobs as usize),
        };
        request.request_id.clone_from(&shape.id);
        request.model = resolved.model;
        let parallel = match &request.input {
            Some(GenerateInput::Chat(chat)) => chat.parallel_tool_calls,
            Some(GenerateInput::Prompts(_)) | None => None,
        };
        let generation = Generation::new(Expected {
            choices: request.n as usize,
            stops,
            has_logprobs: request.logprobs,
            has_parallel_calls: parallel != Some(false),
            id: resolved.id,
        });
        let answer: Box<dyn Answer> = match stream {
            Some(options) => Box::new(Stream::new(generation, ChatEvents::new(shape, options))),
            None => Box::new(Whole::new(generation, WholeChat(shape))),
        };
        Opened { path: GENERATE, message: Bytes::from(request.encode_to_vec()), answer }
    }
}

/// Rejects the fields that the API documents and that engines cannot support.
fn refuse(body: &mut Object<'_>) -> Result<(), Wrong> {
    body.refuse("functions", "is out of date and not served; use tools")?;
    body.refuse("function_call", "is out of date and not served; use tool_choice")?;
    body.refuse("audio", "is not served: answers are text")?;
    body.refuse("web_search_options", "is not served: give the model a tool that searches")?;
    let modalities = body.read("modalities", |value| value.each(Json::text))?.unwrap_or_default();
    match modalities.iter().find(|modality| *modality != "text") {
        Some(other) => {
            let what = format!("has {other:?}, which is not served: answers are text");
            Err(Wrong::new(what).at("modalities"))
        }
        None => Ok(()),
    }
}

/// Documented fields that only some engines use: they are checked, and passed on.
fn check(body: &Object<'_>) -> Result<(), Wrong> {
    for name in ["prompt_cache_key", "safety_identifier", "service_tier", "verbosity"] {
        body.check(name, Json::text)?;
    }
    for name in ["metadata", "prediction"] {
        body.check(name, Json::object)?;
    }
    body.check("store", Json::boolean)
}

fn read_logprobs(body: &mut Object<'_>, request: &mut GenerateRequest) -> Result<(), Wrong> {
    request.logprobs = body.boolean("logprobs")?.unwrap_or(false);
    let top = body.read("top_logprobs", |value| value.integer(0, TOP_LOGPROBS_MAX))?;
    if top.is_some_and(|top| top > 0) && !request.logprobs {
        let what = "is for answers with log probabilities; set logprobs to true";
        return Err(Wrong::new(what).at("top_logprobs"));
    }
    request.top_logprobs = top.unwrap_or_default();
    Ok(())
}

/// None for text, which is what engines write anyway.
fn response_format(value: Json<'_>) -> Result<Option<ResponseFormat>, Wrong> {
    let mut format = value.object()?;
    let kind = format.need("type", Json::text)?;
    let made = match &*kind {
        "text" => return Ok(None),
        "json_object" => {
            ResponseFormat { kind: Kind::JsonObject.into(), ..ResponseFormat::default() }
        }
        "json_schema" => format.need("json_schema", json_schema)?,
        _ => ResponseFormat {
            kind: Kind::Other.into(),
            other_json: value.raw().into(),
            ..ResponseFormat::default()
        },
    };
    Ok(Some(made))
}

fn json_schema(value: Json<'_>) -> Result<ResponseFormat, Wrong> {
    let mut schema = value.object()?;
    schema.check("description", Json::text)?;
    Ok(ResponseFormat {
        kind: Kind::JsonSchema.into(),
        name: schema.need("name", Json::text)?,
        schema_json: schema.need("schema", object_as_written)?,
        strict: schema.boolean("strict")?,
        other_json: String::new(),
    })
}

/// The conversation and how the model is to go on; the same fields for `/tokenize`.
pub(crate) fn read_chat(body: &mut Object<'_>) -> Result<Chat, Wrong> {
    let messages = body.need("messages", |value| value.each(messages::message))?;
    if messages.is_empty() {
        return Err(Wrong::new("is empty; send one message at least").at("messages"));
    }
    let tools = body.read("tools", |value| value.each(tools::tool))?.unwrap_or_default();
    let tool_choice = body.read("tool_choice", |value| tools::choice(value, &tools))?;
    let kwargs = body.read("chat_template_kwargs", object_as_written)?;
    let chat = Chat {
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: body.boolean("parallel_tool_calls")?,
        reasoning_effort: body.read("reasoning_effort", effort)?.unwrap_or_default(),
        chat_template: body.text("chat_template")?.unwrap_or_default(),
        chat_template_kwargs_json: kwargs.unwrap_or_default(),
        add_generation_prompt: body.boolean("add_generation_prompt")?,
        continue_final_message: body.boolean("continue_final_message")?.unwrap_or(false),
    };
    if chat.continue_final_message && chat.add_generation_prompt == Some(true) {
        let what = "cannot be true together with add_generation_prompt";
        return Err(Wrong::new(what).at("continue_final_message"));
    }
    Ok(chat)
}

fn effort(value: Json<'_>) -> Result<String, Wrong> {
    let effort = value.text()?;
    if EFFORTS.contains(&&*effort) {
        return Ok(effort);
    }
    Err(Wrong::new(format!("is {effort:?}; allowed: {}", EFFORTS.join(", "))))
}
