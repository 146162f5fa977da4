//! A gRPC server: listeners, connections, the admission gate, one task per call.
//!
//! The meaning of calls is decided elsewhere: calls and events go to a `CallSink`, commands come
//! back through each call's `Link`.

mod admit;
mod batch;
mod caches;
mod call;
mod call_key;
mod call_sink;
mod connection;
mod connection_state;
mod costs;
mod door;
mod file_answer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod http_body;
mod http_head;
mod intake;
mod life;
mod listeners;
mod load;
mod measures;
mod methods;
mod outlet;
mod probation;
mod refusal;
mod request;
mod request_body;
mod served_call;
mod sink;
mod slowed;
mod state;
mod trust;
mod turn_away;
mod wire;
mod wire_call;

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use router_front::{Front, Pace, make_room};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub use caches::Caches;
use connection_state::Host;
use door::{Guard, Stranger};
pub use router_io::phase::Phase;
use router_io::tls::ServerTls;
use router_io::{
    Bound, CountedTcp, IoThreads, Peer, QuietUnixStream, Remote, Stream, accept_each,
    between_forks, bind_tcp, bind_unix, note_opened, pause_accepting, tune,
};

pub use batch::BatchState;
pub use call_sink::CallSink;
pub use costs::CostState;
pub use file_answer::FILE_EXTRA_BYTES;
pub use http_head::HttpHead;
use listeners::{OpenListener, OpenListeners};
pub use measures::MethodMeasures;
pub use methods::Method;
use probation::{Held, Probation};
pub use served_call::{ConnectionInfo, ServedCall};
use slowed::Slowed;
use state::ServerState;
pub use state::{Keepalive, ServerConfig};

/// How long a drain waits for its listeners to close: far more than a turn of an I/O thread.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a server listens, before and after it has started.
enum Listener {
    Tcp(StdTcpListener, TcpManner),
    Unix(std::os::unix::net::UnixListener),
}

/// The kind of peers that a listener accepts.
#[derive(Clone)]
struct TcpManner {
    tls: Option<Arc<ServerTls>>,
    /// `None`: only processes of the mesh connect.
    guard: Option<Guard>,
}

/// A server. Binding and starting are separate, so that the port is known before it serves.
pub struct Server {
    state: Arc<ServerState>,
    threads: Arc<IoThreads>,
    phase: watch::Sender<Phase>,
    /// Created for the first listener that is for strangers.
    door: OnceLock<Arc<Front>>,
    listeners: Mutex<Vec<Listener>>,
    /// Disconnects when the last acceptor has closed its listener.
    accepting: Mutex<Option<Receiver<()>>>,
    unix_paths: Mutex<Vec<PathBuf>>,
    open_listeners: Arc<OpenListeners>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Server")
            .field("phase", &*self.phase.borrow())
            .finish_non_exhaustive()
    }
}

impl Server {
    pub fn new(config: ServerConfig, sink: Arc<dyn CallSink>, threads: Arc<IoThreads>) -> Self {
        Self {
            state: Arc::new(ServerState::new(config, sink)),
            threads,
            phase: watch::Sender::new(Phase::Serving),
            door: OnceLock::new(),
            listeners: Mutex::default(),
            accepting: Mutex::default(),
            unix_paths: Mutex::default(),
            open_listeners: Arc::default(),
        }
    }

    pub fn register(&self, path: &str, method: Method) -> i32 {
        self.state.methods.register(path, method)
    }

    /// Accepts plain HTTP requests, which trusted connections mark. A body whose announced length
    /// is at most `whole_body_bytes_max` comes with its request.
    pub fn register_http(&self, weight: u32, whole_body_bytes_max: usize) -> i32 {
        self.state.methods.register_http(weight, whole_body_bytes_max)
    }

    /// Reports calls without `ServerConfig::call_token` to the user, at most one a second. They
    /// have already ended when they are reported.
    pub fn register_turned_away(&self) -> i32 {
        self.state.methods.register_turned_away()
    }

    /// Binds `host:port` for routers of the mesh. The limits of a front do not apply.
    ///
    /// # Errors
    /// As `io::bind_tcp`.
    pub fn listen_tcp(
        &self,
        address: &str,
        tls: Option<Arc<ServerTls>>,
        reuse_port: bool,
    ) -> io::Result<Bound> {
        self.listen(address, TcpManner { tls, guard: None }, reuse_port)
    }

    /// Like `listen_tcp`, for gRPC clients that are not known.
    ///
    /// # Errors
    /// As `io::bind_tcp`.
    pub fn listen_grpc(
        &self,
        address: &str,
        tls: Option<Arc<ServerTls>>,
        reuse_port: bool,
    ) -> io::Result<Bound> {
        self.listen_guarded(address, tls, reuse_port, false)
    }

    /// Like `listen_grpc`, and also accepts the other protocols of an ingress.
    ///
    /// # Errors
    /// As `io::bind_tcp`.
    pub fn listen_with_door(
        &self,
        address: &str,
        tls: Option<Arc<ServerTls>>,
        reuse_port: bool,
    ) -> io::Result<Bound> {
        self.listen_guarded(address, tls, reuse_port, true)
    }

    fn listen_guarded(
        &self,
        address: &str,
        tls: Option<Arc<ServerTls>>,
        reuse_port: bool,
        has_doors: bool,
    ) -> io::Result<Bound> {
        let guard = Some(Guard { front: self.door().clone(), has_doors });
        self.listen(address, TcpManner { tls, guard }, reuse_port)
    }

    /// Lets clients of Connect, gRPC-Web, JSON and REST call the methods registered so far, by
    /// serialized `FileDescriptorProto`s. Returns one sentence for each thing that cannot be used.
    pub fn register_descriptors(&self, files: &[Bytes]) -> Vec<String> {
        door::describe(self.door(), &self.state, files)
    }

    fn door(&self) -> &Arc<Front> {
        let io_threads = self.threads.all().len();
        self.door.get_or_init(|| door::front(&self.state, io_threads, self.phase.subscribe()))
    }

    fn listen(&self, address: &str, manner: TcpManner, reuse_port: bool) -> io::Result<Bound> {
        let listener = bind_tcp(address, reuse_port)?;
        let bound = Bound::of(&listener)?;
        self.listeners.lock().push(Listener::Tcp(listener, manner));
        Ok(bound)
    }

    /// Binds a Unix socket; the file is removed when the server drains.
    ///
    /// # Errors
    /// As `io::bind_unix`.
    pub fn listen_unix(&self, path: &Path) -> io::Result<Bound> {
        let listener = bind_unix(path)?;
        let bound = Bound::of(&listener)?;
        self.unix_paths.lock().push(path.to_owned());
        self.listeners.lock().push(Listener::Unix(listener));
        Ok(bound)
    }

    /// Begins to accept on all bound sockets.
    pub fn start(&self) {
        let (accepting, ended) = channel();
        *self.accepting.lock() = Some(ended);
        for listener in self.listeners.lock().drain(..) {
            let thread = self.threads.next().clone();
            let open = OpenListener::new(&self.open_listeners);
            let host = Host {
                server: self.state.clone(),
                thread: thread.clone(),
                phase: self.phase.subscribe(),
            };
            let acceptor =
                Acceptor { host, threads: self.threads.clone(), _accepting: accepting.clone() };
            thread.run(move || {
                tokio::task::spawn_local(async move {
                    acceptor.accept(listener).await;
                    drop(open);
                });
            });
        }
    }

    /// Sets what `/-/healthz` answers at doors; calls are served either way.
    pub fn set_healthy(&self, is_healthy: bool) {
        if let Some(door) = self.door.get() {
            door.set_healthy(is_healthy);
        }
    }

    /// Stops listening and asks clients to go elsewhere; calls in flight continue.
    ///
    /// Returns when the ports are free again, which takes the I/O threads some microseconds.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
        self.open_listeners.wait_for_none();
    }

    /// Ends the server if no call is in flight; returns whether it has ended.
    ///
    /// A client that has not noticed the drain may still send calls. The check and the end are one
    /// step, so that no call is let in between; later calls are refused as not processed.
    pub fn finish(&self) -> bool {
        self.state.shut_if_empty()
    }

    /// Answers the remaining calls with `UNAVAILABLE`; connections close when they are empty.
    pub fn stop(&self) {
        self.state.shut();
        self.advance(Phase::Stopped);
    }

    fn advance(&self, phase: Phase) {
        self.listeners.lock().clear();
        self.phase.send_if_modified(|current| {
            let is_later = phase > *current;
            *current = phase.max(*current);
            is_later
        });
        if let Some(ended) = self.accepting.lock().take() {
            // The port must be free for the next server when this returns. An I/O thread closes it
            // in its next turn. Nothing is ever sent on the channel; only its last sender is
            // dropped.
            let _ = ended.recv_timeout(CLOSE_TIMEOUT);
        }
        for path in self.unix_paths.lock().drain(..) {
            // It may have been removed already; a path that stays does no harm.
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn in_flight(&self) -> u32 {
        self.state.in_flight()
    }

    pub fn set_concurrent_calls_max(&self, limit: Option<u32>) {
        self.state.set_limit(limit);
    }

    /// Reports which models are loaded or loading. Routers with a load stream are updated
    /// immediately.
    pub fn set_models(&self, models: Vec<String>) {
        self.state.set_models(models.into());
    }

    /// The cache entries that it reports to routers.
    pub fn caches(&self) -> &Caches {
        &self.state.caches
    }

    /// Reports the batcher's state; `None` unless there is one that handles most of the calls.
    pub fn set_batch(&self, batch: Option<BatchState>) {
        self.state.set_batch(batch);
    }

    /// Reports what the requests cost that the replica steps. Routers with a load stream are updated
    /// at most every 100 ms.
    pub fn set_costs(&self, costs: CostState) {
        self.state.set_costs(costs);
    }

    /// The counts of each method, by path.
    pub fn measures(&self) -> Vec<(String, MethodMeasures)> {
        self.state.measures()
    }

    /// Named counters, for status pages and tests.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.state.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let caches = self.state.caches.counts();
        vec![
            ("in_flight", u64::from(self.in_flight())),
            ("cache_keys", caches.keys),
            ("cache_dropped", caches.dropped),
            ("calls", read(&counters.calls)),
            ("wire_calls", read(&counters.wire_calls)),
            ("refused", read(&counters.refused)),
            ("cancelled_by_client", read(&counters.cancelled_by_client)),
            ("deadlines_exceeded", read(&counters.deadlines_exceeded)),
            ("shut_down", read(&counters.shut_down)),
            ("connections", read(&counters.connections)),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts connections on one listener and spreads them over the I/O threads.
struct Acceptor {
    host: Host,
    threads: Arc<IoThreads>,
    _accepting: Sender<()>,
}

impl Acceptor {
    async fn accept(mut self, listener: Listener) {
        let mut phase = self.host.phase.clone();
        tokio::select! {
            _ = phase.wait_for(|phase| *phase > Phase::Serving) => {}
            () = self.accept_all(listener) => {}
        }
    }

    async fn accept_all(&mut self, listener: Listener) {
        match listener {
            Listener::Tcp(listener, manner) => {
                let mut pace = manner.guard.as_ref().map(|guard| Pace::new(&guard.front));
                let take = |stream, peer| {
                    let stranger = manner.guard.as_ref().map(|guard| guard.meet(&stream));
                    tune(&stream);
                    let pause = pace.as_mut().zip(stranger.as_ref());
                    let pause =
                        pause.map_or(Duration::ZERO, |(pace, each)| pace.after(each.pending()));
                    self.hand_over_tcp(stream, peer, stranger, manner.tls.clone());
                    Some(pause)
                };
                accept_each(listener, take, || self.make_room(&manner)).await;
            }
            Listener::Unix(listener) => {
                let Ok(listener) = UnixListener::from_std(listener) else { return };
                loop {
                    let accepting = async { note_opened(listener.accept().await?.0) };
                    match between_forks(accepting).await {
                        // Without a free descriptor, the client finds a closed socket.
                        Ok(stream) => {
                            if let Ok(stream) = QuietUnixStream::new(stream) {
                                self.serve_here(Stream::Unix(stream), Peer::Unix);
                            }
                        }
                        Err(error) => pause_accepting(&error).await,
                    }
                }
            }
        }
    }

    /// Only connections of strangers can be closed to make room.
    fn make_room(&self, manner: &TcpManner) {
        for thread in manner.guard.iter().flat_map(|_| self.threads.all()) {
            let front = manner.guard.clone().map(|guard| guard.front);
            thread.run(move || front.iter().for_each(make_room));
        }
    }

    /// A Unix connection is local and stays on the listener's thread.
    fn serve_here(&self, stream: Stream, peer: Peer) {
        let info = ConnectionInfo::new(Remote::of(peer, &stream));
        tokio::task::spawn_local(connection::serve(self.host.clone(), stream, info, None));
    }

    fn hand_over_tcp(
        &self,
        stream: tokio::net::TcpStream,
        peer: SocketAddr,
        stranger: Option<Stranger>,
        tls: Option<Arc<ServerTls>>,
    ) {
        let host = Host { thread: self.threads.next().clone(), ..self.host.clone() };
        let target = host.thread.clone();
        if target.is_same(&self.host.thread) {
            tokio::task::spawn_local(serve_tcp(host, stream, peer, stranger, tls));
            return;
        }
        // A socket belongs to the poller of one thread; it is handed over as a plain descriptor.
        let Ok(stream) = stream.into_std() else { return };
        target.run(move || {
            if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                tokio::task::spawn_local(serve_tcp(host, stream, peer, stranger, tls));
            }
        });
    }
}

async fn serve_tcp(
    host: Host,
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    stranger: Option<Stranger>,
    tls: Option<Arc<ServerTls>>,
) {
    if let Some(stranger) = stranger {
        return door::serve(host, stranger, stream, peer, tls).await;
    }
    // A server outside any mesh has no token that could be proven.
    let held = (!host.server.config.token.is_empty()).then(|| host.server.probations.begin());
    let probation = held.as_ref().map(Held::probation);
    let displaced = async {
        match &held {
            Some(held) => held.displaced().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = serve_member(host, stream, peer, tls, probation) => {}
        () = displaced => {}
    }
}

/// Serves a peer at a port for members of the mesh.
async fn serve_member(
    host: Host,
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<ServerTls>>,
    probation: Option<Arc<Probation>>,
) {
    let stream = match tls {
        None => Stream::Tcp(stream),
        Some(tls) => {
            let accept = TlsAcceptor::from(tls.current()).accept(CountedTcp::from(stream));
            let handshake = tokio::time::timeout(connection::GREETING_TIMEOUT, accept);
            let Ok(Ok(stream)) = handshake.await else { return };
            Stream::Tls(Box::new(stream.into()))
        }
    };
    let info =
        ConnectionInfo::new(Remote::of(Peer::Tcp(peer), &stream)).on_probation(probation.clone());
    // If calls need no token, an unproven peer may be an ordinary client that sends a lot.
    let slowed = probation.filter(|_| !host.server.config.call_token.is_empty());
    connection::serve(host, Slowed::new(stream, slowed), info, None).await;
}
