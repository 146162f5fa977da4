//! `POST /tokenize` and `POST /detokenize`, as vLLM has them.

use bytes::{Bytes, BytesMut};
use prost::Message;
use router_protocol::grpc::Status;

use crate::answers::{One, WriteOne};
use crate::chat::read_chat;
use crate::errors::ApiError;
use crate::json::{Json, Wrong};
use crate::messages::{
    DetokenizeRequest as EngineDetokenize, DetokenizeResponse, TokenizeInput,
    TokenizeRequest as EngineTokenize, TokenizeResponse,
};
use crate::request::ApiRequest;
use crate::sampling::token_ids;
use crate::write::{put, put_integer, put_list, put_text};
use crate::{DETOKENIZE, Opened, Resolved, TOKENIZE};

#[derive(Debug)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    request: EngineTokenize,
}

#[derive(Debug)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    request: EngineDetokenize,
}

#[derive(Debug)]
struct Tokens {
    has_texts: bool,
}

#[derive(Debug)]
struct Text;

// === impl TokenizeRequest ===

impl TokenizeRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let model = body.text("model")?;
        let input = match body.read("prompt", Json::text)? {
            Some(_) if body.peek("messages").is_some() => {
                let what = "is for a text and messages for a chat; send one of them";
                return Err(Wrong::new(what).at("prompt").into());
            }
            Some(text) => TokenizeInput::Text(text),
            None if body.peek("messages").is_none() => {
                return Err(Wrong::new("is missing; send it, or messages").at("prompt").into());
            }
            None => TokenizeInput::Chat(read_chat(&mut body)?),
        };
        let request = EngineTokenize {
            model: String::new(),
            input: Some(input),
            add_special_tokens: body.boolean("add_special_tokens")?,
            return_token_strs: body.boolean("return_token_strs")?.unwrap_or(false),
        };
        Ok(Self { model, request })
    }
}

impl ApiRequest for TokenizeRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let request = EngineTokenize { model: resolved.model, ..self.request };
        let writer = Tokens { has_texts: request.return_token_strs };
        let message = Bytes::from(request.encode_to_vec());
        Opened { path: TOKENIZE, message, answer: Box::new(One::new(writer)) }
    }
}

impl WriteOne for Tokens {
    type Message = TokenizeResponse;

    fn write(&self, response: TokenizeResponse, out: &mut BytesMut) -> Result<(), Status> {
        put(out, r#"{"count":"#);
        put_integer(out, response.token_ids.len() as u64);
        put(out, r#","max_model_len":"#);
        match response.max_model_len {
            0 => put(out, "null"),
            length => put_integer(out, length.into()),
        }
        put(out, r#","tokens":"#);
        put_list(out, &response.token_ids, |out, id| put_integer(out, u64::from(*id)));
        put(out, r#","token_strs":"#);
        if self.has_texts {
            put_list(out, &response.token_strs, |out, text| put_text(out, text));
        } else {
            put(out, "null");
        }
        put(out, "}");
        Ok(())
    }
}

// === impl DetokenizeRequest ===

impl DetokenizeRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let model = body.text("model")?;
        let token_ids = body.need("tokens", token_ids)?;
        Ok(Self { model, request: EngineDetokenize { model: String::new(), token_ids } })
    }
}

impl ApiRequest for DetokenizeRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let request = EngineDetokenize { model: resolved.model, ..self.request };
        let message = Bytes::from(request.encode_to_vec());
        Opened { path: DETOKENIZE, message, answer: Box::new(One::new(Text)) }
    }
}

impl WriteOne for Text {
    type Message = DetokenizeResponse;

    fn write(&self, response: DetokenizeResponse, out: &mut BytesMut) -> Result<(), Status> {
        put(out, r#"{"prompt":"#);
        put_text(out, &response.text);
        put(out, "}");
        Ok(())
    }
}
