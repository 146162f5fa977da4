//! Opening a connection to a replica or to an address.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use router_io::tls::ClientTls;
use router_io::{CountedTcp, Peer, QuietUnixStream, Stream, between_forks, note_opened, tune};
use tokio::net::{TcpSocket, TcpStream, UnixSocket, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsConnector, TlsStream};

use super::connection::{Connection, OnSilence};
use super::handshake::introduce;
use super::keepalive::KeepaliveConfig;
use super::target::{
    AddressTarget, DialAddress, DialError, LocalServer, ReplicaTarget, Target, Way,
};
use super::wire::{self, Unwired};

/// gRPC's limit for one connection attempt (connection backoff protocol, `MIN_CONNECT_TIMEOUT`).
const ADDRESS_LIMIT: Duration = Duration::from_secs(20);

/// The pause between two attempts to connect to a silent replica that fail at once. A process that
/// is gone is avoided by its router's backoff in any case, so this value is not critical.
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// Opens a connection.
///
/// # Errors
/// The address refuses connections, does not answer in time, or belongs to another peer.
pub(crate) async fn dial(target: &Arc<Target>) -> Result<Rc<Connection>, DialError> {
    match target.way() {
        Way::Replica(replica) => dial_replica(target, replica).await,
        Way::Address(target) => {
            let name = target.address.to_string();
            within(ADDRESS_LIMIT, &name, dial_address(target)).await
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
        let address = DialAddress::Unix(path.clone());
        let name = address.to_string();
        // The path may be in another mount namespace, so a failure here proves nothing about the
        // replica: TCP decides (design 13), and gets half of the time.
        let member = dial_member(&address, target, replica);
        if let Ok(connection) = within(limit / 2, &name, member).await {
            return Ok(connection);
        }
    }
    let address = DialAddress::Tcp(replica.address.clone());
    let limit = if replica.unix_path.is_some() { limit / 2 } else { limit };
    within(limit, &replica.address, dial_member(&address, target, replica)).await
}

/// Over the wire, or over HTTP/2 if the replica has no token to prove or is of a release without
/// the wire.
async fn dial_member(
    address: &DialAddress,
    target: &Arc<Target>,
    replica: &ReplicaTarget,
) -> Result<Rc<Connection>, DialError> {
    let may_wire = !replica.token.is_empty() && replica.proves_itself && !target.is_unwired();
    let mut is_unspoken = false;
    let (mut stream, peer) = connect_securely(address, replica.tls.as_deref()).await?;
    if may_wire {
        match wire::greet(&mut stream, replica).await {
            Ok(arena) => {
                let (on_silence, config) = (Some(watcher(target)), KeepaliveConfig::MESH);
                let shared = (stream, arena);
                let connection = Connection::over_wire(shared, peer.uri(), config, on_silence);
                connection.trust();
                return Ok(connection);
            }
            Err(Unwired::Failed(error)) => return Err(error),
            Err(unwired) => {
                is_unspoken = matches!(unwired, Unwired::Unspoken);
                (stream, _) = connect_securely(address, replica.tls.as_deref()).await?;
            }
        }
    }
    let on_silence = Some(watcher(target));
    let connection = Connection::open(stream, peer.uri(), KeepaliveConfig::MESH, on_silence)
        .await
        .map_err(|error| DialError::handshake(&error))?;
    match introduce(&connection, replica).await {
        Ok(()) => {
            if is_unspoken {
                target.set_unwired();
            }
            Ok(connection)
        }
        Err(error) => {
            connection.retire();
            Err(error)
        }
    }
}

/// Reports that `target` does not answer, as long as the target is in use.
fn watcher(target: &Arc<Target>) -> OnSilence {
    let target = Arc::downgrade(target);
    Box::new(move || target.upgrade().iter().for_each(on_silence))
}

async fn dial_address(target: &AddressTarget) -> Result<Rc<Connection>, DialError> {
    let (stream, peer) = connect_securely(&target.address, target.tls.as_deref()).await?;
    Connection::open(stream, peer.uri(), target.keepalive, None)
        .await
        .map_err(|error| DialError::handshake(&error))
}

async fn dial_local(server: &dyn LocalServer) -> Result<Rc<Connection>, DialError> {
    let connection =
        Connection::open(server.connect(), "in memory".to_owned(), KeepaliveConfig::LOCAL, None)
            .await
            .map_err(|error| DialError::handshake(&error))?;
    connection.trust();
    Ok(connection)
}

/// Connects, and uses TLS if there are settings for it and the transport is TCP: a Unix socket
/// stays on the machine, and only its user can open it.
async fn connect_securely(
    address: &DialAddress,
    tls: Option<&ClientTls>,
) -> Result<(Stream, Peer), DialError> {
    let (stream, peer) = connect(address).await?;
    match (tls, stream, address) {
        (Some(tls), Stream::Tcp(stream), DialAddress::Tcp(address)) => {
            Ok((secure(stream, tls, address).await?, peer))
        }
        (_, stream, _) => Ok((stream, peer)),
    }
}

async fn connect(address: &DialAddress) -> Result<(Stream, Peer), DialError> {
    let fault = |error: io::Error| DialError::Connect {
        address: address.to_string(),
        cause: error.to_string(),
    };
    match address {
        DialAddress::Tcp(address) => {
            let stream = between_forks(connect_tcp(address)).await.map_err(fault)?;
            tune(&stream);
            let peer = Peer::Tcp(stream.peer_addr().map_err(fault)?);
            Ok((Stream::Tcp(stream), peer))
        }
        DialAddress::Unix(path) => {
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

/// `target` does not answer. Call it within a `LocalRuntime`.
pub(crate) fn on_silence(target: &Arc<Target>) {
    if target.as_replica().is_some() && target.reachability().set_silent(true) {
        tokio::task::spawn_local(probe(Probe { target: Arc::downgrade(target) }));
    }
}

/// Connects until it works, or the target has been dropped.
async fn probe(probe: Probe) {
    loop {
        let Some(target) = probe.target.upgrade() else { return };
        match dial(&target).await {
            // The connection has proven that the target is alive; calls open their own.
            Ok(connection) => return connection.retire(),
            Err(_) => drop(target),
        }
        sleep(PROBE_PAUSE).await;
    }
}

/// At its end the target counts as heard: it answered, or nothing is left that could find out.
struct Probe {
    target: Weak<Target>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(target) = self.target.upgrade() {
            target.reachability().set_silent(false);
        }
    }
}
