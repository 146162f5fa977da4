//! The answer of Responses as numbered events, from the creation of each item to its end.

use bytes::BytesMut;
use router_protocol::grpc::{Code, Status};
use serde::Serialize;

use crate::errors::ApiError;
use crate::events::{put_event, put_json};
use crate::messages::{TokenLogprob, Usage};
use crate::parts::{Kind, Part, WriteParts};
use crate::turn::Ending;
use crate::turn_answers::WriteTurn;
use crate::write::{put, put_integer, put_text};

use super::logprobs::{Detail, Logprob};
use super::response::{
    Content, Failure, Item, Response, Shape, begun_content, content_of, item_status,
};

/// Writes parts as items.
#[derive(Debug)]
pub(super) struct Items {
    shape: Shape,
    has_started: bool,
    number: Number,
    /// Every delta of the open item begins so.
    prefix: String,
}

/// Of the next event.
#[derive(Debug, Default)]
struct Number(u64);

#[derive(Serialize)]
struct Event<'a> {
    r#type: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    data: Data<'a>,
}

/// Each event has some of these fields.
#[derive(Default, Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Response<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<Logprob<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
}

#[derive(Serialize)]
struct ErrorEvent<'a> {
    r#type: &'static str,
    sequence_number: u64,
    code: &'a str,
    message: &'a str,
    param: Option<()>,
}

impl Number {
    fn next(&mut self) -> u64 {
        let number = self.0;
        self.0 += 1;
        number
    }

    fn put(&mut self, out: &mut BytesMut, name: &str, data: Data<'_>) {
        let event = Event { r#type: name, sequence_number: self.next(), data };
        put_event(out, name, &event);
    }

    fn put_response(&mut self, out: &mut BytesMut, name: &str, response: Response<'_>) {
        self.put(out, name, Data { response: Some(response), ..Data::default() });
    }
}

impl Items {
    pub(super) fn new(shape: Shape) -> Self {
        let (number, prefix) = Default::default();
        Self { shape, has_started: false, number, prefix }
    }

    fn put_content_end(&mut self, out: &mut BytesMut, index: usize, part: &Part, id: &str) {
        let place = || Data::of_content(index, id);
        let text = Some(&*part.text);
        let (name, data) = match part.kind {
            Kind::Text | Kind::Call(_) => {
                let logprobs = Some(Logprob::all(&part.logprobs, Detail::Plain));
                ("response.output_text.done", Data { text, logprobs, ..place() })
            }
            Kind::Refusal => ("response.refusal.done", Data { refusal: text, ..place() }),
            Kind::Reasoning => ("response.reasoning_text.done", Data { text, ..place() }),
        };
        self.number.put(out, name, data);
        let part = Some(content_of(part));
        self.number.put(out, "response.content_part.done", Data { part, ..place() });
    }

    fn put_call_end(&mut self, out: &mut BytesMut, index: usize, part: &Part, id: &str) {
        let data = Data {
            item_id: Some(id),
            output_index: Some(index),
            name: Some(&part.name),
            arguments: Some(&part.text),
            ..Data::default()
        };
        self.number.put(out, "response.function_call_arguments.done", data);
    }

    fn begin_deltas(&mut self, kind: Kind, index: usize, id: &str) {
        let name = match kind {
            Kind::Text => "response.output_text.delta",
            Kind::Refusal => "response.refusal.delta",
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call(_) => "response.function_call_arguments.delta",
        };
        let content = if matches!(kind, Kind::Call(_)) { "" } else { ",\"content_index\":0" };
        self.prefix = format!(
            "event: {name}\ndata: {{\"type\":\"{name}\",\"item_id\":\"{id}\",\
             \"output_index\":{index}{content},\"delta\":"
        );
    }
}

impl<'a> Data<'a> {
    fn of_content(index: usize, id: &'a str) -> Self {
        let (output_index, item_id, content_index) = (Some(index), Some(id), Some(0));
        Self { output_index, item_id, content_index, ..Self::default() }
    }

    fn of_item(index: usize, item: Item<'a>) -> Self {
        Self { output_index: Some(index), item: Some(item), ..Self::default() }
    }
}

impl WriteParts for Items {
    /// The response is created with the engine's first output: an earlier failure is answered with
    /// an HTTP status.
    fn start(&mut self, out: &mut BytesMut, _: &Usage) {
        self.has_started = true;
        for name in ["response.created", "response.in_progress"] {
            self.number.put_response(out, name, self.shape.begun());
        }
    }

    fn begin(&mut self, out: &mut BytesMut, index: usize, part: &Part) {
        let id = self.shape.item_id(index, part);
        let item = self.shape.begun_item(index, part);
        self.number.put(out, "response.output_item.added", Data::of_item(index, item));
        if !part.is_call() {
            let part = Some(begun_content(part.kind));
            let data = Data { part, ..Data::of_content(index, &id) };
            self.number.put(out, "response.content_part.added", data);
        }
        self.begin_deltas(part.kind, index, &id);
    }

    fn piece(
        &mut self,
        out: &mut BytesMut,
        _: usize,
        part: &Part,
        piece: &str,
        logprobs: &[TokenLogprob],
    ) {
        put(out, &self.prefix);
        put_text(out, piece);
        if part.kind == Kind::Text {
            put(out, ",\"logprobs\":");
            put_json(out, &Logprob::all(logprobs, Detail::Plain));
        }
        put(out, ",\"sequence_number\":");
        put_integer(out, self.number.next());
        put(out, "}\n\n");
    }

    fn end(&mut self, out: &mut BytesMut, index: usize, part: &Part, is_cut: bool) {
        let id = self.shape.item_id(index, part);
        if part.is_call() {
            self.put_call_end(out, index, part, &id);
        } else {
            self.put_content_end(out, index, part, &id);
        }
        let item = self.shape.item(index, part, item_status(!is_cut));
        self.number.put(out, "response.output_item.done", Data::of_item(index, item));
    }
}

impl WriteTurn for Items {
    fn finish(
        &mut self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &Usage,
    ) -> Result<(), Status> {
        let response = self.shape.ended(parts, ending, usage);
        let is_cut = ending.is_cut();
        let name = if is_cut { "response.incomplete" } else { "response.completed" };
        self.number.put_response(out, name, response);
        Ok(())
    }

    /// The document has an event for the error, and one for the response that it ends.
    fn fail(&mut self, out: &mut BytesMut, parts: &[Part], ended: usize, status: &Status) {
        if !self.has_started {
            self.start(out, &Usage::default());
        }
        let (code, message) = (error_code(status.code), ApiError::of(status).message);
        let sequence_number = self.number.next();
        let error =
            ErrorEvent { r#type: "error", sequence_number, code, message: &message, param: None };
        put_event(out, "error", &error);
        let failure = Failure { code, message: &message };
        let response = self.shape.failed(parts, ended, failure);
        self.number.put_response(out, "response.failed", response);
    }
}

/// Of the codes that the document lists.
fn error_code(code: Code) -> &'static str {
    match code {
        Code::ResourceExhausted => "rate_limit_exceeded",
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => "invalid_prompt",
        _ => "server_error",
    }
}
