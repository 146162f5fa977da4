//! Counts the tokens that a request of Messages would have.

use bytes::BytesMut;
use prost::Message;
use router_protocol::grpc::Status;
use serde::Serialize;

use crate::answers::{One, WriteOne};
use crate::errors::Dialect;
use crate::events::put_json;
use crate::json::{Json, Wrong};
use crate::messages::{Chat, TokenizeInput, TokenizeRequest, TokenizeResponse};
use crate::request::ApiRequest;
use crate::{Opened, Resolved, TOKENIZE};

use super::message::request_id;
use super::request::read_countable;

#[derive(Debug)]
pub(crate) struct CountTokensRequest {
    model: Option<String>,
    chat: Chat,
}

#[derive(Debug)]
struct TokenCount;

#[derive(Serialize)]
struct Count {
    input_tokens: usize,
}

impl CountTokensRequest {
    /// # Errors
    /// A field is missing, or is not what the API's document says.
    pub(crate) fn read(body: Json<'_>) -> Result<Self, Wrong> {
        let (model, chat) = read_countable(body)?;
        Ok(Self { model, chat })
    }
}

impl ApiRequest for CountTokensRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let request = TokenizeRequest {
            model: resolved.model,
            input: Some(TokenizeInput::Chat(self.chat)),
            ..TokenizeRequest::default()
        };
        let id = request_id(resolved.id);
        Opened {
            path: TOKENIZE,
            message: request.encode_to_vec().into(),
            answer: Box::new(One::in_dialect(TokenCount, Dialect::Anthropic, id)),
        }
    }
}

impl WriteOne for TokenCount {
    type Message = TokenizeResponse;

    fn write(&self, response: TokenizeResponse, out: &mut BytesMut) -> Result<(), Status> {
        put_json(out, &Count { input_tokens: response.token_ids.len() });
        Ok(())
    }
}
