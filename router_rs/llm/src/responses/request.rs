//! Reads a request of OpenAI's Responses API.

use crate::chat::check_choice;
use crate::json::{Json, Object, Wrong, object_as_written, to_json};
use crate::messages::{
    Chat, GenerateInput, GenerateRequest, Kind, Mode, ResponseFormat, Tool, ToolChoice,
};
use crate::sampling::{refuse_choices, sampling};

use super::echo::Echo;
use super::input::Items;

const TOP_LOGPROBS_MAX: i32 = 20;

/// What `include` may name. All but logprobs concern tools that are not run here, or reasoning,
/// which is never encrypted.
const INCLUDABLE: &[&str] = &[
    LOGPROBS,
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];
const LOGPROBS: &str = "message.output_text.logprobs";

/// A parsed request of Responses.
#[derive(Debug)]
pub(crate) struct ResponsesRequest {
    pub(super) model: Option<String>,
    pub(super) generate: GenerateRequest,
    pub(super) parallel_calls: bool,
    pub(super) echo: Echo,
}

impl ResponsesRequest {
    /// # Errors
    /// A field is missing or invalid, or refers to state that this server does not store.
    pub(crate) fn read(body: Json<'_>) -> Result<Self, Wrong> {
        let mut body = body.object()?;
        refuse_state(&mut body)?;
        refuse_choices(&mut body)?;
        let echo = Echo::read(&body);
        let model = body.text("model")?;
        let chat = read_chat(&mut body)?;
        let (response_format, verbosity) = body.read("text", read_text)?.unwrap_or_default();
        let parallel_calls = chat.parallel_tool_calls.unwrap_or(true);
        let top_logprobs = body.read("top_logprobs", |json| json.integer(0, TOP_LOGPROBS_MAX))?;
        let includes_logprobs = body.read("include", read_include)?.unwrap_or_default();
        let max_tokens = body.read("max_output_tokens", |json| json.integer(1, i32::MAX))?;
        let stream = body.boolean("stream")?.unwrap_or_default();
        drop_what_says_nothing(&mut body)?;
        let generate = GenerateRequest {
            input: Some(GenerateInput::Chat(chat)),
            sampling: Some(sampling(&mut body)?),
            max_tokens: max_tokens.unwrap_or_default().cast_unsigned(),
            logprobs: includes_logprobs,
            top_logprobs: top_logprobs.filter(|_| includes_logprobs).unwrap_or(0).cast_unsigned(),
            response_format,
            stream,
            user: read_user(&mut body)?,
            other_json: with_verbosity(body.rest(), verbosity),
            ..GenerateRequest::default()
        };
        Ok(Self { model, generate, parallel_calls, echo })
    }
}

/// Rejects fields that need stored responses.
fn refuse_state(body: &mut Object<'_>) -> Result<(), Wrong> {
    let why = "is not supported: this server keeps no responses; send the whole input again";
    body.refuse("previous_response_id", why)?;
    body.refuse("conversation", why)?;
    body.refuse("prompt", "is not supported: this server keeps no prompts; send the text itself")?;
    if body.boolean("background")?.unwrap_or_default() {
        let what = "is not supported: this server keeps no responses; leave it out, or stream";
        return Err(Wrong::new(what).at("background"));
    }
    let truncation = body.text("truncation")?;
    if let Some(other) = truncation.filter(|truncation| truncation != "disabled") {
        let what = format!("is {other:?}, which is not supported; allowed: disabled");
        return Err(Wrong::new(what).at("truncation"));
    }
    Ok(())
}

/// Fields about keeping and about tools that are not run here, with the right types; nothing here
/// depends on them.
fn drop_what_says_nothing(body: &mut Object<'_>) -> Result<(), Wrong> {
    body.boolean("store")?;
    body.read("metadata", |json| json.object().map(drop))?;
    body.read("stream_options", |json| json.object().map(drop))?;
    body.read("max_tool_calls", |json| json.integer(1, i32::MAX))?;
    // These are fields of chat as well, so an engine may know them.
    for name in ["service_tier", "prompt_cache_key", "prompt_cache_retention"] {
        body.check(name, Json::text)?;
    }
    Ok(())
}

fn read_user(body: &mut Object<'_>) -> Result<String, Wrong> {
    let identifier = body.text("safety_identifier")?;
    Ok(body.text("user")?.or(identifier).unwrap_or_default())
}

fn read_chat(body: &mut Object<'_>) -> Result<Chat, Wrong> {
    let mut items = Items::default();
    body.read("instructions", |instructions| items.add_instructions(instructions))?;
    body.need("input", |input| items.add_input(input))?;
    let tools = body.read("tools", |tools| tools.each(read_tool))?.unwrap_or_default();
    let tool_choice = body.read("tool_choice", |choice| read_tool_choice(choice, &tools))?;
    Ok(Chat {
        messages: items.finish(),
        tool_choice,
        tools,
        parallel_tool_calls: body.boolean("parallel_tool_calls")?,
        reasoning_effort: body.read("reasoning", read_effort)?.flatten().unwrap_or_default(),
        chat_template_kwargs_json: body
            .read("chat_template_kwargs", object_as_written)?
            .unwrap_or_default(),
        ..Chat::default()
    })
}

fn read_tool(json: Json<'_>) -> Result<Tool, Wrong> {
    let mut tool = json.object()?;
    let kind = tool.need("type", Json::text)?;
    if kind != "function" {
        let what = format!("is {kind:?}, which this server does not run; allowed: function");
        return Err(Wrong::new(what).at("type"));
    }
    Ok(Tool {
        name: tool.need("name", Json::text)?,
        description: tool.text("description")?.unwrap_or_default(),
        parameters_json: tool.read("parameters", object_as_written)?.unwrap_or_default(),
        strict: tool.boolean("strict")?,
        other_json: String::new(),
    })
}

fn read_tool_choice(json: Json<'_>, tools: &[Tool]) -> Result<ToolChoice, Wrong> {
    let (mode, name) = if json.is_text() {
        (by_mode(&json.text()?)?, String::new())
    } else {
        let mut choice = json.object()?;
        let kind = choice.need("type", Json::text)?;
        if kind != "function" {
            let what = format!("is {kind:?}, which is not supported; allowed: function");
            return Err(Wrong::new(what).at("type"));
        }
        (Mode::Named, choice.need("name", Json::text)?)
    };
    check_choice(ToolChoice { mode: mode.into(), name }, tools)
}

fn by_mode(mode: &str) -> Result<Mode, Wrong> {
    match mode {
        "auto" => Ok(Mode::Unspecified),
        "none" => Ok(Mode::None),
        "required" => Ok(Mode::Required),
        _ => {
            let what = format!("is {mode:?}; allowed: auto, none, required, or a function");
            Err(Wrong::new(what))
        }
    }
}

/// The format and the verbosity of the text.
fn read_text(json: Json<'_>) -> Result<(Option<ResponseFormat>, Option<String>), Wrong> {
    let mut text = json.object()?;
    let format = text.read("format", read_format)?.flatten();
    Ok((format, text.text("verbosity")?))
}

/// Chat has it as a field of its own, which engines that do not know it pass over.
fn with_verbosity(other: String, verbosity: Option<String>) -> String {
    let Some(verbosity) = verbosity else { return other };
    let field = format!("{{\"verbosity\":{}", to_json(&verbosity));
    match other.strip_prefix('{') {
        Some(others) => format!("{field},{others}"),
        None => field + "}",
    }
}

/// `None`: plain text.
fn read_format(json: Json<'_>) -> Result<Option<ResponseFormat>, Wrong> {
    let mut format = json.object()?;
    let kind = format.need("type", Json::text)?;
    Ok(Some(match &*kind {
        "text" => return Ok(None),
        "json_object" => {
            ResponseFormat { kind: Kind::JsonObject.into(), ..ResponseFormat::default() }
        }
        "json_schema" => ResponseFormat {
            kind: Kind::JsonSchema.into(),
            name: format.need("name", Json::text)?,
            schema_json: format.need("schema", object_as_written)?,
            strict: format.boolean("strict")?,
            other_json: String::new(),
        },
        _ => ResponseFormat {
            kind: Kind::Other.into(),
            other_json: json.raw().to_owned(),
            ..ResponseFormat::default()
        },
    }))
}

fn read_effort(json: Json<'_>) -> Result<Option<String>, Wrong> {
    json.object()?.text("effort")
}

/// Whether logprobs are included.
fn read_include(json: Json<'_>) -> Result<bool, Wrong> {
    let names = json.each(|name| {
        let name = name.text()?;
        if !INCLUDABLE.contains(&&*name) {
            return Err(Wrong::new(format!("is {name:?}; allowed: {}", INCLUDABLE.join(", "))));
        }
        Ok(name)
    })?;
    Ok(names.iter().any(|name| name == LOGPROBS))
}
