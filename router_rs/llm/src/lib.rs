//! The HTTP APIs of OpenAI and Anthropic in front of an engine for language models.
//!
//! A [`Door`] is an endpoint of these APIs, such as `/v1/chat/completions`. [`Door::find`] returns
//! the door at a path, [`Door::read`] parses a request's body, and [`Request::open`] turns it into
//! the message of one call of `pyserve.llm.v1.Engine`. An [`Answer`] turns the engine's messages
//! into the client's events, or into one JSON object. All of it is pure: messages in, bytes out; no
//! socket, no clock, no randomness.
//!
//! If an engine's answer deviates from the documentation of an API, it is corrected here, since
//! clients rely on that documentation.

#![forbid(unsafe_code)]

mod answers;
mod call_json;
mod chat;
mod completions;
mod dialogue;
mod door;
mod embeddings;
mod errors;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generation;
mod hold;
mod json;
mod logprobs;
pub mod messages;
mod messages_api;
mod models;
mod multipart;
mod parts;
mod prompts;
mod reason;
mod request;
mod responses;
mod sampling;
mod score;
mod shape;
#[cfg(test)]
mod tests;
mod tokenize;
mod transcriptions;
mod turn;
mod turn_answers;
mod usage;
mod write;

pub use door::{Door, Found, model_name, short_list};
pub use errors::{ApiError, Dialect};
pub use models::{ModelCard, answer_model, answer_models};
pub use request::Request;

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use router_protocol::grpc::Status;

const GENERATE: &str = "/pyserve.llm.v1.Engine/Generate";
const EMBED: &str = "/pyserve.llm.v1.Engine/Embed";
const SCORE: &str = "/pyserve.llm.v1.Engine/Score";
const TOKENIZE: &str = "/pyserve.llm.v1.Engine/Tokenize";
const TRANSCRIBE: &str = "/pyserve.llm.v1.Engine/Transcribe";
const DETOKENIZE: &str = "/pyserve.llm.v1.Engine/Detokenize";

/// The call of an engine, and the [`Answer`] that turns its messages into the client's answer.
#[derive(Debug)]
pub struct Opened {
    /// The method, `/pyserve.llm.v1.Engine/...`.
    pub path: &'static str,
    /// The serialized request message.
    pub message: Bytes,
    pub answer: Box<dyn Answer>,
}

/// The values that a request needs besides its body.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The model's name as the client wrote it, which its answer repeats.
    pub asked: String,
    /// Its name at the engine, with the adapter.
    pub model: String,
    /// Unique: the ids of the answer and of its parts are made from it.
    pub id: u128,
    /// Unix time in seconds.
    pub created: u64,
}

/// Turns an engine's answer into the client's.
///
/// Nothing is called after [`Output::is_ended`]. A long message may be converted on another thread.
pub trait Answer: Debug + Send {
    /// The engine's next message, serialized. If it ends the output, the client's answer is
    /// complete (it has reached a stop sequence), and the engine has to be stopped.
    ///
    /// # Errors
    /// The engine's answer makes no sense; [`Answer::fail`] must report it.
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status>;

    /// The engine has ended its answer without an error.
    fn finish(&mut self, output: &mut Output);

    /// The engine, or the mesh in front of it, has failed, maybe before the first message.
    /// `headers` are added to the answer if its head has not been sent.
    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output);

    /// Nothing has come from the engine for a while: a stream begins, if it has not, and gets a
    /// comment line that keeps it alive. Other answers do nothing.
    fn keep_alive(&mut self, output: &mut Output);
}

/// Output for the client, in this order.
#[derive(Debug, Default)]
pub struct Output {
    /// Once, before any of the body.
    pub head: Option<Head>,
    pub body: BytesMut,
    /// Nothing follows.
    pub is_ended: bool,
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    pub status: StatusCode,
    /// `content-type` among them.
    pub headers: HeaderMap,
}
