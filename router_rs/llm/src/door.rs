//! Doors: the endpoints of the APIs, by their paths.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;

use crate::chat::ChatRequest;
use crate::completions::CompletionRequest;
use crate::embeddings::EmbeddingsRequest;
use crate::errors::{ApiError, Dialect};
use crate::json::Json;
use crate::messages_api::{CountTokensRequest, MessagesRequest};
use crate::request::Request;
use crate::responses::ResponsesRequest;
use crate::score::{RerankRequest, ScoreRequest};
use crate::tokenize::{DetokenizeRequest, TokenizeRequest};
use crate::transcriptions::TranscriptionRequest;

/// An endpoint of one of the APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    Models,
    Model,
    ChatCompletions,
    Completions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
    Rerank,
    Score,
    Transcriptions,
    Tokenize,
    Detokenize,
}

/// The result of looking up a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Door(Door),
    /// A door that does not support the request's method: see [`Door::methods`].
    WrongMethod(Door),
}

const MODELS: &str = "/v1/models";

/// How many names of models an error lists.
const NAMES_MAX: usize = 10;

/// How much of a name an error repeats.
const NAME_CHARS_MAX: usize = 200;

// === impl Door ===

impl Door {
    /// `below` is the path below the application's prefix; a trailing slash makes no difference.
    pub fn find(method: &Method, below: &str) -> Option<Found> {
        let below = below.strip_suffix('/').unwrap_or(below);
        let door = Self::at(below)?;
        let allowed = door.methods();
        let is_allowed = allowed.split(", ").any(|allowed| allowed == method.as_str());
        Some(if is_allowed { Found::Door(door) } else { Found::WrongMethod(door) })
    }

    fn at(below: &str) -> Option<Self> {
        let door = match below {
            MODELS => Door::Models,
            "/v1/chat/completions" => Door::ChatCompletions,
            "/v1/completions" => Door::Completions,
            "/v1/embeddings" => Door::Embeddings,
            "/v1/responses" => Door::Responses,
            "/v1/messages" => Door::Messages,
            "/v1/messages/count_tokens" => Door::CountTokens,
            "/rerank" | "/v1/rerank" | "/v2/rerank" => Door::Rerank,
            "/score" | "/v1/score" => Door::Score,
            "/v1/audio/transcriptions" => Door::Transcriptions,
            "/tokenize" => Door::Tokenize,
            "/detokenize" => Door::Detokenize,
            _ => return model_name(below).map(|_| Door::Model),
        };
        Some(door)
    }

    /// The supported methods, in the form of the header `Allow`.
    pub fn methods(self) -> &'static str {
        match self {
            Door::Models | Door::Model => "GET, HEAD",
            _ => "POST",
        }
    }

    /// As the API's document names it, for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Door::Models => "models",
            Door::Model => "models/{id}",
            Door::ChatCompletions => "chat/completions",
            Door::Completions => "completions",
            Door::Embeddings => "embeddings",
            Door::Responses => "responses",
            Door::Messages => "messages",
            Door::CountTokens => "messages/count_tokens",
            Door::Rerank => "rerank",
            Door::Score => "score",
            Door::Transcriptions => "audio/transcriptions",
            Door::Tokenize => "tokenize",
            Door::Detokenize => "detokenize",
        }
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Door::Messages | Door::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Reads the body of a request; those of models have none.
    ///
    /// # Errors
    /// The body is invalid; the error names the field that is wrong.
    pub fn read(self, headers: &HeaderMap, body: &Bytes) -> Result<Request, ApiError> {
        Ok(match self {
            Door::ChatCompletions => ChatRequest::read(body)?.into(),
            Door::Completions => CompletionRequest::read(body)?.into(),
            Door::Embeddings => EmbeddingsRequest::read(body)?.into(),
            Door::Rerank => RerankRequest::read(body)?.into(),
            Door::Score => ScoreRequest::read(body)?.into(),
            Door::Tokenize => TokenizeRequest::read(body)?.into(),
            Door::Detokenize => DetokenizeRequest::read(body)?.into(),
            Door::Responses => ResponsesRequest::read(Json::body(body)?)?.into(),
            Door::Messages => MessagesRequest::read(Json::body(body)?)?.into(),
            Door::CountTokens => CountTokensRequest::read(Json::body(body)?)?.into(),
            Door::Transcriptions => TranscriptionRequest::read(headers, body)?.into(),
            Door::Models | Door::Model => {
                let text = format!("{} takes no body; use GET", self.name());
                return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text));
            }
        })
    }

    /// The error for a model that is not there; `known` are those that the client may use.
    pub fn unknown_model<'a>(
        self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> ApiError {
        let known = short_list(known);
        let there = if known.is_empty() { "there are none" } else { "there are: " };
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let message = format!("the model {name:?} does not exist; {there}{known}");
        let code = Some("model_not_found".into());
        let param = Some("model".into());
        ApiError { code, param, ..ApiError::new(StatusCode::NOT_FOUND, message) }
    }
}

/// The first of the names of models, as an error lists them.
pub fn short_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let mut list = names.by_ref().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
    if names.next().is_some() {
        list += ", ...";
    }
    list
}

/// The name in a path of [`Door::Model`], in which slashes and colons may be percent-encoded.
pub fn model_name(below: &str) -> Option<String> {
    let name = below.strip_prefix(MODELS)?.strip_prefix('/')?;
    let name = name.strip_suffix('/').unwrap_or(name);
    let is_name = !name.is_empty();
    is_name.then(|| percent_decode_str(name).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_doors() {
        for (method, below, expected) in [
            ("GET", "/v1/models", Some(Found::Door(Door::Models))),
            ("HEAD", "/v1/models/", Some(Found::Door(Door::Models))),
            ("POST", "/v1/models", Some(Found::WrongMethod(Door::Models))),
            ("GET", "/v1/models/a", Some(Found::Door(Door::Model))),
            ("GET", "/v1/models/meta/llama:adapter", Some(Found::Door(Door::Model))),
            ("DELETE", "/v1/models/a", Some(Found::WrongMethod(Door::Model))),
            ("POST", "/v1/chat/completions", Some(Found::Door(Door::ChatCompletions))),
            ("POST", "/v1/chat/completions/", Some(Found::Door(Door::ChatCompletions))),
            ("POST", "/v1/chat/completions//", None),
            ("GET", "/v1/chat/completions", Some(Found::WrongMethod(Door::ChatCompletions))),
            ("POST", "/v1/completions", Some(Found::Door(Door::Completions))),
            ("POST", "/v1/embeddings", Some(Found::Door(Door::Embeddings))),
            ("POST", "/v1/responses", Some(Found::Door(Door::Responses))),
            ("POST", "/v1/messages", Some(Found::Door(Door::Messages))),
            ("POST", "/v1/messages/count_tokens", Some(Found::Door(Door::CountTokens))),
            ("POST", "/rerank", Some(Found::Door(Door::Rerank))),
            ("POST", "/v1/rerank", Some(Found::Door(Door::Rerank))),
            ("POST", "/v2/rerank", Some(Found::Door(Door::Rerank))),
            ("POST", "/score", Some(Found::Door(Door::Score))),
            ("POST", "/v1/score", Some(Found::Door(Door::Score))),
            ("POST", "/v1/audio/transcriptions", Some(Found::Door(Door::Transcriptions))),
            ("POST", "/tokenize", Some(Found::Door(Door::Tokenize))),
            ("POST", "/detokenize", Some(Found::Door(Door::Detokenize))),
            ("POST", "/v1/chat", None),
            ("GET", "/v1/modelsx", None),
            ("GET", "", None),
            ("GET", "/", None),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(expected, Door::find(&method, below), "{method} {below}");
        }
    }

    #[test]
    fn a_models_name_may_have_slashes_and_colons() {
        for (below, expected) in [
            ("/v1/models/meta/llama", Some("meta/llama")),
            ("/v1/models/meta%2Fllama%3Aadapter/", Some("meta/llama:adapter")),
            ("/v1/models/", None),
            ("/v1/models", None),
            ("/v2/models/a", None),
        ] {
            assert_eq!(expected, model_name(below).as_deref(), "{below}");
        }
    }

    #[test]
    fn an_unknown_model_is_told_with_those_that_are_there() {
        let error = Door::Completions.unknown_model("b", ["a", "c"]);
        assert_eq!(404, error.status.as_u16());
        assert_eq!(
            (Some("model_not_found"), Some("model")),
            (error.code.as_deref(), error.param.as_deref())
        );
        assert_eq!("the model \"b\" does not exist; there are: a, c", error.message);
        let many: Vec<String> = (0..=NAMES_MAX).map(|index| format!("m{index}")).collect();
        let error = Door::Messages.unknown_model("b", many.iter().map(String::as_str));
        assert!(error.message.ends_with("m9, ..."), "{}", error.message);
        let error = Door::Messages.unknown_model(&"b".repeat(1 << 20), []);
        assert!(error.message.len() < 300, "{}", error.message);
        let error = Door::Messages.unknown_model("b", []);
        assert_eq!("the model \"b\" does not exist; there are none", error.message);
    }
}
