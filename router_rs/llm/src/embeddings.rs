//! `POST /v1/embeddings`
//! (platform.openai.com/docs/api-reference/embeddings/create).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use router_protocol::grpc::{Code, Status};

use crate::answers::{One, WriteOne};
use crate::errors::ApiError;
use crate::json::{Json, Wrong};
use crate::messages::{EmbedRequest, EmbedResponse, Embedding};
use crate::prompts::prompts;
use crate::request::ApiRequest;
use crate::usage::put_prompt_usage;
use crate::write::{put, put_float, put_integer, put_list, put_text};
use crate::{EMBED, Opened, Resolved};

/// As OpenAI's document has it.
const INPUTS_MAX: usize = 2048;

#[derive(Debug)]
pub(crate) struct EmbeddingsRequest {
    model: Option<String>,
    form: Form,
    request: EmbedRequest,
}

/// How an embedding is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Float,
    /// Of little-endian floats of 32 bits. The `openai` client asks for it by itself.
    Base64,
}

#[derive(Debug)]
struct Writer {
    model: String,
    form: Form,
    count: usize,
}

// === impl EmbeddingsRequest ===

impl EmbeddingsRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let model = body.text("model")?;
        let form = body.read("encoding_format", form)?.unwrap_or(Form::Float);
        let inputs = body.need("input", |value| prompts(value, INPUTS_MAX))?;
        let dimensions = body.read("dimensions", |value| value.integer(1, u32::MAX))?;
        let request = EmbedRequest {
            model: String::new(),
            inputs,
            dimensions: dimensions.unwrap_or_default(),
            user: body.text("user")?.unwrap_or_default(),
            other_json: body.rest(),
        };
        Ok(Self { model, form, request })
    }
}

fn form(value: Json<'_>) -> Result<Form, Wrong> {
    match &*value.text()? {
        "float" => Ok(Form::Float),
        "base64" => Ok(Form::Base64),
        other => Err(Wrong::new(format!("is {other:?}; allowed: float, base64"))),
    }
}

impl ApiRequest for EmbeddingsRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { form, mut request, .. } = *self;
        let writer = Writer { model: resolved.asked, form, count: request.inputs.len() };
        request.model = resolved.model;
        let message = Bytes::from(request.encode_to_vec());
        Opened { path: EMBED, message, answer: Box::new(One::new(writer)) }
    }
}

// === impl Writer ===

impl WriteOne for Writer {
    type Message = EmbedResponse;

    fn write(&self, response: EmbedResponse, out: &mut BytesMut) -> Result<(), Status> {
        check(&response, self)?;
        put(out, r#"{"object":"list","data":"#);
        put_list(out, response.embeddings.iter().enumerate(), |out, (index, embedding)| {
            put(out, r#"{"object":"embedding","index":"#);
            put_integer(out, index as u64);
            put(out, r#","embedding":"#);
            match self.form {
                Form::Float => put_list(out, &embedding.values, |out, value| {
                    put_float(out, *value, 0.0);
                }),
                Form::Base64 => put_base64(out, embedding),
            }
            put(out, "}");
        });
        put(out, r#","model":"#);
        put_text(out, &self.model);
        put(out, r#","usage":"#);
        put_prompt_usage(out, response.usage.as_ref());
        put(out, "}");
        Ok(())
    }
}

fn check(response: &EmbedResponse, wanted: &Writer) -> Result<(), Status> {
    let count = response.embeddings.len();
    if count != wanted.count {
        let text = format!("the engine has answered {count} embeddings of {}", wanted.count);
        return Err(Status::new(Code::Internal, text));
    }
    let is_broken = |embedding: &Embedding| !embedding.values.iter().all(|value| value.is_finite());
    match response.embeddings.iter().position(is_broken) {
        Some(index) => {
            let text = format!("the engine's embedding {index} has numbers that are not finite");
            Err(Status::new(Code::Internal, text))
        }
        None => Ok(()),
    }
}

fn put_base64(out: &mut BytesMut, embedding: &Embedding) {
    let mut bytes = Vec::with_capacity(embedding.values.len() * size_of::<f32>());
    for value in &embedding.values {
        bytes.put_f32_le(*value);
    }
    put(out, "\"");
    put(out, &STANDARD.encode(bytes));
    put(out, "\"");
}
