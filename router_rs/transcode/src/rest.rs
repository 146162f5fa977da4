//! Methods with their own paths: where the fields of the request are, and the form of the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, request};
use prost_reflect::{FieldDescriptor, Kind};
use router_call::Door;
use router_protocol::grpc::{
    Code, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT, Status, format_timeout,
};
use serde_json::{Map, Value};

use super::Limits;
use super::coder::{AnswerCoder, RequestCoder};
use super::connect_type::ConnectType;
use super::head::{accepts_gzip, grpc_head, read_timeout};
use super::json::{JsonType, frame_of, without_field};
use super::json_stream::{JsonStreamAnswer, Separation};
use super::methods::Sees;
use super::methods::routes::{Captured, Matched};
use super::methods::rule::{Body, FieldPath, Route, field_path, has_text};
use super::methods::{Method, MethodTable};
use super::opened::{Opened, Transcoding, error_answer, wrong_content_type, wrong_method};
use super::query;
use super::status::ErrorForm;
use super::unary::{
    AnswerEncoding, AnswerForm, Convert, JSON, ReadyRequest, UnaryAnswer, WholeRequest,
};

const PROTO: HeaderValue = HeaderValue::from_static("application/grpc+proto");

/// Opens a request whose path does not name a method, but may match a route. If the caller may not
/// see the route's method, the request is refused before anything else in it is inspected.
pub(super) fn open(
    methods: &MethodTable,
    parts: &request::Parts,
    application: Option<&str>,
    limits: &Limits,
    sees: Sees<'_>,
) -> Opened {
    let path = parts.uri.path();
    match methods.rest().find(&parts.method, path, application) {
        Matched::Nothing => Opened::NotOurs(None),
        Matched::OtherMethods(allowed) => Opened::NotOurs(Some(wrong_method(&allowed))),
        Matched::Route(route, _) if !sees(&route.method.path) => {
            Opened::Refused(route.method.path.clone())
        }
        Matched::Route(route, captured) => {
            let takes_body = !matches!(route.body, Body::None);
            let content_type = parts.headers.get(CONTENT_TYPE);
            // Without a content type there may be no body either; if there is one, it must be JSON.
            let is_json = content_type
                .is_none_or(|value| ConnectType::parse(value) == Some(ConnectType::UnaryJson));
            if takes_body && !is_json {
                return Opened::Answer(wrong_content_type(parts, JSON));
            }
            match open_route(parts, route, captured, limits) {
                Ok(transcoding) => Opened::Call(Box::new(transcoding)),
                Err(status) => Opened::Answer(error_answer(ErrorForm::Google, &status)),
            }
        }
    }
}

fn open_route(
    parts: &request::Parts,
    route: &Route,
    captured: Captured,
    limits: &Limits,
) -> Result<Transcoding, Status> {
    let fields = Fields::new(parts, route, captured, limits)?;
    let request: Box<dyn RequestCoder> = if fields.place == Place::Nowhere {
        Box::new(ReadyRequest::new(fields.frame(Bytes::new())?))
    } else {
        let encoding = Encoding::from_header(parts.headers.get(CONTENT_ENCODING))?;
        Box::new(WholeRequest::new(Box::new(fields), encoding, limits.message_size))
    };
    let mut head = grpc_head(parts, &route.method.path, PROTO);
    if let Some(timeout) = read_timeout(&parts.headers)? {
        head.headers.entry(GRPC_TIMEOUT).or_insert_with(|| format_timeout(timeout));
    }
    head.headers.remove(GRPC_ENCODING);
    head.headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let answer = answer(parts, route, limits);
    let answered_by = limits.answered_by.clone();
    let door = Door::Rest;
    Ok(Transcoding { head, is_stream: false, door, answered_by, request, answer })
}

fn answer(parts: &request::Parts, route: &Route, limits: &Limits) -> Box<dyn AnswerCoder> {
    let method: &Method = &route.method;
    let json = method.output.clone();
    let form = AnswerForm {
        body: Arc::new(match &route.response_body {
            None => AnswerEncoding::Json(json),
            Some(name) => AnswerEncoding::Field(json, name.clone()),
        }),
        errors: ErrorForm::Google,
        pool: Some(method.pool()),
        grant: limits.cors.grant(&parts.headers),
    };
    let size_limit = limits.message_size;
    if method.server_streams {
        let separation = Separation::of_accept(parts.headers.get(ACCEPT));
        return Box::new(JsonStreamAnswer::new(form, separation, size_limit));
    }
    let accepts_gzip = accepts_gzip(parts.headers.get(ACCEPT_ENCODING));
    Box::new(UnaryAnswer::new(form, accepts_gzip, size_limit))
}

/// The message fields found in the head, and where the body goes.
#[derive(Debug)]
struct Fields {
    input: JsonType,
    place: Place,
    /// From the query, then from the path, which wins.
    values: Vec<(FieldPath, String)>,
}

/// Where the body goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Message,
    Field(FieldDescriptor),
}

impl Fields {
    fn new(
        parts: &request::Parts,
        route: &Route,
        captured: Captured,
        limits: &Limits,
    ) -> Result<Self, Status> {
        let input = limits.input(&route.method, &parts.headers)?;
        let place = match &route.body {
            Body::None => Place::Nowhere,
            Body::Message => Place::Message,
            Body::Field(field) => Place::Field(field.clone()),
        };
        let mut values = Vec::new();
        if place != Place::Message {
            let pairs = query::parse(parts.uri.query().unwrap_or_default()).map_err(wrong)?;
            for (name, value) in pairs {
                let Some(path) = field_path(&input.descriptor, &name) else {
                    input.take_unknown(&name)?;
                    continue;
                };
                let is_body = matches!(&place, Place::Field(field) if path.first() == Some(field));
                if !is_body {
                    values.push((path, value.into_owned()));
                }
            }
        }
        let in_path = route.variables.iter().cloned().zip(captured);
        // A repeated field takes all its values, any other the last one.
        values.extend(in_path);
        Ok(Self { input, place, values })
    }

    /// The message fields from the query and the path, as JSON.
    fn value(&self) -> Result<Value, Status> {
        let mut message = Map::new();
        for (path, text) in &self.values {
            put(&mut message, path, text).map_err(wrong)?;
        }
        Ok(message.into())
    }

    /// The body's message without the submessages that have a string form (wrappers, times, masks)
    /// and are in the head: otherwise they would be merged.
    fn without_texts(&self, of_body: Vec<u8>) -> Result<Vec<u8>, Status> {
        let paths = self.values.iter().map(|(path, _)| path);
        let is_text = |field: &FieldDescriptor| field.kind().as_message().is_some();
        let mut texts = paths.filter(|path| path.last().is_some_and(is_text)).peekable();
        if of_body.is_empty() || texts.peek().is_none() {
            return Ok(of_body);
        }
        texts.try_fold(of_body, |message, path| without_field(&message, path))
    }
}

fn wrong(text: String) -> Status {
    Status::new(Code::InvalidArgument, text)
}

impl Convert for Fields {
    /// Concatenated messages are merged: of a field with one value the last one counts, and lists
    /// are joined.
    fn frame(&self, body: Bytes) -> Result<Bytes, Status> {
        let of_body = match &self.place {
            _ if body.is_empty() => Vec::new(),
            Place::Nowhere => Vec::new(),
            Place::Message => self.input.read(&body)?,
            Place::Field(field) => self.input.read_field(field, &body)?,
        };
        if self.values.is_empty() {
            return Ok(frame_of(&[&of_body]));
        }
        let of_body = self.without_texts(of_body)?;
        Ok(frame_of(&[&of_body, &self.input.read_value(&self.value()?)?]))
    }
}

/// Sets a field of a message in JSON; appends to a repeated one.
fn put(
    message: &mut Map<String, Value>,
    path: &[FieldDescriptor],
    text: &str,
) -> Result<(), String> {
    let [field, rest @ ..] = path else { return Ok(()) };
    let slot = message.entry(field.json_name()).or_insert(Value::Null);
    if rest.is_empty() {
        let value = leaf(field, text)?;
        match slot {
            Value::Array(values) if field.is_list() => values.push(value),
            slot if field.is_list() => *slot = Value::Array(vec![value]),
            slot => *slot = value,
        }
        return Ok(());
    }
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().map_or(Ok(()), |inner| put(inner, rest, text))
}

/// One value of a field, from its string in the query or the path.
fn leaf(field: &FieldDescriptor, text: &str) -> Result<Value, String> {
    let kind = field.kind();
    if field.is_map() || !has_text(&kind) {
        return Err(format!("{} is a message: set the fields of it", field.full_name()));
    }
    let is_bool = kind == Kind::Bool
        || kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.BoolValue");
    if is_bool {
        return match text {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(format!("{} is {text:?}, write true or false", field.full_name())),
        };
    }
    // JSON accepts numbers as strings too, except those of enums.
    let number = kind.as_enum().and_then(|_| text.parse::<i32>().ok());
    Ok(number.map_or_else(|| Value::String(text.to_owned()), Value::from))
}
