//! One ingress, one server and an echo behind it, for all runs of a process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use router_net::dispatch::{
    DeploymentRoute, ReplicaLimits, ReplicaRoute, RouterSettings, RoutingTable, TableConfig,
};
use router_net::fuzzing::transcode;
use router_net::grpc::{Encoding, Encodings, Message, Status};
use router_net::ingress::{Ingress, IngressConfig, IngressLimits};
use router_net::io::IoThreads;
use router_net::link::{Command, Event, EventSink, Mailbox, post};
use router_net::server::{CallSink, Method, ServedCall, Server, ServerConfig};
use router_net::transcode::ServiceRoute;

const TOKEN: &[u8] = b"token of the fuzzed mesh";
const SERVICE: &str = "things.v1.Things";
const SIZE_MAX: usize = 64 * 1024;

/// Far longer than any run takes, and short enough to find hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The servers that the targets connect to.
#[derive(Debug)]
pub(crate) struct Mesh {
    ingress: Ingress,
    server: Server,
    pub(crate) ingress_address: String,
    /// A Unix socket, which leaves no port behind that waits.
    pub(crate) server_path: PathBuf,
}

/// The mesh of this process.
pub(crate) fn mesh() -> &'static Mesh {
    static MESH: OnceLock<Mesh> = OnceLock::new();
    MESH.get_or_init(Mesh::start)
}

impl Mesh {
    fn start() -> Self {
        let threads = IoThreads::start("fuzz-server", 1).expect("threads");
        let server = Server::new(server_config(), Arc::new(Echo::default()), threads);
        for (name, is_streaming) in [("Echo", false), ("Chat", true), ("List", false)] {
            server.register(&format!("/{SERVICE}/{name}"), method(is_streaming));
        }
        server.register_http(1, 100);
        let server_path = std::env::temp_dir().join(format!("pyserve-fuzz-{}", std::process::id()));
        let bound = server.listen_tcp("127.0.0.1:0", None, false).expect("a port");
        server.listen_unix(&server_path).expect("a socket in the temporary folder");
        server.start();
        let table = RoutingTable::new(table_config());
        table.apply(vec![deployment(bound.name())]);
        let limits = IngressLimits { body_bytes_max: Some(SIZE_MAX as u64), ..Default::default() };
        let addresses = vec!["127.0.0.1:0".to_owned()];
        let ingress =
            Ingress::new(table, IngressConfig { addresses, limits, ..Default::default() });
        let ingress_address = ingress.start(Vec::new()).expect("a port").remove(0).name();
        Self { ingress, server, ingress_address, server_path }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn settle(&self) {
        let end = Instant::now() + PATIENCE;
        while self.ingress.in_flight() > 0 || self.server.in_flight() > 0 {
            assert!(
                Instant::now() < end,
                "in flight {PATIENCE:?} after the client: {:?} {:?}",
                self.ingress.stats(),
                self.server.stats()
            );
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Answers every piece with itself.
#[derive(Debug, Default)]
struct Echo {
    calls: Mutex<HashMap<u64, Arc<ServedCall>>>,
}

impl CallSink for Echo {
    fn begin(&self, served_call: Arc<ServedCall>, message: Option<Message>) {
        let is_http = served_call.http_head().is_some();
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        match message {
            Some(body) if is_http => send(&served_call, Command::Respond { status, headers, body }),
            Some(message) => send(&served_call, Command::Reply(message)),
            None => {
                if is_http {
                    send(&served_call, Command::StartResponse { status, headers });
                }
                self.calls.lock().insert(served_call.link().token, served_call);
            }
        }
    }
}

impl EventSink for Echo {
    fn push(&self, token: u64, event: Event) {
        let Some(served_call) = self.calls.lock().get(&token).cloned() else { return };
        match event {
            Event::Message(payload) => {
                let size = payload.len();
                if served_call.link().take(size) {
                    send(&served_call, Command::Resume);
                }
                served_call.link().begin_write(size);
                send(&served_call, Command::Message { payload, may_compress: true });
            }
            Event::HalfClose => {
                self.calls.lock().remove(&token);
                let (status, metadata) = (Status::ok(), HeaderMap::new());
                send(&served_call, Command::Finish { status, metadata, message: None });
            }
            Event::Cancel(_) => {
                self.calls.lock().remove(&token);
                send(&served_call, Command::Release);
            }
            _ => {}
        }
    }
}

fn send(served_call: &Arc<ServedCall>, command: Command) {
    post(served_call.clone(), command).wake();
}

fn method(is_streaming: bool) -> Method {
    Method {
        index: 0,
        is_request_streaming: is_streaming,
        is_response_streaming: is_streaming,
        weight: 1,
        subtypes: None,
        message_bytes_max: None,
        receive_bytes_max: None,
    }
}

fn server_config() -> ServerConfig {
    ServerConfig {
        receive_bytes_max: SIZE_MAX,
        send_bytes_max: SIZE_MAX,
        metadata_bytes_max: 16 * 1024,
        concurrent_calls_max: None,
        idle_streams_max: 10,
        concurrent_streams_max: 100,
        default_encoding: Encoding::Identity,
        encodings: Encodings::default(),
        keepalive: None,
        connection_age_max: None,
        connection_grace: None,
        connection_idle_max: None,
        idle_bytes_max: 0,
        descriptors_max: u64::MAX,
        proxies: Arc::default(),
        replica_id: "r-1".to_owned(),
        token: TOKEN.to_vec(),
        call_token: Vec::new(),
        maps_arenas: true,
    }
}

fn table_config() -> TableConfig {
    TableConfig {
        node: "here".to_owned(),
        zone: String::new(),
        token: TOKEN.to_vec(),
        seed: 7,
        tls: None,
        limits: ReplicaLimits::default(),
    }
}

fn deployment(address: String) -> DeploymentRoute {
    let replica = ReplicaRoute {
        replica_id: "r-1".to_owned(),
        node: "elsewhere".to_owned(),
        zone: String::new(),
        address,
        unix_path: String::new(),
        max_ongoing_requests: 1000,
        proves_itself: true,
    };
    DeploymentRoute {
        application: "a".to_owned(),
        deployment: "D".to_owned(),
        services: vec![ServiceRoute { name: SERVICE.to_owned(), methods: None }],
        replicas: vec![replica],
        is_scaled_to_zero: false,
        max_queued_requests: u32::MAX,
        request_timeout: None,
        max_request_bytes: SIZE_MAX,
        router: RouterSettings::default(),
        http_prefixes: vec!["/app".to_owned()],
        queue_full_status: StatusCode::SERVICE_UNAVAILABLE,
        file_descriptors: transcode::things(),
        retry_after: None,
        idempotent_methods: Vec::new(),
        traffic: Vec::new(),
        mirror: Vec::new(),
        ranker: None,
        llm: None,
    }
}
