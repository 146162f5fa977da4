//! A server's ports for strangers, and its doors: ports that accept more than gRPC over HTTP/2.
//!
//! At both, the limits of a front apply. gRPC is handled as it is elsewhere. At a door, all other
//! protocols go through the same front as at an ingress. The front forwards them to the server over
//! a connection in memory, one per client connection. So calls have their client's address and
//! certificates, and the gate counts them together with all others.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use router_front::{
    Arrival, Backend, FixedServer, Front, FrontConfig, FrontLimits, Greeting, Opened,
    PendingConnection, ServerBehind, open, serve_http1,
};
use router_io::phase::Phase;
use router_io::tls::ServerTls;
use router_io::{IoThread, Remote, on_buffers_freed};
use router_transcode as transcode;
use router_transcode::ServiceRoute;
use router_upstream::target::{LocalServer, Target};
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connection;
use super::connection_state::{Guest, Host};
use super::served_call::ConnectionInfo;
use super::state::ServerState;

/// How much one side may write before the other has read; a quarter of a stream's window.
const BUFFER_BYTES: usize = 64 * 1024;

/// The front of a server, in front of itself.
pub(super) fn front(
    server: &Arc<ServerState>,
    io_threads: usize,
    phase: watch::Receiver<Phase>,
) -> Arc<Front> {
    let config = &server.config;
    let limits = FrontLimits {
        // As many as there are descriptors for, as without a door.
        connections_max: u64::MAX,
        descriptors_max: config.descriptors_max,
        idle_bytes_max: config.idle_bytes_max,
        streams_max: config.concurrent_streams_max,
        header_bytes_max: config.metadata_bytes_max,
        message_size: config.receive_limit(None),
        ..FrontLimits::default()
    };
    let config = FrontConfig {
        limits,
        io_threads,
        root_path: String::new(),
        answered_by: HeaderValue::from_static("replica"),
        access: None,
        proxies: Arc::clone(&server.config.proxies),
    };
    let behind = Behind { server: server.clone(), phase };
    let server = FixedServer {
        server: Box::new(behind),
        methods: ArcSwap::default(),
        budget: Arc::default(),
    };
    Front::new(Backend::Server(Arc::new(server)), config)
}

/// Registers the server's methods by serialized `FileDescriptorProto`s. Returns one sentence for
/// each thing that cannot be used.
pub(super) fn describe(front: &Front, server: &ServerState, files: &[Bytes]) -> Vec<String> {
    let Backend::Server(fixed) = &front.backend else { return Vec::new() };
    let services: Vec<ServiceRoute> = server.methods.services().into_iter().collect();
    let described =
        transcode::MethodSource { application: "", deployment: "", services: &services, files };
    let table = fixed.methods.load().next([described]);
    let problems = table.problems("", "");
    fixed.methods.store(Arc::new(table));
    problems
}

/// How a port for strangers is guarded.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) front: Arc<Front>,
    /// It takes more than gRPC over HTTP/2.
    pub(super) has_doors: bool,
}

/// A peer that has connected to such a port.
pub(super) struct Stranger {
    guard: Guard,
    pending: PendingConnection,
}

impl Guard {
    pub(super) fn meet(&self, stream: &TcpStream) -> Stranger {
        Stranger { guard: self.clone(), pending: PendingConnection::new(&self.front, stream) }
    }
}

impl Stranger {
    pub(super) fn pending(&self) -> &PendingConnection {
        &self.pending
    }
}

/// Serves a stranger's fresh connection until it ends.
pub(super) async fn serve(
    mut host: Host,
    stranger: Stranger,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<ServerTls>>,
) {
    let Stranger { guard: Guard { front, has_doors }, pending } = stranger;
    let counted = host.server.count_connection();
    let count = match pending.enter() {
        Ok(count) => count,
        Err(pending) => return pending.refuse(),
    };
    let arrival = Arrival { stream, peer, tls, count };
    let Some(opened) = open(front, arrival, &mut host.phase).await else { return };
    let Opened { state, stream, greeting, client } = opened;
    // Boxed: many connections may never get this far.
    match greeting {
        Greeting::Http1 if has_doors => Box::pin(serve_http1(state, stream, host.phase)).await,
        // No answer would be understood by a gRPC client.
        Greeting::Http1 => {}
        Greeting::Http2 => {
            drop(counted); // by the server from here on
            let guest = Some(Guest { front: state, has_doors });
            Box::pin(connection::serve(host, stream, ConnectionInfo::new(client), guest)).await;
        }
    }
    on_buffers_freed();
}

/// The server, as its front sees it.
struct Behind {
    server: Arc<ServerState>,
    phase: watch::Receiver<Phase>,
}

impl ServerBehind for Behind {
    fn target(&self, client: &Remote) -> Arc<Target> {
        let thread = IoThread::current().expect("invariant: connections live on I/O threads");
        let host = Host { server: self.server.clone(), thread, phase: self.phase.clone() };
        Target::local(Box::new(Inner { host, client: client.clone() }))
    }

    fn takes_http(&self) -> bool {
        self.server.methods.http().is_some()
    }
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Behind")
            .field("phase", &*self.phase.borrow())
            .finish_non_exhaustive()
    }
}

/// The route from a client's connection at a door to the server.
struct Inner {
    host: Host,
    client: Remote,
}

impl LocalServer for Inner {
    fn connect(&self) -> DuplexStream {
        let (outer, inner) = duplex(BUFFER_BYTES);
        let (host, info) = (self.host.clone(), ConnectionInfo::inner(&self.client));
        tokio::task::spawn_local(connection::serve(host, inner, info, None));
        outer
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inner").field("client", &self.client).finish_non_exhaustive()
    }
}
