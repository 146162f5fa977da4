//! How well documents answer queries: `/score` as vLLM has it, `/rerank` as Cohere, Jina and vLLM do.

use bytes::{Bytes, BytesMut};
use prost::Message;
use router_protocol::grpc::{Code, Status};

use crate::answers::{One, WriteOne};
use crate::errors::ApiError;
use crate::json::{Json, Object, Wrong};
use crate::messages::{ScoreRequest as EngineRequest, ScoreResponse};
use crate::request::ApiRequest;
use crate::shape::Shape;
use crate::usage::put_prompt_usage;
use crate::write::{put, put_float, put_integer, put_list, put_text};
use crate::{Opened, Resolved, SCORE};

/// The limit for documents in a request. Arbitrary.
const DOCUMENTS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct ScoreRequest {
    model: Option<String>,
    request: EngineRequest,
}

#[derive(Debug)]
pub(crate) struct RerankRequest {
    model: Option<String>,
    request: EngineRequest,
    top_n: usize,
    /// Whether documents are repeated.
    has_documents: bool,
}

#[derive(Debug)]
struct ScoreWriter {
    shape: Shape,
    count: usize,
}

#[derive(Debug)]
struct RerankWriter {
    shape: Shape,
    count: usize,
    top_n: usize,
    /// Those that are repeated, or none.
    documents: Vec<String>,
}

// === impl ScoreRequest ===

impl ScoreRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let model = body.text("model")?;
        let (first, queries) = read_either(&mut body, ["text_1", "queries"])?;
        let (second, documents) = read_either(&mut body, ["text_2", "documents"])?;
        if queries.len() != 1 && queries.len() != documents.len() {
            let what = format!(
                "has {} texts and {second} has {}; send one, or as many",
                queries.len(),
                documents.len()
            );
            return Err(Wrong::new(what).at(first).into());
        }
        let request =
            EngineRequest { model: String::new(), queries, documents, other_json: body.rest() };
        Ok(Self { model, request })
    }
}

/// One of two names of the same, of which the first is the usual one.
fn read_either(
    body: &mut Object<'_>,
    names: [&'static str; 2],
) -> Result<(&'static str, Vec<String>), Wrong> {
    let [usual, other] = names;
    match body.read(other, texts)? {
        Some(texts) => Ok((other, texts)),
        None => Ok((usual, body.need(usual, texts)?)),
    }
}

fn texts(value: Json<'_>) -> Result<Vec<String>, Wrong> {
    if value.is_text() {
        return Ok(vec![value.text()?]);
    }
    if !value.is_array() {
        return Err(value.not("a string or an array of strings"));
    }
    check_count(value.each(Json::text)?)
}

fn check_count(texts: Vec<String>) -> Result<Vec<String>, Wrong> {
    match texts.len() {
        0 => Err(Wrong::new("is empty; send one text at least")),
        count if count > DOCUMENTS_MAX => {
            Err(Wrong::new(format!("has {count} texts; allowed: {DOCUMENTS_MAX}")))
        }
        _ => Ok(texts),
    }
}

impl ApiRequest for ScoreRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { mut request, .. } = *self;
        let count = request.documents.len();
        request.model.clone_from(&resolved.model);
        let writer = ScoreWriter { shape: shape("score", resolved), count };
        let message = Bytes::from(request.encode_to_vec());
        Opened { path: SCORE, message, answer: Box::new(One::new(writer)) }
    }
}

fn shape(kind: &str, resolved: Resolved) -> Shape {
    Shape {
        id: format!("{kind}-{:032x}", resolved.id),
        model: resolved.asked,
        created: resolved.created,
        top_logprobs: None,
    }
}

// === impl ScoreWriter ===

impl WriteOne for ScoreWriter {
    type Message = ScoreResponse;

    fn write(&self, response: ScoreResponse, out: &mut BytesMut) -> Result<(), Status> {
        check(&response, self.count)?;
        self.shape.put(out, "list");
        put(out, r#","data":"#);
        put_list(out, response.scores.iter().enumerate(), |out, (index, score)| {
            put(out, r#"{"index":"#);
            put_integer(out, index as u64);
            put(out, r#","object":"score","score":"#);
            put_float(out, *score, 0.0);
            put(out, "}");
        });
        put(out, r#","usage":"#);
        put_prompt_usage(out, response.usage.as_ref());
        put(out, "}");
        Ok(())
    }
}

fn check(response: &ScoreResponse, wanted: usize) -> Result<(), Status> {
    let count = response.scores.len();
    if count != wanted {
        let text = format!("the engine has answered {count} scores of {wanted}");
        return Err(Status::new(Code::Internal, text));
    }
    if !response.scores.iter().all(|score| score.is_finite()) {
        return Err(Status::new(Code::Internal, "the engine's scores are not all finite numbers"));
    }
    Ok(())
}

// === impl RerankRequest ===

impl RerankRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let model = body.text("model")?;
        let query = body.need("query", Json::text)?;
        let documents = body.need("documents", |value| check_count(value.each(document)?))?;
        // Zero is all, as in vLLM.
        let top_n = body.read("top_n", |value| value.integer(0, u32::MAX))?.unwrap_or(0);
        let top_n = if top_n == 0 { documents.len() } else { top_n as usize };
        let has_documents = body.boolean("return_documents")?.unwrap_or(true);
        let queries = vec![query];
        let request =
            EngineRequest { model: String::new(), queries, documents, other_json: body.rest() };
        Ok(Self { model, request, top_n, has_documents })
    }
}

fn document(value: Json<'_>) -> Result<String, Wrong> {
    if value.is_text() { value.text() } else { value.object()?.need("text", Json::text) }
}

impl ApiRequest for RerankRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { mut request, top_n, has_documents, .. } = *self;
        request.model.clone_from(&resolved.model);
        let message = Bytes::from(request.encode_to_vec());
        let count = request.documents.len();
        let documents = if has_documents { request.documents } else { Vec::new() };
        let writer = RerankWriter { shape: shape("rerank", resolved), count, top_n, documents };
        Opened { path: SCORE, message, answer: Box::new(One::new(writer)) }
    }
}

// === impl RerankWriter ===

impl WriteOne for RerankWriter {
    type Message = ScoreResponse;

    fn write(&self, response: ScoreResponse, out: &mut BytesMut) -> Result<(), Status> {
        check(&response, self.count)?;
        let mut best: Vec<(usize, f32)> = response.scores.iter().copied().enumerate().collect();
        best.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        put(out, r#"{"id":"#);
        put_text(out, &self.shape.id);
        put(out, r#","model":"#);
        put_text(out, &self.shape.model);
        put(out, r#","usage":"#);
        put_prompt_usage(out, response.usage.as_ref());
        put(out, r#","results":"#);
        put_list(out, best.into_iter().take(self.top_n), |out, (index, score)| {
            self.put_result(out, index, score);
        });
        put(out, "}");
        Ok(())
    }
}

impl RerankWriter {
    fn put_result(&self, out: &mut BytesMut, index: usize, score: f32) {
        put(out, r#"{"index":"#);
        put_integer(out, index as u64);
        if let Some(document) = self.documents.get(index) {
            put(out, r#","document":{"text":"#);
            put_text(out, document);
            put(out, "}");
        }
        put(out, r#","relevance_score":"#);
        put_float(out, score, 0.0);
        put(out, "}");
    }
}
