//! What all connections of a server share: settings, methods, the gate, the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use router_core::{Gate, Load};
use tokio::sync::watch;

use super::load::Models;
use super::methods::Methods;
use crate::grpc::{Code, Encoding, Status};
use crate::link::{CancelReason, EventSink};

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
    /// Bound of calls of methods with weight 0.
    pub idle_streams_max: u32,
    pub concurrent_streams_max: u32,
    pub default_encoding: Encoding,
    pub keepalive: Option<Keepalive>,
    pub connection_age_max: Option<Duration>,
    /// What a router's handshake must find; empty for a server that is no replica.
    pub replica_id: String,
    /// The mesh token; empty: nobody is trusted.
    pub token: Vec<u8>,
}

/// Counters for people and tests; relaxed, since nothing is decided by them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
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
    pub(super) sink: Arc<dyn EventSink>,
    pub(super) counters: Counters,
    pub(super) models: watch::Sender<Models>,
    entrance: Mutex<Entrance>,
}

/// The gate, and whether it was shut for good.
#[derive(Debug)]
struct Entrance {
    gate: Gate,
    is_shut: bool,
}

/// Why a call does not get in.
pub(super) enum Refused {
    /// The limit is reached.
    Full { status: Status, load: HeaderValue },
    /// The server has ended; the call came while the client was being told.
    Shut,
}

impl ServerState {
    pub(super) fn new(config: ServerConfig, sink: Arc<dyn EventSink>) -> Self {
        let gate = Gate::new(config.concurrent_calls_max, config.idle_streams_max);
        Self {
            config,
            methods: Methods::default(),
            sink,
            counters: Counters::default(),
            models: watch::Sender::new(Models::default()),
            entrance: Mutex::new(Entrance { gate, is_shut: false }),
        }
    }

    /// `may_bypass` is asked when there is no room.
    pub(super) fn enter(
        &self,
        weight: u32,
        may_bypass: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        let mut entrance = self.entrance.lock();
        if entrance.is_shut {
            return Err(Refused::Shut);
        }
        match entrance.gate.try_enter(weight) {
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
                Err(Refused::Full {
                    status: Status::new(Code::ResourceExhausted, text),
                    load: load_value(full.in_flight, full.limit),
                })
            }
        }
    }

    pub(super) fn leave(&self, weight: u32) {
        self.entrance.lock().gate.leave(weight);
    }

    /// The load as it will be when a call of `weight` has gone.
    pub(super) fn load_after(&self, weight: u32) -> HeaderValue {
        let load = self.entrance.lock().gate.load();
        load_value(load.in_flight.saturating_sub(weight), load.limit)
    }

    pub(super) fn load(&self) -> Load {
        self.entrance.lock().gate.load()
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
        self.entrance.lock().gate.set_limit(limit);
    }

    pub(super) fn shut(&self) {
        self.entrance.lock().is_shut = true;
    }

    /// Shuts the gate if nobody is inside; whether it is shut.
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

/// `<in_flight>;<limit>`, see `mesh::names::LOAD`.
///
/// It differs in nearly every answer, so it is marked as one that HPACK must not remember:
/// it would push the useful entries out of the table.
fn load_value(in_flight: u32, limit: u32) -> HeaderValue {
    let mut value = HeaderValue::try_from(format!("{in_flight};{limit}"))
        .expect("invariant: digits and a semicolon are ASCII");
    value.set_sensitive(true);
    value
}
