//! What replicas and routers say, of `mesh.proto`: those fields that the simulator uses.
//!
//! Unknown fields are skipped, so what is left out here costs nothing and breaks nothing.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaMessage {
    #[prost(oneof = "Said", tags = "1, 2, 4, 5, 6, 7")]
    pub(crate) kind: Option<Said>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Said {
    #[prost(message, boxed, tag = "1")]
    Hello(Box<Hello>),
    #[prost(message, tag = "2")]
    Ready(Ready),
    #[prost(message, tag = "4")]
    Health(Health),
    #[prost(message, tag = "5")]
    Draining(Empty),
    #[prost(message, tag = "6")]
    Pong(Empty),
    #[prost(message, tag = "7")]
    RoutingStats(RoutingStats),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub(crate) replica_id: String,
    #[prost(string, tag = "2")]
    pub(crate) application: String,
    #[prost(string, tag = "3")]
    pub(crate) deployment: String,
    #[prost(string, tag = "4")]
    pub(crate) version: String,
    #[prost(int64, tag = "5")]
    pub(crate) pid: i64,
    #[prost(string, tag = "6")]
    pub(crate) node: String,
    #[prost(string, tag = "7")]
    pub(crate) zone: String,
    #[prost(message, optional, tag = "8")]
    pub(crate) external: Option<External>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct External {
    #[prost(message, optional, tag = "1")]
    pub(crate) spec: Option<DeploymentSpec>,
    #[prost(string, tag = "2")]
    pub(crate) ingress_deployment: String,
    #[prost(double, tag = "5")]
    pub(crate) started_at: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeploymentSpec {
    #[prost(string, tag = "1")]
    pub(crate) application: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) code: Option<Code>,
    #[prost(string, tag = "5")]
    pub(crate) options_json: String,
    #[prost(bool, tag = "7")]
    pub(crate) is_ingress: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Code {
    #[prost(string, tag = "1")]
    pub(crate) import_path: String,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) fingerprint: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ready {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoints: Option<Endpoints>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) services: Vec<String>,
    #[prost(string, tag = "4")]
    pub(crate) deployment_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Endpoints {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(string, tag = "2")]
    pub(crate) unix_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Health {
    #[prost(bool, tag = "1")]
    pub(crate) healthy: bool,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RoutingStats {
    #[prost(string, tag = "1")]
    pub(crate) json: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaCommand {
    #[prost(oneof = "Told", tags = "1, 2, 4")]
    pub(crate) kind: Option<Told>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Told {
    #[prost(message, tag = "1")]
    Assign(Assign),
    #[prost(message, tag = "2")]
    Drain(Empty),
    #[prost(message, tag = "4")]
    Ping(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Assign {
    #[prost(string, tag = "3")]
    pub(crate) deployment_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(string, tag = "1")]
    pub(crate) node: String,
    #[prost(bool, tag = "3")]
    pub(crate) all: bool,
    #[prost(string, tag = "5")]
    pub(crate) version: String,
    #[prost(bool, tag = "6")]
    pub(crate) takes_patches: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeploymentKey {
    #[prost(string, tag = "1")]
    pub(crate) application: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchUpdate {
    #[prost(uint64, tag = "1")]
    pub(crate) base_version: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) version: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) changed: Vec<DeploymentView>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) removed: Vec<DeploymentKey>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) patched: Vec<ViewPatch>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeploymentView {
    #[prost(message, optional, tag = "1")]
    pub(crate) key: Option<DeploymentKey>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) replicas: Vec<ReplicaView>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ViewPatch {
    #[prost(message, optional, tag = "1")]
    pub(crate) key: Option<DeploymentKey>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) changed: Vec<ReplicaView>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) removed: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaView {
    #[prost(string, tag = "1")]
    pub(crate) replica_id: String,
    #[prost(string, tag = "6")]
    pub(crate) routing_stats_json: String,
}
