//! The door for clients: the connections of one listener, in any protocol.
//!
//! A connection's first bytes (or ALPN) tell HTTP/2 from HTTP/1.1. Each request becomes a call of
//! the exchange, or is answered immediately. A front never decides which replica gets a call. It
//! decodes a message only for a client that speaks another protocol than gRPC. Behind it is a
//! [`Backend`]: a routing table or one server.

#![forbid(unsafe_code)]

mod access;
mod admit;
mod arrival;
mod builtin;
mod call;
mod client_stream;
mod connection;
mod connection_limit;
mod counters;
mod doors;
mod ends;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grpc_call;
mod guard;
mod handshake;
mod heads;
mod http1;
mod http2;
mod hypers_answer;
mod idle;
pub mod ingress;
mod limits;
mod linger;
mod llm;
mod mirror;
mod model_routes;
mod models;
mod own_call;
mod unreadable;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::timeout;

pub use access::{Access, RefusedRequest, hash};
pub use admit::admit_other_http2;
pub use arrival::{Arrival, Greeting, Opened, open};
pub use connection::ConnectionState;
pub use connection_limit::{Pace, PendingConnection, make_room};
use counters::Counters;
use guard::connection_throttle::ConnectionThrottle;
pub use guard::idle_connections::Word;
use guard::penalty_box::PenaltyBox;
pub use heads::proxies::{Network, NoNetwork, Proxies};
pub use http1::serve as serve_http1;
pub use http2::{ADMITTED_PER_TURN_MAX, on_error as on_http2_error, restrain};
pub use idle::{IdleTracker, is_over};
pub use limits::FrontLimits;
pub use upstream::{Backend, FixedServer, ServerBehind};

use router_transcode as transcode;

/// How long a client of a language model waits for a sign of life. Proxies give up a connection on
/// which nothing comes for 30 to 60 s.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Settings of a front.
#[derive(Clone, Debug)]
pub struct FrontConfig {
    pub limits: FrontLimits,
    /// Threads over which its connections are spread.
    pub io_threads: usize,
    /// The prefix that a proxy in front has removed from every path; empty, or `/` and a name.
    pub root_path: String,
    /// The server's name in answers of our own.
    pub answered_by: HeaderValue,
    /// The access rules; `None`: everything is allowed.
    pub access: Option<Arc<Access>>,
    pub proxies: Arc<Proxies>,
}

/// State that all connections of a front share.
#[derive(Debug)]
pub struct Front {
    pub backend: Backend,
    pub config: FrontConfig,
    pub counters: Arc<Counters>,
    penalty_box: PenaltyBox,
    connection_throttle: Arc<ConnectionThrottle>,
    /// The memory limit for the idle connections of one thread.
    idle_bytes_max: u64,
    /// The part of the limits that transcoding uses.
    transcoding: transcode::Limits,
    /// The health reported to load balancers; everything else is served all the same.
    is_healthy: AtomicBool,
    /// The timeout of requests for which neither client nor deployment sets one.
    request_timeout: Mutex<Option<Duration>>,
}

// === impl Front ===

impl Front {
    pub fn new(backend: Backend, config: FrontConfig) -> Arc<Self> {
        let (counters, now) = (Arc::default(), Instant::now());
        let limits = &config.limits;
        let idle_bytes_max = match limits.idle_bytes_max {
            0 => u64::MAX,
            bytes => bytes / config.io_threads.max(1) as u64,
        };
        let transcoding = transcode::Limits {
            message_size: limits.message_size,
            refuses_unknown_fields: limits.refuses_unknown_fields,
            cors: transcode::Cors::new(limits.cors_origins.iter().map(String::as_str)),
            keep_alive: STREAM_SILENCE_MAX,
            answered_by: config.answered_by.clone(),
        };
        Arc::new(Self {
            backend,
            config,
            counters,
            penalty_box: PenaltyBox::new(now),
            connection_throttle: Arc::new(ConnectionThrottle::new(now)),
            idle_bytes_max,
            transcoding,
            is_healthy: AtomicBool::new(true),
            request_timeout: Mutex::default(),
        })
    }

    pub fn set_request_timeout(&self, timeout: Option<Duration>) {
        *self.request_timeout.lock() = timeout;
    }

    pub fn set_healthy(&self, is_healthy: bool) {
        self.is_healthy.store(is_healthy, Ordering::Relaxed);
    }

    fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    pub fn limits(&self) -> &FrontLimits {
        &self.config.limits
    }

    fn request_timeout(&self) -> Option<Duration> {
        *self.request_timeout.lock()
    }

    /// Awaits a step, up to the time that a client has for its head; `None` also if it takes
    /// longer.
    async fn in_time<T>(&self, step: impl Future<Output = Option<T>>) -> Option<T> {
        let Ok(outcome) = timeout(self.limits().header_timeout, step).await else {
            self.counters.header_timeouts.count();
            return None;
        };
        outcome
    }
}
