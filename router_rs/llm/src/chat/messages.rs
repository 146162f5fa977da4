//! The messages of a conversation.

use crate::json::{Json, Object, Wrong};
use crate::messages::{ChatMessage, ContentPart, Part, ToolCall};

pub(super) fn message(value: Json<'_>) -> Result<ChatMessage, Wrong> {
    let mut fields = value.object()?;
    let role = fields.need("role", Json::text)?;
    let content = fields.read("content", content)?;
    match &*role {
        "" => return Err(Wrong::new("is empty").at("role")),
        "function" => {
            let what = "\"function\" is out of date and not served; use \"tool\"";
            return Err(Wrong::new(what).at("role"));
        }
        // An assistant may have called tools only, and a tool may have returned nothing.
        "system" | "developer" | "user" if content.is_none() => {
            return Err(Wrong::new("is missing").at("content"));
        }
        _ => {}
    }
    fields.refuse("function_call", "is out of date and not served; use tool_calls")?;
    let reasoning = fields.text("reasoning")?;
    // The older name of the same; a client that has got both sends both.
    let reasoning = fields.text("reasoning_content")?.or(reasoning);
    let tool_call_id = if role == "tool" {
        Some(fields.need("tool_call_id", Json::text)?)
    } else {
        fields.text("tool_call_id")?
    };
    Ok(ChatMessage {
        content: content.unwrap_or_default(),
        name: fields.text("name")?.unwrap_or_default(),
        tool_calls: fields.read("tool_calls", |calls| calls.each(call))?.unwrap_or_default(),
        tool_call_id: tool_call_id.unwrap_or_default(),
        reasoning: reasoning.unwrap_or_default(),
        role,
        other_json: other(fields),
    })
}

/// The fields that the document does not have. Null says nothing: clients send the messages back that they
/// were given, with a null for each field that was not set.
fn other(fields: Object<'_>) -> String {
    let nulls: Vec<String> = fields
        .fields()
        .filter(|(_, value)| value.is_null())
        .map(|(name, _)| name.to_owned())
        .collect();
    let mut fields = fields;
    for name in nulls {
        fields.take(&name);
    }
    fields.rest()
}

fn content(value: Json<'_>) -> Result<Vec<ContentPart>, Wrong> {
    if value.is_text() {
        let text = value.text()?;
        return Ok(vec![ContentPart { part: Some(Part::Text(text)) }]);
    }
    if !value.is_array() {
        return Err(value.not("a string or an array of parts"));
    }
    value.each(part)
}

fn part(value: Json<'_>) -> Result<ContentPart, Wrong> {
    if value.is_text() {
        let text = value.text()?;
        return Ok(ContentPart { part: Some(Part::Text(text)) });
    }
    let mut fields = value.object()?;
    let kind = fields.need("type", Json::text)?;
    let part = match &*kind {
        "text" => Part::Text(fields.need("text", Json::text)?),
        "refusal" => Part::Text(fields.need("refusal", Json::text)?),
        _ => Part::Json(value.raw().into()),
    };
    Ok(ContentPart { part: Some(part) })
}

fn call(value: Json<'_>) -> Result<ToolCall, Wrong> {
    let mut fields = value.object()?;
    let kind = fields.text("type")?;
    let id = fields.need("id", Json::text)?;
    match kind.as_deref().unwrap_or("function") {
        "function" => fields.need("function", |function| {
            let mut function = function.object()?;
            let name = function.need("name", Json::text)?;
            let arguments = function.read("arguments", Json::text)?.unwrap_or_default();
            Ok(ToolCall { id, name, arguments })
        }),
        "custom" => fields.need("custom", |custom| {
            let mut custom = custom.object()?;
            let name = custom.need("name", Json::text)?;
            Ok(ToolCall { id, name, arguments: custom.need("input", Json::text)? })
        }),
        other => {
            let what = format!("is {other:?}; allowed: function, custom");
            Err(Wrong::new(what).at("type"))
        }
    }
}
