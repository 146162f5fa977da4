//! What the controller says to routers about one deployment: `DeploymentView` of
//! `proto/pyserve/wire/v1/mesh.proto`, where the fields are explained.
//!
//! Written by hand, as the messages of [`load`](super::load). Fields that only the Python half
//! reads are not here; the decoder skips them.

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct DeploymentView {
    #[prost(message, optional, tag = "1")]
    pub key: Option<DeploymentKey>,
    #[prost(string, repeated, tag = "2")]
    pub services: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub replicas: Vec<ReplicaView>,
    #[prost(int32, tag = "4")]
    pub max_queued_requests: i32,
    #[prost(double, tag = "5")]
    pub request_timeout_s: f64,
    #[prost(int64, tag = "6")]
    pub max_request_bytes: i64,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub file_descriptors: Vec<Bytes>,
    #[prost(string, repeated, tag = "9")]
    pub http_prefixes: Vec<String>,
    #[prost(int32, tag = "10")]
    pub queue_full_status: i32,
    #[prost(double, tag = "11")]
    pub retry_after_s: f64,
    #[prost(message, optional, tag = "12")]
    pub router: Option<RouterSettings>,
    #[prost(string, repeated, tag = "13")]
    pub idempotent_methods: Vec<String>,
    #[prost(message, repeated, tag = "14")]
    pub traffic: Vec<Share>,
    #[prost(message, repeated, tag = "15")]
    pub mirror: Vec<Share>,
    #[prost(bool, tag = "16")]
    pub is_scaled_to_zero: bool,
    #[prost(message, repeated, tag = "19")]
    pub engine_models: Vec<EngineModel>,
    #[prost(string, tag = "20")]
    pub llm_prefix: String,
}

/// A model of an engine for language models, as `pyserve.llm.v1.Model`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EngineModel {
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
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeploymentKey {
    #[prost(string, tag = "1")]
    pub application: String,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Share {
    #[prost(message, optional, tag = "1")]
    pub key: Option<DeploymentKey>,
    #[prost(double, tag = "2")]
    pub weight: f64,
}

/// Options that are numbers are not here: the process of the router completes them from its
/// environment, and hands them over by their names.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RouterSettings {
    #[prost(string, tag = "1")]
    pub policy: String,
    #[prost(uint32, repeated, tag = "15")]
    pub retry_codes: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReplicaView {
    #[prost(string, tag = "1")]
    pub replica_id: String,
    #[prost(string, tag = "2")]
    pub node: String,
    #[prost(string, tag = "3")]
    pub zone: String,
    #[prost(message, optional, tag = "4")]
    pub endpoints: Option<Endpoints>,
    #[prost(int32, tag = "5")]
    pub max_ongoing_requests: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Endpoints {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(string, tag = "2")]
    pub unix_path: String,
    #[prost(bool, tag = "5")]
    pub proves_itself: bool,
}
