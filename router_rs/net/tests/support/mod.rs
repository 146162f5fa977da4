//! Scripted peers for the tests: a replica that hands every call to the test, and a raw client.
#![allow(dead_code, unreachable_pub)] // each test file uses its own part

mod client;

#[allow(unused_imports)] // as above
pub use client::{Call, Client, Reply, read_body, request, request_with};

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use router_net::dispatch::{
    DeploymentRoute, ReplicaLimits, ReplicaRoute, RouterSettings, RoutingTable, TableConfig,
};
use router_net::ingress::{Ingress, IngressConfig};
use router_net::mesh::proof;
use router_net::names;
use router_net::transcode::ServiceRoute;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub const TOKEN: &[u8] = b"test token";
pub const NODE: &str = "node-1";
pub const PATH: &str = "/pkg.Echo/Call";

/// The limit of every wait of a test; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for `work`, with a limit.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| panic!("{what} took more than {PATIENCE:?}"))
}

/// Polls `condition` until it holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come true within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

// === replica ===

/// A call as the replica got it.
#[derive(Debug)]
pub struct Incoming {
    pub head: http::request::Parts,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
}

/// Settings of a scripted replica.
#[derive(Clone, Debug)]
pub struct Manners {
    pub replica_id: String,
    pub token: Vec<u8>,
    /// How much may be sent on a stream before it is read.
    pub window_bytes: u32,
}

impl Manners {
    pub fn of(replica_id: &str) -> Self {
        Self { replica_id: replica_id.to_owned(), token: TOKEN.to_vec(), window_bytes: 256 * 1024 }
    }
}

/// A replica on a port of its own. Dropping it closes everything at once, like a killed process.
pub struct Replica {
    pub id: String,
    pub address: String,
    pub calls: mpsc::UnboundedReceiver<Incoming>,
    /// Routers that want places or models open load streams, which only a test answers.
    load_streams: mpsc::UnboundedReceiver<Incoming>,
    pub connections: Arc<AtomicUsize>,
    pub proven: Arc<AtomicUsize>,
    pub freeze: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Host {
    manners: Manners,
    calls: mpsc::UnboundedSender<Incoming>,
    load_streams: mpsc::UnboundedSender<Incoming>,
    connections: Arc<AtomicUsize>,
    proven: Arc<AtomicUsize>,
    freeze: watch::Receiver<bool>,
}

impl Replica {
    pub async fn start(id: &str) -> Self {
        Self::start_with(Manners::of(id)).await
    }

    pub async fn start_with(manners: Manners) -> Self {
        Self::serve_on(manners, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn on(id: &str, listener: TcpListener) -> Self {
        Self::serve_on(Manners::of(id), listener)
    }

    fn serve_on(manners: Manners, listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let (replica, host, mut tasks) = Self::make(manners, address);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                connections.spawn(host.clone().serve(stream));
            }
        });
        Self { tasks, ..replica }
    }

    pub fn start_unix(manners: Manners, path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let (replica, host, mut tasks) = Self::make(manners, String::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(host.clone().serve(stream));
            }
        });
        Self { tasks, ..replica }
    }

    fn make(manners: Manners, address: String) -> (Self, Host, JoinSet<()>) {
        let (sender, calls) = mpsc::unbounded_channel();
        let (load_sender, load_streams) = mpsc::unbounded_channel();
        let (connections, proven) = (Arc::default(), Arc::default());
        let freeze = watch::Sender::new(false);
        let host = Host {
            freeze: freeze.subscribe(),
            manners: manners.clone(),
            calls: sender,
            load_streams: load_sender,
            connections: Arc::clone(&connections),
            proven: Arc::clone(&proven),
        };
        let id = manners.replica_id;
        let tasks = JoinSet::new();
        let replica = Self { id, address, calls, load_streams, connections, proven, freeze, tasks };
        (replica, host, JoinSet::new())
    }

    pub fn route(&self, capacity: u32) -> ReplicaRoute {
        ReplicaRoute {
            replica_id: self.id.clone(),
            node: "elsewhere".to_owned(),
            zone: String::new(),
            address: self.address.clone(),
            unix_path: String::new(),
            max_ongoing_requests: capacity,
            proves_itself: false,
        }
    }

    pub async fn next(&mut self) -> Incoming {
        within("a call at the replica", self.calls.recv()).await.expect("the replica lives")
    }

    pub async fn next_load_stream(&mut self) -> Incoming {
        within("a load stream", self.load_streams.recv()).await.expect("the replica lives")
    }

    /// From now on nothing is read or written, as in a stopped process.
    pub fn freeze(&self) {
        self.freeze.send_replace(true);
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Host {
    async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin) {
        let mut freeze = self.freeze.clone();
        let mut serving = std::pin::pin!(self.serve_thawed(io));
        loop {
            tokio::select! {
                biased;
                () = async { drop(freeze.wait_for(|is_frozen| *is_frozen).await) } => {
                    if freeze.wait_for(|is_frozen| !*is_frozen).await.is_err() {
                        return;
                    }
                }
                () = &mut serving => return,
            }
        }
    }

    async fn serve_thawed(self, io: impl AsyncRead + AsyncWrite + Unpin) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let Ok(mut connection) = h2::server::Builder::new()
            .initial_window_size(self.manners.window_bytes)
            .initial_connection_window_size(1 << 30)
            .max_concurrent_streams(1024)
            .max_pending_accept_reset_streams(1024)
            .handshake::<_, Bytes>(io)
            .await
        else {
            return;
        };
        while let Some(Ok((request, respond))) = connection.accept().await {
            let (head, body) = request.into_parts();
            match head.uri.path() {
                names::HELLO_PATH => self.hello(&head, respond),
                names::PROVE_PATH => self.prove(&head, respond),
                names::LOAD_PATH => {
                    drop(self.load_streams.send(Incoming { head, body, respond }));
                }
                _ => drop(self.calls.send(Incoming { head, body, respond })),
            }
        }
    }

    fn hello(&self, head: &http::request::Parts, mut respond: SendResponse<Bytes>) {
        let Manners { token, replica_id, .. } = &self.manners;
        let asked = head.headers.get(names::ROUTER_NONCE).and_then(|asked| asked.to_str().ok());
        let asked = asked.and_then(proof::from_hex).unwrap_or_default();
        let response = Response::builder()
            .header(names::REPLICA_ID, replica_id)
            .header(names::NONCE, proof::to_hex(b"nonce"))
            .header(
                names::REPLICA_PROOF,
                proof::replica_proof(token, &asked, replica_id).unwrap_or_default(),
            )
            .body(())
            .unwrap();
        respond.send_response(response, true).unwrap();
    }

    fn prove(&self, head: &http::request::Parts, mut respond: SendResponse<Bytes>) {
        let claimed = head.headers[names::PROOF].to_str().unwrap();
        let Manners { token, replica_id, .. } = &self.manners;
        let is_proven = proof::verify(token, b"nonce", replica_id, claimed);
        self.proven.fetch_add(usize::from(is_proven), Ordering::SeqCst);
        let status = if is_proven { StatusCode::OK } else { StatusCode::FORBIDDEN };
        let response = Response::builder().status(status).body(()).unwrap();
        respond.send_response(response, true).unwrap();
    }
}

impl Incoming {
    pub async fn read_all(&mut self) -> Bytes {
        read_body(&mut self.body).await.unwrap()
    }

    /// Answers a unary call: head, one piece of data, status OK.
    pub fn reply(mut self, data: impl Into<Bytes>) {
        let mut stream = self.begin();
        stream.send_data(data.into(), false).unwrap();
        stream.send_trailers(ok_trailers()).unwrap();
    }

    pub fn begin(&mut self) -> SendStream<Bytes> {
        self.respond.send_response(grpc_response(), false).unwrap()
    }

    /// The gate's refusal, as the replica server writes it.
    pub fn refuse(mut self) {
        let mut response = grpc_response();
        let headers = response.headers_mut();
        headers.insert("grpc-status", HeaderValue::from_static("8"));
        headers.insert(names::REFUSED, HeaderValue::from_static("1"));
        headers.insert(names::LOAD, HeaderValue::from_static("1;1"));
        self.respond.send_response(response, true).unwrap();
    }

    /// Like `reset`, once the answer has begun.
    pub async fn reset_of(&self, stream: &mut SendStream<Bytes>) -> h2::Reason {
        let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
        within("the reset of the call", reset).await.unwrap()
    }

    /// Waits until the router resets the call.
    pub async fn reset(&mut self) -> h2::Reason {
        let reset = std::future::poll_fn(|cx| self.respond.poll_reset(cx));
        within("the reset of the call", reset).await.unwrap()
    }
}

/// Send window of a stream, or `None` when there is none for `patience`.
pub async fn room(stream: &mut SendStream<Bytes>, patience: Duration) -> Option<usize> {
    stream.reserve_capacity(16 * 1024);
    if stream.capacity() > 0 {
        return Some(stream.capacity());
    }
    let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx));
    let capacity = tokio::time::timeout(patience, capacity).await.ok()?;
    Some(capacity.expect("the stream is open").unwrap())
}

pub fn grpc_response() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

pub fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

// === table and ingress ===

pub fn table(token: &[u8]) -> Arc<RoutingTable> {
    RoutingTable::new(table_config(token))
}

pub fn table_config(token: &[u8]) -> TableConfig {
    TableConfig {
        node: NODE.to_owned(),
        zone: String::new(),
        token: token.to_vec(),
        seed: 7,
        tls: None,
        limits: ReplicaLimits::default(),
    }
}

pub fn open_service(name: &str) -> ServiceRoute {
    ServiceRoute { name: name.to_owned(), methods: None }
}

pub fn deployment(replicas: Vec<ReplicaRoute>) -> DeploymentRoute {
    DeploymentRoute {
        application: "app".to_owned(),
        deployment: "Echo".to_owned(),
        services: vec![open_service("pkg.Echo")],
        replicas,
        is_scaled_to_zero: false,
        max_queued_requests: u32::MAX,
        request_timeout: None,
        max_request_bytes: 4 << 20,
        router: RouterSettings::default(),
        http_prefixes: Vec::new(),
        queue_full_status: StatusCode::SERVICE_UNAVAILABLE,
        file_descriptors: Vec::new(),
        retry_after: None,
        idempotent_methods: Vec::new(),
        traffic: Vec::new(),
        mirror: Vec::new(),
        ranker: None,
        llm: None,
    }
}

/// An ingress in front of a table.
pub struct Front {
    pub ingress: Ingress,
    pub table: Arc<RoutingTable>,
    pub address: String,
}

impl Front {
    pub fn start(deployments: Vec<DeploymentRoute>) -> Self {
        let table = table(TOKEN);
        table.apply(deployments);
        Self::over(table)
    }

    pub fn over(table: Arc<RoutingTable>) -> Self {
        Self::configured(table, IngressConfig::default())
    }

    /// On a port of its own, with two threads.
    pub fn configured(table: Arc<RoutingTable>, config: IngressConfig) -> Self {
        Self::with_threads(table, config, 2)
    }

    pub fn with_threads(
        table: Arc<RoutingTable>,
        config: IngressConfig,
        io_threads: usize,
    ) -> Self {
        let addresses = vec!["127.0.0.1:0".to_owned()];
        let config = IngressConfig { addresses, io_threads, ..config };
        let ingress = Ingress::new(Arc::clone(&table), config);
        let bound = ingress.start(Vec::new()).unwrap().remove(0);
        let address = bound.address.as_socket().unwrap().to_string();
        Self { ingress, table, address }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address).await
    }

    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.ingress.stats();
        stats.into_iter().find(|(key, _)| *key == name).expect("a known counter").1
    }

    /// The counts of one door that are not 0.
    pub fn door(&self, name: &str) -> BTreeMap<&'static str, u64> {
        let mut doors = self.ingress.doors().into_iter();
        let (_, counts) = doors.find(|(door, _)| *door == name).expect("a door");
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Calls that wait in the first deployment's router.
    pub fn parked(&self) -> u64 {
        self.table.stats()[0].router.parked
    }

    /// Waits until no call is left, in the ingress and in every router.
    pub async fn settle(&self) {
        until("no call in flight", || {
            let is_empty = |stats: &router_net::dispatch::DeploymentStats| {
                stats.router.in_flight == 0 && stats.router.parked == 0
            };
            self.ingress.in_flight() == 0 && self.table.stats().iter().all(is_empty)
        })
        .await;
        for stats in self.table.stats() {
            assert_eq!(0, stats.router.stale_tickets);
        }
    }
}
