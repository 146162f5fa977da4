//! The destination of connections: a replica, an address, or a server in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use router_io::tls::ClientTls;
use thiserror::Error;
use tokio::io::DuplexStream;

pub use router_arena::ARENA_BYTES_DEFAULT;

use super::keepalive::KeepaliveConfig;
use super::reachability::Reachability;

/// How long a table waits for its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// A replica that has not finished the handshake after this time counts as unreachable. If
    /// there is a Unix socket, half of the time is for that and half for TCP.
    pub connect: Duration,
    /// A replica that has a whole request and sends nothing for this long fails it; `None`: no
    /// limit.
    pub silence: Option<Duration>,
    /// The memory for large bodies that each connection over a Unix socket offers to share; `None`:
    /// none.
    pub arena_bytes: Option<usize>,
}

impl Default for ReplicaLimits {
    /// On the same network a handshake takes milliseconds; two seconds are arbitrary.
    fn default() -> Self {
        let arena_bytes = Some(ARENA_BYTES_DEFAULT);
        Self { connect: Duration::from_secs(2), silence: None, arena_bytes }
    }
}

/// Identifies a target in the pools of all threads; never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetKey(pub u64);

impl TargetKey {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The destination of connections.
#[derive(Debug)]
pub struct Target {
    key: TargetKey,
    way: Way,
    reachability: Reachability,
    /// A replica that was found not to know the wire.
    is_unwired: AtomicBool,
}

#[derive(Debug)]
pub(super) enum Way {
    Replica(ReplicaTarget),
    Address(AddressTarget),
    Local(Box<dyn LocalServer>),
}

/// A server in this process, reached without a socket.
pub trait LocalServer: Send + Sync + std::fmt::Debug {
    /// Begins to serve a connection on this thread, and returns its other end. The server trusts it
    /// without a proof.
    fn connect(&self) -> DuplexStream;
}

/// A replica of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaTarget {
    pub replica_id: String,
    pub node: String,
    /// `host:port`
    pub address: String,
    /// Tried first; set only if the replica is on this node.
    pub unix_path: Option<PathBuf>,
    /// The mesh token; empty: no proof.
    pub token: Arc<[u8]>,
    /// It must prove the token too; false: it is of a release that cannot.
    pub proves_itself: bool,
    /// For TCP.
    pub tls: Option<Arc<ClientTls>>,
    pub limits: ReplicaLimits,
}

/// Any gRPC server.
#[derive(Clone, Debug)]
pub struct AddressTarget {
    pub address: DialAddress,
    pub tls: Option<Arc<ClientTls>>,
    pub keepalive: KeepaliveConfig,
}

/// The kind of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialAddress {
    /// `host:port`
    Tcp(String),
    Unix(PathBuf),
}

/// Why no connection was made. Clones go to every call that waited for it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DialError {
    #[error("cannot connect to {address}: {cause}")]
    Connect { address: String, cause: String },
    #[error("cannot connect to {address} within {} s", .limit.as_secs_f64())]
    TimedOut { address: String, limit: Duration },
    #[error("the HTTP/2 handshake failed: {0}")]
    Handshake(String),
    #[error("expected replica {expected}, found {found}")]
    WrongReplica { expected: String, found: String },
    #[error("the replica answered the handshake without a nonce")]
    NoNonce,
    #[error("who answers in the place of replica {replica_id} does not have the mesh token")]
    Unproven { replica_id: String },
}

impl DialError {
    pub fn handshake(error: &h2::Error) -> Self {
        Self::Handshake(error.to_string())
    }
}

impl Target {
    pub fn replica(replica: ReplicaTarget) -> Arc<Self> {
        Self::by(Way::Replica(replica))
    }

    pub fn address(address: AddressTarget) -> Arc<Self> {
        Self::by(Way::Address(address))
    }

    pub fn local(server: Box<dyn LocalServer>) -> Arc<Self> {
        Self::by(Way::Local(server))
    }

    fn by(way: Way) -> Arc<Self> {
        Arc::new(Self {
            key: TargetKey::fresh(),
            way,
            reachability: Reachability::default(),
            is_unwired: AtomicBool::default(),
        })
    }

    /// How long it may send nothing for a call that it has; `None`: no limit.
    pub fn silence_limit(&self) -> Option<Duration> {
        self.as_replica().and_then(|replica| replica.limits.silence)
    }

    /// The replica, if it is one.
    pub fn as_replica(&self) -> Option<&ReplicaTarget> {
        match &self.way {
            Way::Replica(replica) => Some(replica),
            Way::Address(_) | Way::Local(_) => None,
        }
    }

    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    pub(super) fn is_unwired(&self) -> bool {
        self.is_unwired.load(Ordering::Relaxed)
    }

    pub(super) fn set_unwired(&self) {
        self.is_unwired.store(true, Ordering::Relaxed);
    }

    pub fn reachability(&self) -> &Reachability {
        &self.reachability
    }

    pub fn key(&self) -> TargetKey {
        self.key
    }
}

impl std::fmt::Display for DialAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DialAddress::Tcp(address) => formatter.write_str(address),
            DialAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}
