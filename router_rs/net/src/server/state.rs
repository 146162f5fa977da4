//! State that all connections of a server share: settings, methods, the gate, the counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use router_core::{AskerId, Cost, Gate, Lease, Load, Nanos};
use router_front::Proxies;
use router_io::{BriefMutex, Readers};
use router_protocol::grpc::size_limit::{
    DEPLOYMENT_RECEIVES, DEPLOYMENT_SENDS, SERVER_RECEIVES, SERVER_SENDS,
};
use router_protocol::grpc::{Code, Encoding, Encodings, SizeLimit, Status};
use router_protocol::mesh::load::trailer;
#[cfg(doc)]
use router_protocol::names;
use tokio::sync::{Notify, watch};

use super::batch::{BatchCell, BatchState};
use super::caches::Caches;
use super::call_key::CallKey;
use super::call_sink::CallSink;
use super::costs::{CostCell, CostState, Inside};
use super::measures::{Measures, MethodMeasures, Said};
use super::methods::Methods;
use super::probation::Probations;
use crate::link::CancelReason;

#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// A ping is sent after this long.
    pub time: Duration,
    /// Without an answer in this time the connection is closed.
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub receive_bytes_max: usize,
    pub send_bytes_max: usize,
    pub metadata_bytes_max: u32,
    /// The admission gate; `None`: no limit.
    pub concurrent_calls_max: Option<u32>,
    /// The bound for calls of methods with weight 0.
    pub idle_streams_max: u32,
    pub concurrent_streams_max: u32,
    pub default_encoding: Encoding,
    pub encodings: Encodings,
    pub keepalive: Option<Keepalive>,
    pub connection_age_max: Option<Duration>,
    /// How long after that age calls may still run; `None`: until they end.
    pub connection_grace: Option<Duration>,
    /// A connection without calls is closed after this long; `None`: never for that.
    pub connection_idle_max: Option<Duration>,
    /// Like `FrontLimits::idle_bytes_max`, for the connections at its doors.
    pub idle_bytes_max: u64,
    /// Like `FrontLimits::descriptors_max`.
    pub descriptors_max: u64,
    /// The trusted proxies in front of its doors.
    pub proxies: Arc<Proxies>,
    /// The replica id that a router expects in its handshake; empty for a server that is not a
    /// replica.
    pub replica_id: String,
    /// The mesh token; empty: no peer is trusted.
    pub token: Vec<u8>,
    /// The value of [`names::TOKEN`] that every call needs unless its connection has proven
    /// `token`; empty: none.
    pub call_token: Vec<u8>,
    /// Whether large bodies may come through memory that a client shares.
    pub maps_arenas: bool,
}

// === impl ServerConfig ===

impl ServerConfig {
    /// Whether this is a replica that can prove it.
    pub(super) fn is_of_mesh(&self) -> bool {
        !self.token.is_empty() && !self.replica_id.is_empty()
    }

    /// The limit for a received message. `bytes_max` is the method's own limit, if it has one.
    pub(super) fn receive_limit(&self, bytes_max: Option<usize>) -> SizeLimit {
        let option = self.option(DEPLOYMENT_RECEIVES, SERVER_RECEIVES);
        SizeLimit { bytes_max: bytes_max.unwrap_or(self.receive_bytes_max), option }
    }

    /// The limit for a sent message.
    pub(super) fn send_limit(&self) -> SizeLimit {
        let option = self.option(DEPLOYMENT_SENDS, SERVER_SENDS);
        SizeLimit { bytes_max: self.send_bytes_max, option }
    }

    /// The name of the option with which a user sets a limit.
    fn option(&self, of_deployment: &'static str, of_server: &'static str) -> &'static str {
        match (self.replica_id.is_empty(), self.call_token.is_empty()) {
            (false, _) => of_deployment,
            (true, true) => of_server,
            // A controller's limits cannot be set by users.
            (true, false) => "",
        }
    }
}

/// Models that are loaded or loading.
pub(super) type Models = Arc<[String]>;

/// Counters for people and tests; relaxed, since nothing is decided by them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
    /// Calls that came over the wire, including those that the gate refused.
    pub(super) wire_calls: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cancelled_by_client: AtomicU64,
    pub(super) deadlines_exceeded: AtomicU64,
    pub(super) shut_down: AtomicU64,
    pub(super) connections: AtomicU64,
}

impl Counters {
    pub(super) fn cancelled(&self, reason: CancelReason) {
        let counter = match reason {
            CancelReason::Client => &self.cancelled_by_client,
            CancelReason::Deadline => &self.deadlines_exceeded,
            CancelReason::Shutdown => &self.shut_down,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) config: ServerConfig,
    pub(super) methods: Methods,
    /// `None`: calls need no token.
    pub(super) call_key: Option<CallKey>,
    pub(super) probations: Probations,
    pub(super) sink: Arc<dyn CallSink>,
    pub(super) counters: Counters,
    pub(super) models: watch::Sender<Models>,
    /// Read the files of answers.
    pub(super) readers: Readers,
    pub(super) caches: Arc<Caches>,
    entrance: BriefMutex<Entrance>,
    /// The origin of the gate's time.
    start: Instant,
    batch: BatchCell,
    pub(super) costs: CostCell,
}

/// The gate, and whether it was shut for good.
#[derive(Debug)]
struct Entrance {
    gate: Gate,
    measures: Measures,
    is_shut: bool,
    /// The routers to notify of leases.
    askers: BTreeMap<AskerId, Arc<Granted>>,
    /// The routers that ask for a place once user code idles while it has calls.
    idle_askers: BTreeMap<AskerId, Arc<Granted>>,
    /// The sink was asked to report when user code idles, and has not done so yet.
    waits_for_idle: bool,
}

/// Asks beyond this are dropped, as at the gate.
const IDLE_ASKS_MAX: usize = 1024;

impl Entrance {
    fn ask(&mut self, asker: AskerId, granted: &Arc<Granted>) {
        if self.gate.ask(asker) {
            self.askers.insert(asker, Arc::clone(granted));
        }
    }
}

/// The leases of one router that have not been reported to it.
#[derive(Debug, Default)]
pub(super) struct Granted {
    count: AtomicU32,
    changed: Notify,
}

impl Granted {
    /// Waits for leases and returns their number.
    pub(super) async fn wait(&self) -> u32 {
        loop {
            let changed = self.changed.notified();
            match self.count.swap(0, Ordering::Relaxed) {
                0 => changed.await,
                count => return count,
            }
        }
    }

    fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

/// The reason why a call is not admitted.
pub(super) enum NotAdmitted {
    /// The limit is reached.
    Full { status: Status, load: HeaderValue },
    /// The server has ended; the call came before its client had noticed.
    Shut,
}

impl ServerState {
    pub(super) fn new(config: ServerConfig, sink: Arc<dyn CallSink>) -> Self {
        let gate = Gate::new(config.concurrent_calls_max, config.idle_streams_max);
        Self {
            call_key: CallKey::of(&config.call_token),
            probations: Probations::new(),
            config,
            methods: Methods::default(),
            sink,
            counters: Counters::default(),
            readers: Readers::default(),
            models: watch::Sender::new(Models::default()),
            caches: Arc::new(Caches::new()),
            entrance: BriefMutex::new(Entrance {
                gate,
                measures: Measures::default(),
                is_shut: false,
                askers: BTreeMap::new(),
                idle_askers: BTreeMap::new(),
                waits_for_idle: false,
            }),
            start: Instant::now(),
            batch: BatchCell::default(),
            costs: CostCell::default(),
        }
    }

    /// `asker` is the router for which a place may be kept; `may_bypass` is called if there is no
    /// room.
    pub(super) fn enter(
        &self,
        weight: u32,
        asker: Option<AskerId>,
        may_bypass: impl FnOnce() -> bool,
    ) -> Result<(), NotAdmitted> {
        let mut entrance = self.entrance.lock();
        if entrance.is_shut {
            return Err(NotAdmitted::Shut);
        }
        let entered = match asker {
            None => entrance.gate.try_enter(weight),
            Some(asker) => entrance.gate.try_enter_leased(weight, asker),
        };
        match entered {
            Ok(_) => {
                self.counters.calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(_) if may_bypass() => {
                let _beyond_the_limit = entrance.gate.enter_beyond(weight);
                self.counters.calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(full) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                let text = format!(
                    "{} calls are in flight and the limit is {}",
                    full.in_flight, full.limit
                );
                Err(NotAdmitted::Full {
                    status: Status::new(Code::ResourceExhausted, text),
                    load: trailer(&entrance.gate.load()),
                })
            }
        }
    }

    /// A call of `method` is over, for the wire and for user code.
    pub(super) fn leave(&self, weight: u32, method: i32, said: &Said) {
        let mut entrance = self.entrance.lock();
        entrance.measures.count(method, said);
        entrance.gate.leave(weight);
        self.grant(&mut entrance);
    }

    /// A router wants a place; `granted` is notified when one is kept for it.
    pub(super) fn ask(&self, asker: AskerId, granted: &Arc<Granted>) {
        let mut entrance = self.entrance.lock();
        entrance.idle_askers.remove(&asker);
        entrance.ask(asker, granted);
        self.grant(&mut entrance);
    }

    /// Like [`ServerState::ask`], once user code idles although it has calls.
    pub(super) fn ask_when_idle(server: &Arc<Self>, asker: AskerId, granted: &Arc<Granted>) {
        let mut entrance = server.entrance.lock();
        entrance.gate.withdraw(asker);
        entrance.askers.remove(&asker);
        server.grant(&mut entrance);
        // Asked once, however often routers withdraw and ask again before it idles.
        let is_first = !std::mem::replace(&mut entrance.waits_for_idle, true);
        if entrance.idle_askers.len() < IDLE_ASKS_MAX {
            entrance.idle_askers.insert(asker, Arc::clone(granted));
        }
        drop(entrance);
        if is_first {
            let weak = Arc::downgrade(server);
            let wake = move || weak.upgrade().into_iter().for_each(|server| server.on_idle());
            server.sink.when_idle(Box::new(wake));
        }
    }

    /// User code idles: the waiting routers now ask for a place.
    fn on_idle(&self) {
        let mut entrance = self.entrance.lock();
        entrance.waits_for_idle = false;
        for (asker, granted) in std::mem::take(&mut entrance.idle_askers) {
            entrance.ask(asker, &granted);
        }
        self.grant(&mut entrance);
    }

    /// A router no longer wants a place.
    pub(super) fn withdraw(&self, asker: AskerId) {
        let mut entrance = self.entrance.lock();
        entrance.gate.withdraw(asker);
        entrance.askers.remove(&asker);
        entrance.idle_askers.remove(&asker);
        self.grant(&mut entrance);
    }

    /// Offers unused leases to other routers. Call it when their time is over.
    pub(super) fn end_leases(&self) {
        self.grant(&mut self.entrance.lock());
    }

    fn grant(&self, entrance: &mut Entrance) {
        if !entrance.gate.is_asked() {
            return;
        }
        let now = Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut leases: Vec<Lease> = Vec::new();
        entrance.gate.grant(now, &mut leases);
        for lease in leases {
            if let Some(granted) = entrance.askers.get(&lease.asker) {
                granted.add();
            }
        }
    }

    /// The load after a call of `weight`, which took this long and has cost so much, has gone.
    pub(super) fn load_after(
        &self,
        weight: u32,
        took: Duration,
        alone: Option<Duration>,
        cost: Cost,
    ) -> HeaderValue {
        let (mut load, entered) = {
            let gate = &self.entrance.lock().gate;
            (gate.load(), gate.entered())
        };
        load.in_flight = load.in_flight.saturating_sub(weight);
        load.batch = self.batch.load(load.in_flight);
        let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        load.processing = Some(nanos(took));
        load.alone = alone.map(nanos);
        load.cost = self.costs.load(cost, Inside { in_flight: load.in_flight, entered });
        trailer(&load)
    }

    /// Keeps what the stepping thread says between two steps.
    pub(super) fn set_costs(&self, costs: CostState) {
        self.costs.set(costs, self.inside().entered);
    }

    pub(super) fn inside(&self) -> Inside {
        let gate = &self.entrance.lock().gate;
        Inside { in_flight: gate.load().in_flight, entered: gate.entered() }
    }

    pub(super) fn load(&self) -> Load {
        let mut load = self.entrance.lock().gate.load();
        load.batch = self.batch.load(load.in_flight);
        load
    }

    /// By path; see `Server.measures` for those that are none.
    pub(super) fn measures(&self) -> Vec<(String, MethodMeasures)> {
        let names = self.methods.names();
        let entrance = self.entrance.lock();
        let of = |(name, index)| Some((name, entrance.measures.of(index)?));
        names.into_iter().filter_map(of).collect()
    }

    /// Sets the state of the replica's batcher; `None`: it has none.
    pub(super) fn set_batch(&self, batch: Option<BatchState>) {
        self.batch.set(batch);
    }

    /// Listeners are told only of a change.
    pub(super) fn set_models(&self, models: Models) {
        self.models.send_if_modified(|current| {
            let is_new = *current != models;
            *current = models;
            is_new
        });
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.entrance.lock().gate.in_flight()
    }

    pub(super) fn set_limit(&self, limit: Option<u32>) {
        let mut entrance = self.entrance.lock();
        entrance.gate.set_limit(limit);
        self.grant(&mut entrance);
    }

    pub(super) fn shut(&self) {
        self.entrance.lock().is_shut = true;
    }

    /// Shuts the gate if no call is inside; returns whether it is shut.
    pub(super) fn shut_if_empty(&self) -> bool {
        let mut entrance = self.entrance.lock();
        let is_empty = entrance.gate.in_flight() == 0 && entrance.gate.idle_streams() == 0;
        entrance.is_shut |= is_empty;
        entrance.is_shut
    }

    /// Counts a connection for as long as the guard lives.
    pub(super) fn count_connection(self: &Arc<Self>) -> ConnectionCount {
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCount { state: self.clone() }
    }
}

pub(super) struct ConnectionCount {
    state: Arc<ServerState>,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.state.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
