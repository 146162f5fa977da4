//! The tools that a model may call.

use crate::json::{Json, Object, Wrong, object_as_written};
use crate::messages::{Mode, Tool, ToolChoice};

pub(super) fn tool(value: Json<'_>) -> Result<Tool, Wrong> {
    let mut fields = value.object()?;
    let kind = fields.need("type", Json::text)?;
    if kind != "function" {
        let name = fields.read(&kind, |inner| inner.object()?.text("name"))?.flatten();
        let other_json = value.raw().into();
        return Ok(Tool { name: name.unwrap_or_default(), other_json, ..Tool::default() });
    }
    fields.need("function", |function| {
        let mut function = function.object()?;
        let parameters = function.read("parameters", object_as_written)?;
        Ok(Tool {
            name: function.need("name", Json::text)?,
            description: function.text("description")?.unwrap_or_default(),
            parameters_json: parameters.unwrap_or_default(),
            strict: function.boolean("strict")?,
            other_json: String::new(),
        })
    })
}

pub(super) fn choice(value: Json<'_>, tools: &[Tool]) -> Result<ToolChoice, Wrong> {
    let choice = if value.is_text() { by_mode(&value.text()?)? } else { by_name(value.object()?)? };
    check_choice(choice, tools)
}

/// # Errors
/// The tool is not there.
pub(crate) fn check_choice(choice: ToolChoice, tools: &[Tool]) -> Result<ToolChoice, Wrong> {
    if matches!(choice.mode(), Mode::Required | Mode::Named) && tools.is_empty() {
        return Err(Wrong::new("asks for a tool, and there are no tools"));
    }
    if choice.mode() == Mode::Named && !tools.iter().any(|tool| tool.name == choice.name) {
        return Err(Wrong::new(format!("names {:?}, which is not among the tools", choice.name)));
    }
    Ok(choice)
}

fn by_mode(mode: &str) -> Result<ToolChoice, Wrong> {
    let mode = match mode {
        "auto" => Mode::Unspecified,
        "none" => Mode::None,
        "required" => Mode::Required,
        other => {
            let what = format!("is {other:?}; allowed: auto, none, required, or a tool's name");
            return Err(Wrong::new(what));
        }
    };
    Ok(ToolChoice { mode: mode.into(), name: String::new() })
}

fn by_name(mut fields: Object<'_>) -> Result<ToolChoice, Wrong> {
    let kind = fields.need("type", Json::text)?;
    if !matches!(&*kind, "function" | "custom") {
        let what = format!("is {kind:?}, which is not served; allowed: function, custom");
        return Err(Wrong::new(what).at("type"));
    }
    let name = fields.need(&kind, |inner| inner.object()?.need("name", Json::text))?;
    Ok(ToolChoice { mode: Mode::Named.into(), name })
}
