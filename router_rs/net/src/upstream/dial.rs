//! Opening a connection to a replica or to an address.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::io::DuplexStream;
use tokio::net::{TcpSocket, TcpStream, UnixSocket, lookup_host};
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

use super::connection::Connection;
use super::handshake::introduce;
use super::liveness::LivenessConfig;
use super::vitals::{self, Vitals};
use crate::io::tls::ClientTls;
use crate::io::{CountedTcp, Peer, QuietUnixStream, Stream, between_forks, note_opened, tune};

/// How long a table waits for its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// One that has not finished the handshake after so long counts as unreachable. Where there is
    /// a Unix socket, half of it is for that and half for TCP.
    pub connect: Duration,
    /// One that has a whole request and sends nothing for so long fails it; `None`: never.
    pub silence: Option<Duration>,
}

impl Default for ReplicaLimits {
    /// On the same network a handshake takes milliseconds; two seconds are arbitrary.
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), silence: None }
    }
}

/// What gRPC allows one connection attempt (connection backoff protocol, `MIN_CONNECT_TIMEOUT`).
const ADDRESS_LIMIT: Duration = Duration::from_secs(20);

/// Names a target in the pools of all threads; never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TargetKey(pub u64);

impl TargetKey {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Something that connections lead to.
#[derive(Debug)]
pub(crate) struct Target {
    key: TargetKey,
    way: Way,
    vitals: Vitals,
}

#[derive(Debug)]
enum Way {
    Replica(ReplicaTarget),
    Address(AddressTarget),
    Local(Box<dyn LocalServer>),
}

/// A server in this process, reached without a socket.
pub(crate) trait LocalServer: Send + Sync + std::fmt::Debug {
    /// Begins to serve a connection on this thread, and returns its other end. The server trusts
    /// it without a proof.
    fn connect(&self) -> DuplexStream;
}

/// A replica of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaTarget {
    pub replica_id: String,
    pub node: String,
    /// `host:port`
    pub address: String,
    /// Tried first; given only when the replica is on this node.
    pub unix_path: Option<PathBuf>,
    /// The mesh token; empty: prove nothing.
    pub token: Arc<[u8]>,
    /// It has to prove the token too; false: it is of a release that cannot.
    pub proves_itself: bool,
    /// For the way over TCP.
    pub tls: Option<Arc<ClientTls>>,
    pub limits: ReplicaLimits,
}

/// Any gRPC server.
#[derive(Clone, Debug)]
pub(crate) struct AddressTarget {
    pub endpoint: Endpoint,
    pub tls: Option<Arc<ClientTls>>,
    pub liveness: LivenessConfig,
}

/// Where an address leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `host:port`
    Tcp(String),
    Unix(PathBuf),
}

/// Why there is no connection. Clones go to every call that waited for it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum DialError {
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
    pub(crate) fn handshake(error: &h2::Error) -> Self {
        Self::Handshake(error.to_string())
    }
}

impl Target {
    pub(crate) fn replica(replica: ReplicaTarget) -> Arc<Self> {
        Self::by(Way::Replica(replica))
    }

    pub(crate) fn address(address: AddressTarget) -> Arc<Self> {
        Self::by(Way::Address(address))
    }

    pub(crate) fn local(server: Box<dyn LocalServer>) -> Arc<Self> {
        Self::by(Way::Local(server))
    }

    fn by(way: Way) -> Arc<Self> {
        Arc::new(Self { key: TargetKey::fresh(), way, vitals: Vitals::default() })
    }

    /// How long it may send nothing for a call that it has; `None`: for ever.
    pub(crate) fn silence_limit(&self) -> Option<Duration> {
        self.as_replica().and_then(|replica| replica.limits.silence)
    }

    /// The replica, if it is one.
    pub(crate) fn as_replica(&self) -> Option<&ReplicaTarget> {
        match &self.way {
            Way::Replica(replica) => Some(replica),
            Way::Address(_) | Way::Local(_) => None,
        }
    }

    pub(crate) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    pub(crate) fn key(&self) -> TargetKey {
        self.key
    }
}

/// Opens a connection.
///
/// # Errors
/// Nobody listens, nobody answers in time, or the wrong one answers.
pub(crate) async fn dial(target: &Arc<Target>) -> Result<Rc<Connection>, DialError> {
    match &target.way {
        Way::Replica(replica) => dial_replica(target, replica).await,
        Way::Address(address) => {
            let name = address.endpoint.to_string();
            within(ADDRESS_LIMIT, &name, dial_address(address)).await
        }
        Way::Local(server) => within(ADDRESS_LIMIT, "this process", dial_local(&**server)).await,
    }
}

async fn dial_replica(
    target: &Arc<Target>,
    replica: &ReplicaTarget,
) -> Result<Rc<Connection>, DialError> {
    let limit = replica.limits.connect;
    if let Some(path) = &replica.unix_path {
        let endpoint = Endpoint::Unix(path.clone());
        let name = endpoint.to_string();
        // The path may lie in another mount namespace, so whatever goes wrong here says nothing
        // about the replica: TCP decides (design 13), and gets half of the time.
        let member = dial_member(&endpoint, target, replica);
        if let Ok(connection) = within(limit / 2, &name, member).await {
            return Ok(connection);
        }
    }
    let endpoint = Endpoint::Tcp(replica.address.clone());
    let limit = if replica.unix_path.is_some() { limit / 2 } else { limit };
    within(limit, &replica.address, dial_member(&endpoint, target, replica)).await
}

async fn dial_member(
    endpoint: &Endpoint,
    target: &Arc<Target>,
    replica: &ReplicaTarget,
) -> Result<Rc<Connection>, DialError> {
    let (stream, peer) = connect_securely(endpoint, replica.tls.as_deref()).await?;
    let target = Arc::downgrade(target);
    let on_silence = move || {
        if let Some(target) = target.upgrade() {
            vitals::on_silence(&target);
        }
    };
    let connection =
        Connection::open(stream, peer.uri(), LivenessConfig::MESH, Some(Box::new(on_silence)))
            .await
            .map_err(|error| DialError::handshake(&error))?;
    match introduce(&connection, replica).await {
        Ok(()) => Ok(connection),
        Err(error) => {
            connection.retire();
            Err(error)
        }
    }
}

async fn dial_address(target: &AddressTarget) -> Result<Rc<Connection>, DialError> {
    let (stream, peer) = connect_securely(&target.endpoint, target.tls.as_deref()).await?;
    Connection::open(stream, peer.uri(), target.liveness, None)
        .await
        .map_err(|error| DialError::handshake(&error))
}

async fn dial_local(server: &dyn LocalServer) -> Result<Rc<Connection>, DialError> {
    let connection =
        Connection::open(server.connect(), "in memory".to_owned(), LivenessConfig::LOCAL, None)
            .await
            .map_err(|error| DialError::handshake(&error))?;
    connection.trust();
    Ok(connection)
}

/// Connects, and speaks TLS if there are settings and the way is TCP: a Unix socket stays on the
/// machine, and only its user can open it.
async fn connect_securely(
    endpoint: &Endpoint,
    tls: Option<&ClientTls>,
) -> Result<(Stream, Peer), DialError> {
    let (stream, peer) = connect(endpoint).await?;
    match (tls, stream, endpoint) {
        (Some(tls), Stream::Tcp(stream), Endpoint::Tcp(address)) => {
            Ok((secure(stream, tls, address).await?, peer))
        }
        (_, stream, _) => Ok((stream, peer)),
    }
}

async fn connect(endpoint: &Endpoint) -> Result<(Stream, Peer), DialError> {
    let fault = |error: io::Error| DialError::Connect {
        address: endpoint.to_string(),
        cause: error.to_string(),
    };
    match endpoint {
        Endpoint::Tcp(address) => {
            let stream = between_forks(connect_tcp(address)).await.map_err(fault)?;
            tune(&stream);
            let peer = Peer::Tcp(stream.peer_addr().map_err(fault)?);
            Ok((Stream::Tcp(stream), peer))
        }
        Endpoint::Unix(path) => {
            let connecting = async { note_opened(UnixSocket::new_stream()?)?.connect(path).await };
            let stream = between_forks(connecting).await.and_then(QuietUnixStream::new);
            let stream = stream.map_err(fault)?;
            Ok((Stream::Unix(stream), Peer::Unix))
        }
    }
}

/// Tries each address of a name, as tokio does, with sockets that are noted before they connect.
async fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let mut failed = io::ErrorKind::AddrNotAvailable.into();
    for each in lookup_host(address).await? {
        let socket = if each.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        match note_opened(socket?)?.connect(each).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn secure(stream: TcpStream, tls: &ClientTls, address: &str) -> Result<Stream, DialError> {
    let fault = |cause: String| DialError::Connect { address: address.to_owned(), cause };
    let name = tls.server_name(address).map_err(fault)?;
    let stream = TlsConnector::from(tls.current())
        .connect(name, CountedTcp::from(stream))
        .await
        .map_err(|error| fault(error.to_string()))?;
    Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
}

async fn within<T>(
    limit: Duration,
    address: &str,
    work: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(DialError::TimedOut { address: address.to_owned(), limit }))
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Tcp(address) => formatter.write_str(address),
            Endpoint::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}
