//! The input items of Responses, as messages of a chat.

use serde::Serialize;

use crate::dialogue::{Dialogue, json_part, text_part};
use crate::json::{Json, Object, Wrong, to_json};
use crate::messages::{ChatMessage, ContentPart, ToolCall};

/// Reads the items of a request.
///
/// What the model has thought, said and called in one turn are items of their own there, and one
/// message for the engine.
#[derive(Debug, Default)]
pub(super) struct Items {
    dialogue: Dialogue,
}

impl Items {
    pub(super) fn finish(self) -> Vec<ChatMessage> {
        self.dialogue.messages
    }

    pub(super) fn add_instructions(&mut self, instructions: Json<'_>) -> Result<(), Wrong> {
        let text = instructions.text()?;
        self.dialogue.begin("system").content.push(text_part(text));
        Ok(())
    }

    /// A string, or an array of items.
    pub(super) fn add_input(&mut self, input: Json<'_>) -> Result<(), Wrong> {
        if input.is_text() {
            self.dialogue.begin("user").content.push(text_part(input.text()?));
            return Ok(());
        }
        if !input.is_array() {
            return Err(input.not("a string or an array"));
        }
        if input.items()?.is_empty() {
            return Err(Wrong::new("is empty; at least one item is needed"));
        }
        input.each(|item| self.add_item(item)).map(drop)
    }

    fn add_item(&mut self, json: Json<'_>) -> Result<(), Wrong> {
        let mut item = json.object()?;
        let kind = item.text("type")?;
        match kind.as_deref() {
            Some("message") => self.add_message(item),
            None if item.peek("role").is_some() => self.add_message(item),
            Some("function_call") => self.add_call(item),
            Some("function_call_output") => self.add_output(item),
            Some("reasoning") => self.add_reasoning(item),
            None => Err(Wrong::new("is missing").at("type")),
            Some("item_reference") => {
                let what =
                    "is \"item_reference\": this server keeps no items; send the item itself";
                Err(Wrong::new(what).at("type"))
            }
            Some(kind) => {
                let what = format!(
                    "is {kind:?}, which is not supported; allowed: message, function_call, \
                     function_call_output, reasoning"
                );
                Err(Wrong::new(what).at("type"))
            }
        }
    }

    fn add_message(&mut self, mut item: Object<'_>) -> Result<(), Wrong> {
        let role = item.need("role", Json::text)?;
        if !matches!(&*role, "user" | "assistant" | "system" | "developer") {
            let what = format!("is {role:?}; allowed: user, assistant, system, developer");
            return Err(Wrong::new(what).at("role"));
        }
        let content = item.need("content", read_content)?;
        // The assistant has only thought so far.
        let goes_on = role == "assistant"
            && self
                .dialogue
                .last_is(&role, |last| last.content.is_empty() && last.tool_calls.is_empty());
        let message = if goes_on { self.dialogue.turn(&role) } else { self.dialogue.begin(&role) };
        message.content = content;
        Ok(())
    }

    fn add_call(&mut self, mut item: Object<'_>) -> Result<(), Wrong> {
        let id = item.need("call_id", Json::text)?;
        let name = item.need("name", Json::text)?;
        let arguments = item.need("arguments", Json::text)?;
        let call = ToolCall { id, name, arguments };
        self.dialogue.turn("assistant").tool_calls.push(call);
        Ok(())
    }

    fn add_output(&mut self, mut item: Object<'_>) -> Result<(), Wrong> {
        let tool_call_id = item.need("call_id", Json::text)?;
        let content = item.need("output", read_content)?;
        let message = self.dialogue.begin("tool");
        message.tool_call_id = tool_call_id;
        message.content = content;
        Ok(())
    }

    /// The thoughts themselves, or a summary of them if that is all there is.
    fn add_reasoning(&mut self, mut item: Object<'_>) -> Result<(), Wrong> {
        let content = item.read("content", read_thoughts)?.unwrap_or_default();
        let summary = item.read("summary", read_thoughts)?.unwrap_or_default();
        let is_new_turn = self
            .dialogue
            .last_is("assistant", |last| !last.content.is_empty() || !last.tool_calls.is_empty());
        let message = if is_new_turn {
            self.dialogue.begin("assistant")
        } else {
            self.dialogue.turn("assistant")
        };
        message.reasoning.push_str(if content.is_empty() { &summary } else { &content });
        Ok(())
    }
}

fn read_thoughts(json: Json<'_>) -> Result<String, Wrong> {
    let texts = json.each(|part| part.object()?.need("text", Json::text))?;
    Ok(texts.join("\n"))
}

fn read_content(content: Json<'_>) -> Result<Vec<ContentPart>, Wrong> {
    if content.is_text() {
        return Ok(vec![text_part(content.text()?)]);
    }
    if !content.is_array() {
        return Err(content.not("a string or an array"));
    }
    content.each(read_part)
}

fn read_part(json: Json<'_>) -> Result<ContentPart, Wrong> {
    let mut part = json.object()?;
    let kind = part.need("type", Json::text)?;
    match &*kind {
        "input_text" | "output_text" | "text" => Ok(text_part(part.need("text", Json::text)?)),
        "refusal" => Ok(text_part(part.need("refusal", Json::text)?)),
        "input_image" => read_image(part),
        "input_file" => read_file(part),
        "input_audio" => Ok(json_part(json.raw().to_owned())),
        _ => {
            let what = format!(
                "is {kind:?}; allowed: input_text, input_image, input_file, input_audio, \
                 output_text, refusal"
            );
            Err(Wrong::new(what).at("type"))
        }
    }
}

fn refuse_file_id(part: &mut Object<'_>) -> Result<(), Wrong> {
    part.refuse("file_id", "is not supported: this server keeps no files; send the file itself")
}

/// An image as chat has it, which is what engines read.
fn read_image(mut part: Object<'_>) -> Result<ContentPart, Wrong> {
    #[derive(Serialize)]
    struct Image {
        r#type: &'static str,
        image_url: Url,
    }
    #[derive(Serialize)]
    struct Url {
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    }
    refuse_file_id(&mut part)?;
    let url = part.need("image_url", Json::text)?;
    let image_url = Url { url, detail: part.text("detail")? };
    Ok(json_part(to_json(&Image { r#type: "image_url", image_url })))
}

fn read_file(mut part: Object<'_>) -> Result<ContentPart, Wrong> {
    #[derive(Serialize)]
    struct FilePart {
        r#type: &'static str,
        file: File,
    }
    #[derive(Serialize)]
    struct File {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        file_data: String,
    }
    refuse_file_id(&mut part)?;
    part.refuse("file_url", "is not supported: this server fetches no files; send file_data")?;
    let file_data = part.need("file_data", Json::text)?;
    let file = File { filename: part.text("filename")?, file_data };
    Ok(json_part(to_json(&FilePart { r#type: "file", file })))
}
