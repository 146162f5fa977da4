//! Reads a request of Anthropic's Messages API.

use crate::chat::check_choice;
use crate::json::{Json, Object, Wrong, object_as_written};
use crate::messages::{
    Chat, GenerateInput, GenerateRequest, Kind, Mode, ResponseFormat, Tool, ToolChoice,
};
use crate::sampling::{refuse_choices, sampling};

use super::content::Turns;

/// As for the other APIs: engines have no limit of their own, and each sequence costs time.
const STOP_SEQUENCES_MAX: usize = 16;

/// About billing, Anthropic's caches and its own bookkeeping. Engines behind another server's URL may
/// refuse a request that has such fields.
const SAYS_NOTHING: &[&str] = &[
    "betas",
    "cache_control",
    "context_management",
    "diagnostics",
    "inference_geo",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
];

/// A parsed request of Messages.
#[derive(Debug)]
pub(crate) struct MessagesRequest {
    pub(crate) model: Option<String>,
    pub(super) generate: GenerateRequest,
    pub(super) thinking: Thinking,
    pub(super) parallel_calls: bool,
}

/// Whether the client gets what the model thinks. The API shows nothing that was not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Thinking {
    #[default]
    Hidden,
    Shown,
    /// That it thinks, but not what.
    Omitted,
}

impl MessagesRequest {
    /// # Errors
    /// A field is missing, or is not what the API's document says.
    pub(crate) fn read(body: Json<'_>) -> Result<Self, Wrong> {
        let mut body = body.object()?;
        let model = body.text("model")?;
        refuse_what_others_run(&mut body)?;
        refuse_choices(&mut body)?;
        let max_tokens = body.need("max_tokens", max_tokens)?;
        let thinking = read_thinking(&body)?;
        let chat = read_chat(&mut body)?;
        let (chat, response_format) = read_output_config(&mut body, chat)?;
        let parallel_calls = chat.parallel_tool_calls.unwrap_or(true);
        let generate = GenerateRequest {
            input: Some(GenerateInput::Chat(chat)),
            sampling: Some(sampling(&mut body)?),
            max_tokens,
            stop: body.read("stop_sequences", read_stop)?.unwrap_or_default(),
            response_format,
            stream: body.boolean("stream")?.unwrap_or_default(),
            user: body.read("metadata", read_user)?.flatten().unwrap_or_default(),
            other_json: body.rest(),
            ..GenerateRequest::default()
        };
        Ok(Self { model, generate, thinking, parallel_calls })
    }
}

/// The model and the chat of a request whose tokens are to be counted.
pub(super) fn read_countable(body: Json<'_>) -> Result<(Option<String>, Chat), Wrong> {
    let mut body = body.object()?;
    let model = body.text("model")?;
    refuse_what_others_run(&mut body)?;
    read_thinking(&body)?;
    let chat = read_chat(&mut body)?;
    let (chat, _) = read_output_config(&mut body, chat)?;
    Ok((model, chat))
}

/// At least one: to the engine, zero means as many as there is room for.
fn max_tokens(json: Json<'_>) -> Result<u32, Wrong> {
    json.integer(1, i32::MAX).map(i32::cast_unsigned)
}

/// Containers and MCP servers are run by Anthropic.
fn refuse_what_others_run(body: &mut Object<'_>) -> Result<(), Wrong> {
    for name in ["container", "mcp_servers"] {
        if body.peek(name).is_some_and(|value| value.raw() == "[]") {
            body.take(name);
        }
        body.refuse(name, "is not supported: this server runs no tools; leave it out")?;
    }
    for name in SAYS_NOTHING {
        body.take(name);
    }
    Ok(())
}

fn read_chat(body: &mut Object<'_>) -> Result<Chat, Wrong> {
    let mut turns = Turns::default();
    body.read("system", |system| turns.add_content("system", system))?;
    body.need("messages", |messages| {
        if messages.items()?.is_empty() {
            return Err(Wrong::new("is empty; at least one message is needed"));
        }
        messages.each(|message| turns.add_message(message))
    })?;
    let tools = body.read("tools", |tools| tools.each(read_tool))?.unwrap_or_default();
    let choice = body.read("tool_choice", |choice| read_tool_choice(choice, &tools))?;
    let (tool_choice, parallel_tool_calls) = choice.unwrap_or_default();
    let (messages, continues) = turns.finish();
    Ok(Chat {
        messages,
        tools,
        tool_choice,
        parallel_tool_calls,
        add_generation_prompt: continues.then_some(false),
        continue_final_message: continues,
        chat_template_kwargs_json: read_template_kwargs(body)?,
        ..Chat::default()
    })
}

fn read_tool(json: Json<'_>) -> Result<Tool, Wrong> {
    let mut tool = json.object()?;
    let kind = tool.text("type")?;
    if let Some(kind) = kind.filter(|kind| kind != "custom") {
        let what = format!("is {kind:?}, which is not supported; give tools with an input_schema");
        return Err(Wrong::new(what).at("type"));
    }
    Ok(Tool {
        name: tool.need("name", Json::text)?,
        description: tool.text("description")?.unwrap_or_default(),
        parameters_json: tool.need("input_schema", object_as_written)?,
        strict: tool.boolean("strict")?,
        other_json: String::new(),
    })
}

/// The choice, and whether there may be several calls.
fn read_tool_choice(
    json: Json<'_>,
    tools: &[Tool],
) -> Result<(Option<ToolChoice>, Option<bool>), Wrong> {
    let mut choice = json.object()?;
    let kind = choice.need("type", Json::text)?;
    let disables_parallel = choice.boolean("disable_parallel_tool_use")?;
    let (mode, name) = match &*kind {
        "auto" => return Ok((None, disables_parallel.map(|disables| !disables))),
        "any" => (Mode::Required, String::new()),
        "none" => (Mode::None, String::new()),
        "tool" => (Mode::Named, choice.need("name", Json::text)?),
        _ => {
            let what = format!("is {kind:?}; allowed: auto, any, tool, none");
            return Err(Wrong::new(what).at("type"));
        }
    };
    let choice = check_choice(ToolChoice { mode: mode.into(), name }, tools)?;
    Ok((Some(choice), disables_parallel.map(|disables| !disables)))
}

/// The field stays: engines that can keep the model to its budget find it there.
fn read_thinking(body: &Object<'_>) -> Result<Thinking, Wrong> {
    let read = |json: Json<'_>| {
        let mut thinking = json.object()?;
        let kind = thinking.need("type", Json::text)?;
        let omits = thinking.text("display")?.is_some_and(|display| display == "omitted");
        match &*kind {
            "enabled" | "adaptive" | "between_tools" if omits => Ok(Thinking::Omitted),
            "enabled" | "adaptive" | "between_tools" => Ok(Thinking::Shown),
            "disabled" => Ok(Thinking::Hidden),
            _ => {
                let allowed = "enabled, adaptive, between_tools, disabled";
                let what = format!("is {kind:?}; allowed: {allowed}");
                Err(Wrong::new(what).at("type"))
            }
        }
    };
    let thinking = body.peek("thinking").map(read).transpose();
    thinking.map(Option::unwrap_or_default).map_err(|wrong| wrong.at("thinking"))
}

/// Templates of models that can think know `enable_thinking`. Without `thinking` the model's own
/// default holds.
fn read_template_kwargs(body: &mut Object<'_>) -> Result<String, Wrong> {
    let kwargs = body.read("chat_template_kwargs", object_as_written)?.unwrap_or_default();
    let Some(thinking) = body.peek("thinking") else {
        return Ok(kwargs);
    };
    let enables = thinking.object()?.peek("type").is_none_or(|kind| kind.raw() != "\"disabled\"");
    let own = kwargs.trim_start_matches('{').trim();
    let separator = if own.is_empty() || own == "}" { "" } else { "," };
    let own = if own.is_empty() { "}" } else { own };
    // Of fields with one name the last one counts, so the client's own wins.
    Ok(format!("{{\"enable_thinking\":{enables}{separator}{own}"))
}

fn read_output_config(
    body: &mut Object<'_>,
    chat: Chat,
) -> Result<(Chat, Option<ResponseFormat>), Wrong> {
    let read = |json: Json<'_>| {
        let mut config = json.object()?;
        let effort = config.text("effort")?.unwrap_or_default();
        Ok((effort, config.read("format", read_format)?))
    };
    let (reasoning_effort, format) = body.read("output_config", read)?.unwrap_or_default();
    // As it was called at first.
    let format = body.read("output_format", read_format)?.or(format);
    Ok((Chat { reasoning_effort, ..chat }, format))
}

fn read_format(json: Json<'_>) -> Result<ResponseFormat, Wrong> {
    let mut format = json.object()?;
    let kind = format.need("type", Json::text)?;
    if kind != "json_schema" {
        return Err(Wrong::new(format!("is {kind:?}; allowed: json_schema")).at("type"));
    }
    Ok(ResponseFormat {
        kind: Kind::JsonSchema.into(),
        name: "output".into(),
        schema_json: format.need("schema", object_as_written)?,
        strict: Some(true),
        other_json: String::new(),
    })
}

fn read_stop(json: Json<'_>) -> Result<Vec<String>, Wrong> {
    let stop = json.each(|sequence| {
        let sequence = sequence.text()?;
        if sequence.is_empty() {
            return Err(Wrong::new("is empty; every text would end at once"));
        }
        Ok(sequence)
    })?;
    if stop.len() > STOP_SEQUENCES_MAX {
        let what = format!("has {} sequences; allowed: {STOP_SEQUENCES_MAX}", stop.len());
        return Err(Wrong::new(what));
    }
    Ok(stop)
}

fn read_user(json: Json<'_>) -> Result<Option<String>, Wrong> {
    json.object()?.text("user_id")
}
