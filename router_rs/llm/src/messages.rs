//! The messages of `proto/pyserve/llm/v1/engine.proto`, which documents their fields.
//!
//! They are written by hand with prost's derive macros, like the other messages of the mesh; a test
//! compares them with the descriptor of the `.proto`.

mod chat;
mod engine;
mod generate;
mod work;

pub use self::chat::{Chat, ChatMessage, ContentPart, Mode, Part, Tool, ToolCall, ToolChoice};
pub use self::engine::{
    BlocksRemoved, BlocksStored, CacheCleared, CacheEvent, CacheEventBatch, CacheEventsRequest,
    Event, LoadRequest, LoadResponse, Model, ModelsRequest, ModelsResponse,
};
pub use self::generate::{
    Delta, FinishReason, GenerateInput, GenerateRequest, Kind, Prompt, PromptInput, Prompts,
    ResponseFormat, Sampling, Timing, TokenIds, TokenLogprob, ToolCallDelta, Usage,
};
pub use self::work::{
    AbortRequest, AbortResponse, DetokenizeRequest, DetokenizeResponse, EmbedRequest,
    EmbedResponse, Embedding, ScoreRequest, ScoreResponse, TokenizeInput, TokenizeRequest,
    TokenizeResponse, TranscribeRequest,
};
