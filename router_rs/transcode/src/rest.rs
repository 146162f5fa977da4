//! Methods with their own paths: where the fields of the request are, and the form of the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Method as HttpMethod, request};
use prost::Message as _;
use prost_reflect::{FieldDescriptor, MessageDescriptor};
use router_call::Door;
use router_protocol::grpc::{
    Code, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT, Status, format_timeout,
};
use serde_json::{Map, Value};

use super::Limits;
use super::coder::{AnswerCoder, RequestCoder};
use super::connect_type::ConnectType;
use super::head::{accepts_gzip, content_encoding, grpc_head, read_timeout};
use super::http_body::{BodyAnswer, HttpBody};
use super::json::{JsonType, Source, frame_of, one_field, without_field};
use super::json_stream::{JsonStreamAnswer, Separation};
use super::methods::Sees;
use super::methods::routes::{Captured, Matched};
use super::methods::rule::{Body, Route};
use super::methods::{Method, MethodTable};
use super::opened::{Opened, Transcoding, error_answer, wrong_content_type, wrong_method};
use super::query;
use super::rest_fields::Target;
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
    let mut matched = methods.rest().find(&parts.method, path, application);
    if parts.method == HttpMethod::HEAD && !matches!(matched, Matched::Route(..)) {
        matched = methods.rest().find(&HttpMethod::GET, path, application);
    }
    match matched {
        Matched::Nothing => Opened::NotOurs(None),
        Matched::OtherMethods(allowed) => Opened::NotOurs(Some(wrong_method(&allowed))),
        Matched::Route(route, _) if !sees(&route.method.path) => {
            Opened::Refused(route.method.path.clone())
        }
        Matched::Route(route, captured) => {
            let takes_body = !matches!(route.body, Body::None);
            let content_type = parts.headers.get(CONTENT_TYPE);
            // Without a content type there may be no body either; if there is one, it must be JSON.
            let is_json = content_type.is_none_or(is_json);
            if takes_body && !is_json && body_of(route).is_none() {
                return Opened::Answer(wrong_content_type(parts, JSON));
            }
            match open_route(parts, route, captured, limits) {
                Ok(transcoding) => Opened::Call(Box::new(transcoding)),
                Err(status) => Opened::Answer(error_answer(ErrorForm::Google, &status)),
            }
        }
    }
}

/// Whether a content type is JSON, or has JSON's syntax (RFC 6839).
fn is_json(content_type: &HeaderValue) -> bool {
    let has_suffix = || {
        let essence = content_type.to_str().ok()?.split(';').next()?.trim().to_ascii_lowercase();
        // Those of other protocols are envelopes.
        let is_other = |name: &str| essence.starts_with(name);
        let is_other = is_other("application/connect") || is_other("application/grpc");
        Some(essence.ends_with("+json") && !is_other)
    };
    ConnectType::parse(content_type) == Some(ConnectType::UnaryJson) || has_suffix() == Some(true)
}

/// The type of the request's body, if it is not JSON.
fn body_of(route: &Route) -> Option<MessageDescriptor> {
    let message = match &route.body {
        Body::None => None,
        Body::Message => Some(route.method.input.descriptor.clone()),
        Body::Field(field) if field.is_list() || field.is_map() => None,
        Body::Field(field) => field.kind().as_message().cloned(),
    };
    message.filter(HttpBody::is)
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
        let encoding = Encoding::from_header(content_encoding(&parts.headers)?.as_ref())?;
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
    let is_head = parts.method == HttpMethod::HEAD;
    Ok(Transcoding { head, is_stream: false, is_head, door, answered_by, request, answer })
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
    if let Some(place) = route.answered_body() {
        return Box::new(BodyAnswer::new(form, place, method.server_streams, size_limit));
    }
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
    /// The content type of a body that is not JSON.
    body_type: Option<String>,
    /// From the query, then from the path, which wins.
    values: Vec<(Target, String)>,
    /// How many of them are from the query.
    query_count: usize,
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
                let Some(target) = Target::named(&input.descriptor, &name).map_err(wrong)? else {
                    input.take_unknown(&name)?;
                    continue;
                };
                let first = target.path.first();
                let is_body = matches!(&place, Place::Field(field) if first == Some(field));
                // The path wins, also over other members of a oneof.
                let is_over = route.variables.iter().any(|path| target.excludes(path));
                if !is_body && !is_over {
                    values.push((target, value.into_owned()));
                }
            }
        }
        let query_count = values.len();
        let variables = route.variables.iter().cloned().map(Target::single);
        let in_path = variables.zip(captured.map_err(wrong)?);
        // A repeated field takes all its values, any other the last one.
        values.extend(in_path);
        let body_type = body_of(route).map(|_| {
            let named = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            named.unwrap_or_default().to_owned()
        });
        Ok(Self { input, place, body_type, values, query_count })
    }

    /// The message of the query and the path.
    fn of_head(&self) -> Result<Vec<u8>, Status> {
        let read = |source, count| {
            let value = value_of(&self.values[..count])?;
            self.input.in_the(source).read_value(&value)
        };
        let whole = read(Source::Path, self.values.len());
        // The path is wrong only if the query alone is not.
        if whole.is_err() {
            read(Source::Query, self.query_count)?;
        }
        whole
    }

    /// The message whose `google.api.HttpBody` is the body.
    fn message_of_body(&self, data: Bytes) -> Vec<u8> {
        let content_type = self.body_type.clone().unwrap_or_default();
        let body = HttpBody { content_type, data }.encode_to_vec();
        match &self.place {
            Place::Field(field) => one_field(field.number(), &body),
            _ => body,
        }
    }

    /// The body's message without the submessages that have a string form (wrappers, times, masks)
    /// and are in the head: otherwise they would be merged.
    fn without_texts(&self, of_body: Vec<u8>) -> Result<Vec<u8>, Status> {
        let single = self.values.iter().filter(|(target, _)| target.key.is_none());
        let paths = single.map(|(target, _)| &target.path);
        let is_text = |field: &FieldDescriptor| field.kind().as_message().is_some();
        let mut texts = paths.filter(|path| path.last().is_some_and(is_text)).peekable();
        if of_body.is_empty() || texts.peek().is_none() {
            return Ok(of_body);
        }
        texts.try_fold(of_body, |message, path| without_field(&message, path))
    }
}

/// Message fields as JSON.
fn value_of(fields: &[(Target, String)]) -> Result<Value, Status> {
    let mut message = Map::new();
    for (target, text) in fields {
        target.put(&mut message, text).map_err(wrong)?;
    }
    Ok(message.into())
}

fn wrong(text: String) -> Status {
    Status::new(Code::InvalidArgument, text)
}

impl Convert for Fields {
    /// Concatenated messages are merged: of a field with one value the last one counts, and lists
    /// are joined.
    fn frame(&self, body: Bytes) -> Result<Bytes, Status> {
        let of_body = match &self.place {
            _ if self.body_type.is_some() => self.message_of_body(body),
            _ if body.is_empty() => Vec::new(),
            Place::Nowhere => Vec::new(),
            Place::Message => self.input.read(&body)?,
            Place::Field(field) => self.input.read_field(field, &body)?,
        };
        if self.values.is_empty() {
            return Ok(frame_of(&[&of_body]));
        }
        let of_body = self.without_texts(of_body)?;
        Ok(frame_of(&[&of_body, &self.of_head()?]))
    }
}
