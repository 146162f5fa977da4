//! The content blocks of Messages, as messages of a chat.

use serde::Serialize;

use crate::dialogue::{Dialogue, json_part, text_part};
use crate::json::{Json, Object, Wrong, to_json};
use crate::messages::{ChatMessage, ContentPart, ToolCall};

/// Reads the turns of a request.
///
/// Turns of one role in a row become one message, as the API's document has it. Results of tools,
/// which are blocks of a user's message there, are messages of their own.
#[derive(Debug, Default)]
pub(super) struct Turns {
    dialogue: Dialogue,
}

impl Turns {
    pub(super) fn add_message(&mut self, json: Json<'_>) -> Result<(), Wrong> {
        let mut message = json.object()?;
        let role = message.need("role", Json::text)?;
        if !matches!(&*role, "user" | "assistant" | "system") {
            let what = format!("is {role:?}; allowed: user, assistant, system");
            return Err(Wrong::new(what).at("role"));
        }
        message.need("content", |content| self.add_content(&role, content))
    }

    /// A string, or an array of blocks.
    pub(super) fn add_content(&mut self, role: &str, content: Json<'_>) -> Result<(), Wrong> {
        if content.is_text() {
            self.dialogue.turn(role).content.push(text_part(content.text()?));
            return Ok(());
        }
        if !content.is_array() {
            return Err(content.not("a string or an array"));
        }
        // A message without any block is a turn as well.
        self.dialogue.turn(role);
        content.each(|block| self.add_block(role, block)).map(drop)
    }

    /// All messages, and whether the model is to go on with what it has said last.
    pub(super) fn finish(self) -> (Vec<ChatMessage>, bool) {
        let continues = self.dialogue.last_is("assistant", |last| last.tool_calls.is_empty());
        (self.dialogue.messages, continues)
    }

    fn add_block(&mut self, role: &str, json: Json<'_>) -> Result<(), Wrong> {
        let mut block = json.object()?;
        let kind = block.need("type", Json::text)?;
        match (&*kind, role) {
            ("thinking", "assistant") => {
                let thinking = block.need("thinking", Json::text)?;
                self.dialogue.turn(role).reasoning.push_str(&thinking);
            }
            // Only Anthropic can read it.
            ("redacted_thinking", "assistant") => {}
            ("tool_use", "assistant") => {
                let call = read_tool_use(block)?;
                self.dialogue.turn(role).tool_calls.push(call);
            }
            ("tool_result", "user") => self.add_tool_result(block)?,
            _ => {
                let parts = read_parts(json, &kind, block)?;
                self.dialogue.turn(role).content.extend(parts);
            }
        }
        Ok(())
    }

    fn add_tool_result(&mut self, mut block: Object<'_>) -> Result<(), Wrong> {
        let tool_call_id = block.need("tool_use_id", Json::text)?;
        let content = block.read("content", read_content)?.unwrap_or_default();
        let is_error = block.boolean("is_error")?.unwrap_or_default();
        let other_json = if is_error { r#"{"is_error":true}"# } else { "" };
        // The user's turn that the result is in has no content of its own so far.
        self.dialogue.messages.pop_if(|last| last.role == "user" && last.content.is_empty());
        let message = self.dialogue.begin("tool");
        message.content = content;
        message.tool_call_id = tool_call_id;
        message.other_json = other_json.into();
        Ok(())
    }
}

fn read_tool_use(mut block: Object<'_>) -> Result<ToolCall, Wrong> {
    let id = block.need("id", Json::text)?;
    let name = block.need("name", Json::text)?;
    let arguments = block.need("input", |input| {
        if !input.is_object() {
            return Err(input.not("an object"));
        }
        Ok(input.raw().to_owned())
    })?;
    Ok(ToolCall { id, name, arguments })
}

/// Content inside of a block: a string, or an array of blocks that have content only.
fn read_content(content: Json<'_>) -> Result<Vec<ContentPart>, Wrong> {
    if content.is_text() {
        return Ok(vec![text_part(content.text()?)]);
    }
    if !content.is_array() {
        return Err(content.not("a string or an array"));
    }
    let parts = content.each(|json| {
        let mut block = json.object()?;
        let kind = block.need("type", Json::text)?;
        read_parts(json, &kind, block)
    })?;
    Ok(parts.into_iter().flatten().collect())
}

fn read_parts(
    json: Json<'_>,
    kind: &str,
    mut block: Object<'_>,
) -> Result<Vec<ContentPart>, Wrong> {
    match kind {
        "text" => Ok(vec![text_part(block.need("text", Json::text)?)]),
        "image" => Ok(vec![json_part(block.need("source", read_image)?)]),
        "document" => {
            let text = block.need("source", read_document)?;
            Ok(text.unwrap_or_else(|| vec![json_part(json.raw().to_owned())]))
        }
        "search_result" => block.need("content", read_content),
        _ => {
            let what = format!("is {kind:?}, which has no place or meaning here");
            Err(Wrong::new(what).at("type"))
        }
    }
}

/// An image as OpenAI's chat has it, which is what engines read.
fn read_image(json: Json<'_>) -> Result<String, Wrong> {
    #[derive(Serialize)]
    struct Image {
        r#type: &'static str,
        image_url: Url,
    }
    #[derive(Serialize)]
    struct Url {
        url: String,
    }
    let mut source = json.object()?;
    let kind = source.need("type", Json::text)?;
    let url = match &*kind {
        "url" => source.need("url", Json::text)?,
        "base64" => {
            let media_type = source.need("media_type", Json::text)?;
            format!("data:{media_type};base64,{}", source.need("data", Json::text)?)
        }
        _ => {
            let what = format!("is {kind:?}; allowed: base64, url (this server keeps no files)");
            return Err(Wrong::new(what).at("type"));
        }
    };
    Ok(to_json(&Image { r#type: "image_url", image_url: Url { url } }))
}

/// The content of a document that is text; `None`: the engine may know how to read it.
fn read_document(json: Json<'_>) -> Result<Option<Vec<ContentPart>>, Wrong> {
    let mut source = json.object()?;
    let kind = source.need("type", Json::text)?;
    match &*kind {
        "text" => Ok(Some(vec![text_part(source.need("data", Json::text)?)])),
        "content" => source.need("content", read_content).map(Some),
        "file" => {
            let what = "is \"file\": this server keeps no files; send the document itself";
            Err(Wrong::new(what).at("type"))
        }
        _ => Ok(None),
    }
}
