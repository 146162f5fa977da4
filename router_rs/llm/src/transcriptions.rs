//! OpenAI's transcriptions (platform.openai.com/docs/api-reference/audio/createTranscription): a
//! request is a form with a file, the answer its text as one object, as plain text or as events.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use prost::Message;
use router_protocol::grpc::Status;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::errors::{ApiError, Dialect};
use crate::events::put_json;
use crate::generation::{Expected, Generation};
use crate::hold::Stops;
use crate::json::{Wrong, to_json};
use crate::messages::{TokenLogprob, TranscribeRequest, Usage};
use crate::multipart::{Field, read_form};
use crate::parts::{Kind, Part, Parts, WriteParts};
use crate::request::ApiRequest;
use crate::turn::{Ending, Turn};
use crate::turn_answers::{ErrorForm, TurnStream, WholeTurn, WriteTurn, WriteWholeTurn};
use crate::write::{JSON, put, put_text};
use crate::{Answer, Opened, Resolved, TRANSCRIBE};

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

#[derive(Debug)]
pub(crate) struct TranscriptionRequest {
    model: Option<String>,
    request: TranscribeRequest,
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Json,
    Text,
}

/// Writes the text as events.
#[derive(Debug)]
struct TextEvents;

#[derive(Serialize)]
struct Transcript<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
}

#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "the API's document has these names")]
struct Tokens {
    r#type: &'static str,
    input_tokens: u32,
    output_tokens: u32,
    total_tokens: u32,
}

// === impl TranscriptionRequest ===

impl TranscriptionRequest {
    /// # Errors
    /// The body is not a form, or one of its fields is missing or invalid.
    pub(crate) fn read(headers: &HeaderMap, body: &Bytes) -> Result<Self, Wrong> {
        let (model, request, format) = Default::default();
        let mut read = Self { model, request, format };
        let (mut other, mut has_file) = (Map::new(), false);
        for field in read_form(headers, body)? {
            if field.name == "file" {
                has_file = true;
                read.request.audio = field.data;
                read.request.filename = field.filename.unwrap_or_default();
                read.request.content_type = field.content_type.unwrap_or_default();
            } else {
                let text = text_of(&field)?;
                read.add(&field.name, text, &mut other).map_err(|wrong| wrong.at(&field.name))?;
            }
        }
        if !has_file || read.request.audio.is_empty() {
            let what = if has_file { "is empty; send the audio" } else { "is missing" };
            return Err(Wrong::new(what).at("file"));
        }
        if !other.is_empty() {
            read.request.other_json = to_json(&other);
        }
        Ok(read)
    }

    fn add(
        &mut self,
        name: &str,
        text: String,
        other: &mut Map<String, Value>,
    ) -> Result<(), Wrong> {
        match name {
            "model" => self.model = Some(text),
            "language" => self.request.language = text,
            "prompt" => self.request.prompt = text,
            "temperature" => self.request.temperature = Some(temperature(&text)?),
            "stream" => self.request.stream = boolean(&text)?,
            "timestamp_granularities[]" | "timestamp_granularities" => {
                self.request.timestamp_granularities.push(text);
            }
            "response_format" => {
                self.format = Format::read(&text)?;
                self.request.response_format = text;
            }
            "include[]" | "include" => {
                return Err(Wrong::new("is not supported: no log probabilities are given"));
            }
            _ => drop(other.insert(name.to_owned(), text.into())),
        }
        Ok(())
    }
}

fn text_of(field: &Field) -> Result<String, Wrong> {
    let text = std::str::from_utf8(&field.data);
    let text = text.map_err(|_| Wrong::new("is no UTF-8").at(&field.name))?;
    Ok(text.to_owned())
}

fn temperature(text: &str) -> Result<f32, Wrong> {
    let number = text.trim().parse::<f32>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| Wrong::new(format!("is {text:?}; allowed: 0 to 1")))
}

fn boolean(text: &str) -> Result<bool, Wrong> {
    match &*text.trim().to_ascii_lowercase() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err(Wrong::new(format!("has to be true or false, not {text:?}"))),
    }
}

impl Format {
    fn read(text: &str) -> Result<Self, Wrong> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => {
                let what = format!("is {text:?}, which is not supported; allowed: json, text");
                Err(Wrong::new(what))
            }
        }
    }
}

impl ApiRequest for TranscriptionRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn is_stream(&self) -> bool {
        self.request.stream
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { mut request, format, .. } = *self;
        request.request_id = format!("trsc_{:032x}", resolved.id);
        request.model = resolved.model;
        let generation = Generation::new(Expected {
            choices: 1,
            stops: Stops::new(&[], false),
            has_logprobs: false,
            has_parallel_calls: false,
            id: resolved.id,
        });
        let errors = ErrorForm { dialect: Dialect::OpenAi, id: String::new() };
        let answer: Box<dyn Answer> = if request.stream {
            let turn = Turn::new(Parts::new(TextEvents)).hiding_reasoning(true);
            Box::new(TurnStream::new(generation, turn, errors))
        } else {
            let turn = Turn::new(Parts::new(())).hiding_reasoning(true);
            Box::new(WholeTurn::new(generation, turn, errors, format))
        };
        let message = request.encode_to_vec().into();
        Opened { path: TRANSCRIBE, message, answer }
    }
}

// === the answers ===

fn text_of_all(parts: &[Part]) -> String {
    let parts = parts.iter().filter(|part| part.kind == Kind::Text);
    parts.map(|part| &*part.text).collect()
}

/// The usage, which is omitted if the engine counts no tokens.
fn tokens(usage: &Usage) -> Option<Tokens> {
    let (input_tokens, output_tokens) = (usage.prompt_tokens, usage.completion_tokens);
    let total_tokens = input_tokens.saturating_add(output_tokens);
    let tokens = Tokens { r#type: "tokens", input_tokens, output_tokens, total_tokens };
    (total_tokens > 0).then_some(tokens)
}

impl WriteWholeTurn for Format {
    fn write(
        &self,
        out: &mut BytesMut,
        parts: &[Part],
        _: &Ending,
        usage: &Usage,
    ) -> Result<(), Status> {
        let text = text_of_all(parts);
        match self {
            Format::Json => {
                put_json(out, &Transcript { r#type: None, text: &text, usage: tokens(usage) });
            }
            Format::Text => put(out, &text),
        }
        Ok(())
    }

    fn content_type(&self) -> HeaderValue {
        match self {
            Format::Json => JSON,
            Format::Text => PLAIN_TEXT,
        }
    }
}

impl WriteParts for TextEvents {
    fn start(&mut self, _: &mut BytesMut, _: &Usage) {}

    fn begin(&mut self, _: &mut BytesMut, _: usize, _: &Part) {}

    fn piece(
        &mut self,
        out: &mut BytesMut,
        _: usize,
        part: &Part,
        piece: &str,
        _: &[TokenLogprob],
    ) {
        if part.kind == Kind::Text && !piece.is_empty() {
            put(out, "data: {\"type\":\"transcript.text.delta\",\"delta\":");
            put_text(out, piece);
            put(out, "}\n\n");
        }
    }

    fn end(&mut self, _: &mut BytesMut, _: usize, _: &Part, _is_cut: bool) {}
}

impl WriteTurn for TextEvents {
    fn finish(
        &mut self,
        out: &mut BytesMut,
        parts: &[Part],
        _: &Ending,
        usage: &Usage,
    ) -> Result<(), Status> {
        let text = text_of_all(parts);
        let r#type = Some("transcript.text.done");
        put(out, "data: ");
        put_json(out, &Transcript { r#type, text: &text, usage: tokens(usage) });
        put(out, "\n\n");
        Ok(())
    }

    fn fail(&mut self, out: &mut BytesMut, _: &[Part], _ended: usize, status: &Status) {
        put(out, "data: ");
        ApiError::of(status).put_body(Dialect::OpenAi, "", out);
        put(out, "\n\n");
    }
}
