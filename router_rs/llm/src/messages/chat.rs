//! A chat to continue.

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct Chat {
    #[prost(message, repeated, tag = "1")]
    pub messages: Vec<ChatMessage>,
    #[prost(message, repeated, tag = "2")]
    pub tools: Vec<Tool>,
    #[prost(message, optional, tag = "3")]
    pub tool_choice: Option<ToolChoice>,
    #[prost(bool, optional, tag = "4")]
    pub parallel_tool_calls: Option<bool>,
    #[prost(string, tag = "5")]
    pub reasoning_effort: String,
    #[prost(string, tag = "6")]
    pub chat_template: String,
    #[prost(string, tag = "7")]
    pub chat_template_kwargs_json: String,
    #[prost(bool, optional, tag = "8")]
    pub add_generation_prompt: Option<bool>,
    #[prost(bool, tag = "9")]
    pub continue_final_message: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct ChatMessage {
    #[prost(string, tag = "1")]
    pub role: String,
    #[prost(message, repeated, tag = "2")]
    pub content: Vec<ContentPart>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, repeated, tag = "4")]
    pub tool_calls: Vec<ToolCall>,
    #[prost(string, tag = "5")]
    pub tool_call_id: String,
    #[prost(string, tag = "6")]
    pub reasoning: String,
    #[prost(string, tag = "7")]
    pub other_json: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContentPart {
    #[prost(oneof = "Part", tags = "1, 2")]
    pub part: Option<Part>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Part {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(string, tag = "2")]
    Json(String),
}

#[derive(Clone, PartialEq, Message)]
pub struct ToolCall {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub arguments: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Tool {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub parameters_json: String,
    #[prost(bool, optional, tag = "4")]
    pub strict: Option<bool>,
    #[prost(string, tag = "5")]
    pub other_json: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ToolChoice {
    #[prost(enumeration = "Mode", tag = "1")]
    pub mode: i32,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Mode {
    Unspecified = 0,
    None = 1,
    Required = 2,
    Named = 3,
}
