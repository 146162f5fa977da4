//! `google.api.http` of a method: its paths, and where its fields are in a request.

use std::sync::Arc;

use http::Method as HttpMethod;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};

use super::method::Method;
use super::options::{HttpRule, Pattern, options};
use super::template::Template;
use crate::http_body::{BodyPlace, HttpBody};
use crate::well_known::Form;

/// One path of a method.
#[derive(Debug)]
pub struct Route {
    pub method: Arc<Method>,
    /// `None`: any.
    pub http_method: Option<HttpMethod>,
    pub template: Template,
    /// The field of each of the template's variables.
    pub variables: Vec<FieldPath>,
    pub body: Body,
    /// The answer is this field of the message, by its name in JSON.
    pub response_body: Option<Box<str>>,
}

/// The content of the request's body.
#[derive(Debug)]
pub enum Body {
    /// Empty: fields that are not in the path are in the query.
    None,
    /// The message, except for fields in the path.
    Message,
    /// One field; the others are in the path or in the query.
    Field(FieldDescriptor),
}

/// A field of a field of a message; all but the last are single messages.
pub(crate) type FieldPath = Vec<FieldDescriptor>;

/// The paths of a method, or a sentence for each that cannot be used.
pub(super) fn routes(
    descriptor: &MethodDescriptor,
    method: &Arc<Method>,
) -> Vec<Result<Route, String>> {
    let Some(rule) = options(descriptor).http else { return Vec::new() };
    // Bindings do not nest: those of additional ones are ignored (google/api/http.proto).
    std::iter::once(&rule)
        .chain(&rule.additional_bindings)
        .map(|rule| Route::new(rule, method))
        .collect()
}

impl Route {
    fn new(rule: &HttpRule, method: &Arc<Method>) -> Result<Self, String> {
        if method.client_streams {
            return Err("google.api.http: a method that takes a stream has no path".into());
        }
        let (http_method, text) = pattern(rule)?;
        let template = Template::parse(text)?;
        let input = &method.input.descriptor;
        let variables = template.variables.iter().map(|variable| {
            let path = field_path(input, &variable.field_path);
            path.filter(is_scalar).ok_or_else(|| {
                format!("{text}: {:?} is no single field with one value", variable.field_path)
            })
        });
        let variables = variables.collect::<Result<_, _>>()?;
        let field = |of: &MessageDescriptor, name: &str| {
            let found = of.get_field_by_name(name);
            found.ok_or_else(|| format!("{text}: {} has no field {name:?}", of.full_name()))
        };
        let body = match &*rule.body {
            "" => Body::None,
            "*" => Body::Message,
            name => Body::Field(field(input, name)?),
        };
        let response_body = match &*rule.response_body {
            "" => None,
            name => Some(field(&method.output.descriptor, name)?.json_name().into()),
        };
        let method = Arc::clone(method);
        Ok(Self { method, http_method, template, variables, body, response_body })
    }
}

impl Route {
    /// Where the answer's `google.api.HttpBody` is; `None`: the answer is JSON.
    pub(crate) fn answered_body(&self) -> Option<BodyPlace> {
        let output = &self.method.output.descriptor;
        let Some(name) = &self.response_body else {
            return HttpBody::is(output).then_some(BodyPlace::Message);
        };
        let field = output.get_field_by_json_name(name)?;
        let is_body = !field.is_list() && field.kind().as_message().is_some_and(HttpBody::is);
        is_body.then(|| BodyPlace::Field(field.number()))
    }
}

fn pattern(rule: &HttpRule) -> Result<(Option<HttpMethod>, &str), String> {
    Ok(match &rule.pattern {
        Some(Pattern::Get(path)) => (Some(HttpMethod::GET), path),
        Some(Pattern::Put(path)) => (Some(HttpMethod::PUT), path),
        Some(Pattern::Post(path)) => (Some(HttpMethod::POST), path),
        Some(Pattern::Delete(path)) => (Some(HttpMethod::DELETE), path),
        Some(Pattern::Patch(path)) => (Some(HttpMethod::PATCH), path),
        Some(Pattern::Custom(custom)) if custom.kind == "*" => (None, &custom.path),
        Some(Pattern::Custom(custom)) => {
            let kind = HttpMethod::from_bytes(custom.kind.as_bytes());
            let kind = kind.map_err(|_| format!("{:?} is no HTTP method", custom.kind))?;
            (Some(kind), &custom.path)
        }
        None => return Err("google.api.http names no path".into()),
    })
}

/// The field for dotted names, in the form of proto or of JSON.
pub(crate) fn field_path(message: &MessageDescriptor, names: &str) -> Option<FieldPath> {
    let mut path = FieldPath::new();
    let mut message = Some(message.clone());
    for name in names.split('.') {
        let of = message?;
        let field = of.get_field_by_name(name).or_else(|| of.get_field_by_json_name(name))?;
        let is_single = !field.is_list() && !field.is_map();
        message = field.kind().as_message().filter(|_| is_single).cloned();
        path.push(field);
    }
    Some(path)
}

fn is_scalar(path: &FieldPath) -> bool {
    path.last().is_some_and(|field| !field.is_list() && !field.is_map() && has_text(&field.kind()))
}

/// Whether one value of this kind is a single string: not a message, except those with such a form.
pub(crate) fn has_text(kind: &Kind) -> bool {
    kind.as_message().is_none_or(|message| Form::of(message).is_some_and(Form::is_single))
}
