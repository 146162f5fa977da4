//! `Generate`: its request and its deltas.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

use super::chat::Chat;

#[derive(Clone, PartialEq, Message)]
pub struct GenerateRequest {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(string, tag = "2")]
    pub model: String,
    #[prost(oneof = "GenerateInput", tags = "3, 4")]
    pub input: Option<GenerateInput>,
    #[prost(message, optional, tag = "5")]
    pub sampling: Option<Sampling>,
    #[prost(uint32, tag = "6")]
    pub n: u32,
    #[prost(uint32, tag = "7")]
    pub max_tokens: u32,
    #[prost(string, repeated, tag = "8")]
    pub stop: Vec<String>,
    #[prost(uint32, repeated, tag = "9")]
    pub stop_token_ids: Vec<u32>,
    #[prost(bool, tag = "10")]
    pub logprobs: bool,
    #[prost(uint32, tag = "11")]
    pub top_logprobs: u32,
    #[prost(message, optional, tag = "12")]
    pub response_format: Option<ResponseFormat>,
    #[prost(bool, tag = "13")]
    pub stream: bool,
    #[prost(string, tag = "14")]
    pub user: String,
    #[prost(string, tag = "15")]
    pub other_json: String,
    #[prost(int32, tag = "16")]
    pub priority: i32,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum GenerateInput {
    #[prost(message, tag = "3")]
    Chat(Chat),
    #[prost(message, tag = "4")]
    Prompts(Prompts),
}

#[derive(Clone, PartialEq, Message)]
pub struct Prompts {
    #[prost(message, repeated, tag = "1")]
    pub prompts: Vec<Prompt>,
    #[prost(string, tag = "2")]
    pub suffix: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Prompt {
    #[prost(oneof = "PromptInput", tags = "1, 2")]
    pub prompt: Option<PromptInput>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum PromptInput {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(message, tag = "2")]
    TokenIds(TokenIds),
}

#[derive(Clone, PartialEq, Message)]
pub struct TokenIds {
    #[prost(uint32, repeated, tag = "1")]
    pub ids: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResponseFormat {
    #[prost(enumeration = "Kind", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub schema_json: String,
    #[prost(bool, optional, tag = "4")]
    pub strict: Option<bool>,
    #[prost(string, tag = "5")]
    pub other_json: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Kind {
    Unspecified = 0,
    JsonObject = 1,
    JsonSchema = 2,
    Other = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sampling {
    #[prost(float, optional, tag = "1")]
    pub temperature: Option<f32>,
    #[prost(float, optional, tag = "2")]
    pub top_p: Option<f32>,
    #[prost(int32, optional, tag = "3")]
    pub top_k: Option<i32>,
    #[prost(float, optional, tag = "4")]
    pub min_p: Option<f32>,
    #[prost(float, optional, tag = "5")]
    pub presence_penalty: Option<f32>,
    #[prost(float, optional, tag = "6")]
    pub frequency_penalty: Option<f32>,
    #[prost(float, optional, tag = "7")]
    pub repetition_penalty: Option<f32>,
    #[prost(int64, optional, tag = "8")]
    pub seed: Option<i64>,
    #[prost(btree_map = "int32, float", tag = "9")]
    pub logit_bias: BTreeMap<i32, f32>,
    #[prost(bool, tag = "10")]
    pub ignore_eos: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Delta {
    #[prost(uint32, tag = "1")]
    pub index: u32,
    #[prost(string, tag = "2")]
    pub text: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub text_bytes: Bytes,
    #[prost(uint32, repeated, tag = "4")]
    pub token_ids: Vec<u32>,
    #[prost(string, tag = "5")]
    pub reasoning: String,
    #[prost(message, repeated, tag = "6")]
    pub tool_calls: Vec<ToolCallDelta>,
    #[prost(string, tag = "7")]
    pub refusal: String,
    #[prost(message, repeated, tag = "8")]
    pub logprobs: Vec<TokenLogprob>,
    #[prost(enumeration = "FinishReason", tag = "9")]
    pub finish_reason: i32,
    #[prost(string, tag = "10")]
    pub stop_sequence: String,
    #[prost(message, optional, tag = "11")]
    pub usage: Option<Usage>,
    #[prost(message, optional, tag = "12")]
    pub timing: Option<Timing>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ToolCallDelta {
    #[prost(uint32, tag = "1")]
    pub index: u32,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub arguments: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct TokenLogprob {
    #[prost(string, tag = "1")]
    pub token: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub token_bytes: Bytes,
    #[prost(float, tag = "3")]
    pub logprob: f32,
    #[prost(message, repeated, tag = "4")]
    pub top: Vec<TokenLogprob>,
    #[prost(uint32, tag = "5")]
    pub token_id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum FinishReason {
    Unspecified = 0,
    Stop = 1,
    Length = 2,
    ToolCalls = 3,
    ContentFilter = 4,
}

#[derive(Clone, PartialEq, Message)]
pub struct Usage {
    #[prost(uint32, tag = "1")]
    pub prompt_tokens: u32,
    #[prost(uint32, tag = "2")]
    pub completion_tokens: u32,
    #[prost(uint32, tag = "3")]
    pub cached_tokens: u32,
    #[prost(uint32, tag = "4")]
    pub reasoning_tokens: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Timing {
    #[prost(double, tag = "1")]
    pub waited_s: f64,
    #[prost(double, tag = "2")]
    pub prefill_s: f64,
}
