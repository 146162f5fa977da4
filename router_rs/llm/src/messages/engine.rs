//! The state of an engine: its models, its load, its prefix cache.

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct ModelsRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ModelsResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<Model>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, repeated, tag = "2")]
    pub aliases: Vec<String>,
    #[prost(string, tag = "3")]
    pub owned_by: String,
    #[prost(int64, tag = "4")]
    pub created: i64,
    #[prost(uint32, tag = "5")]
    pub max_model_len: u32,
    #[prost(string, tag = "6")]
    pub root: String,
    #[prost(bool, tag = "7")]
    pub takes_adapters: bool,
    #[prost(string, repeated, tag = "8")]
    pub adapters: Vec<String>,
    #[prost(string, repeated, tag = "9")]
    pub tasks: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct LoadResponse {
    #[prost(uint32, tag = "1")]
    pub running_requests: u32,
    #[prost(uint32, tag = "2")]
    pub waiting_requests: u32,
    #[prost(uint64, tag = "3")]
    pub running_tokens: u64,
    #[prost(uint64, tag = "4")]
    pub waiting_tokens: u64,
    #[prost(uint64, tag = "5")]
    pub max_tokens: u64,
    #[prost(double, tag = "6")]
    pub kv_cache_usage: f64,
    #[prost(string, repeated, tag = "7")]
    pub running_adapters: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    pub waiting_adapters: Vec<String>,
    #[prost(uint32, tag = "9")]
    pub max_adapters: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct CacheEventsRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct CacheEventBatch {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(message, repeated, tag = "2")]
    pub events: Vec<CacheEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CacheEvent {
    #[prost(oneof = "Event", tags = "1, 2, 3")]
    pub event: Option<Event>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Event {
    #[prost(message, tag = "1")]
    Stored(BlocksStored),
    #[prost(message, tag = "2")]
    Removed(BlocksRemoved),
    #[prost(message, tag = "3")]
    Cleared(CacheCleared),
}

#[derive(Clone, PartialEq, Message)]
pub struct BlocksStored {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub hashes: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "2")]
    pub parent: Bytes,
    #[prost(uint32, repeated, tag = "3")]
    pub token_ids: Vec<u32>,
    #[prost(uint32, tag = "4")]
    pub block_size: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct BlocksRemoved {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub hashes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CacheCleared {}
