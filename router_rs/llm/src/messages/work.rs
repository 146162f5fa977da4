//! The calls besides `Generate`.

use bytes::Bytes;
use prost::{Message, Oneof};

use super::chat::Chat;
use super::generate::{Prompt, Usage};

#[derive(Clone, PartialEq, Message)]
pub struct EmbedRequest {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(message, repeated, tag = "2")]
    pub inputs: Vec<Prompt>,
    #[prost(uint32, tag = "3")]
    pub dimensions: u32,
    #[prost(string, tag = "4")]
    pub user: String,
    #[prost(string, tag = "5")]
    pub other_json: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EmbedResponse {
    #[prost(message, repeated, tag = "1")]
    pub embeddings: Vec<Embedding>,
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Usage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Embedding {
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScoreRequest {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(string, repeated, tag = "2")]
    pub queries: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub documents: Vec<String>,
    #[prost(string, tag = "4")]
    pub other_json: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScoreResponse {
    #[prost(float, repeated, tag = "1")]
    pub scores: Vec<f32>,
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Usage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TokenizeRequest {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(oneof = "TokenizeInput", tags = "2, 3")]
    pub input: Option<TokenizeInput>,
    #[prost(bool, optional, tag = "4")]
    pub add_special_tokens: Option<bool>,
    #[prost(bool, tag = "5")]
    pub return_token_strs: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum TokenizeInput {
    #[prost(string, tag = "2")]
    Text(String),
    #[prost(message, tag = "3")]
    Chat(Chat),
}

#[derive(Clone, PartialEq, Message)]
pub struct TokenizeResponse {
    #[prost(uint32, repeated, tag = "1")]
    pub token_ids: Vec<u32>,
    #[prost(uint32, tag = "2")]
    pub max_model_len: u32,
    #[prost(string, repeated, tag = "3")]
    pub token_strs: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DetokenizeRequest {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(uint32, repeated, tag = "2")]
    pub token_ids: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DetokenizeResponse {
    #[prost(string, tag = "1")]
    pub text: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct TranscribeRequest {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(string, tag = "2")]
    pub model: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub audio: Bytes,
    #[prost(string, tag = "4")]
    pub filename: String,
    #[prost(string, tag = "5")]
    pub content_type: String,
    #[prost(string, tag = "6")]
    pub language: String,
    #[prost(string, tag = "7")]
    pub prompt: String,
    #[prost(string, tag = "8")]
    pub response_format: String,
    #[prost(float, optional, tag = "9")]
    pub temperature: Option<f32>,
    #[prost(string, repeated, tag = "10")]
    pub timestamp_granularities: Vec<String>,
    #[prost(bool, tag = "11")]
    pub stream: bool,
    #[prost(string, tag = "12")]
    pub other_json: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AbortRequest {
    #[prost(string, tag = "1")]
    pub request_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AbortResponse {
    #[prost(bool, tag = "1")]
    pub found: bool,
}
