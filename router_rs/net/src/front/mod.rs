//! The door for clients: one listener's connections, whatever they speak.
//!
//! A connection's first bytes (or ALPN) tell HTTP/2 from HTTP/1.1. Each request becomes a call of
//! the exchange, or is answered on the spot. What a front never does: decode a message, or decide
//! which replica gets a call. What is behind it, a routing table or one server, is its [`Source`].

mod access;
mod addresses;
mod admit;
mod awake;
mod builtin;
mod call;
mod connection;
mod counters;
mod crumbs;
mod date;
mod doors;
mod doorway;
mod forwarded;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod grpc_end;
mod handshake;
mod head_lines;
mod host;
mod http1;
mod http1_end;
mod http1_socket;
mod http2;
mod http2_end;
mod limits;
mod linger;
mod offenders;
mod own_call;
mod plain;
mod plain_head;
mod proxies;
mod proxy_header;
mod ration;
mod request_id;
mod rest;
mod resting;
mod shadow;
mod socket_frames;
mod socket_ration;
mod stall;
mod strangers;
mod suspicion;
mod turnstile;
mod unread;
mod upstream;
mod websocket;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;

pub(crate) use access::hash;
pub use access::{Access, Refused};
pub(crate) use admit::admit_other_http2;
pub(crate) use connection::{Arrival, ConnectionState, Greeting, Opened, open, serve};
use counters::Counters;
pub(crate) use doorway::{Entrant, Pace, make_room};
pub(crate) use http1::serve as serve_http1;
pub(crate) use http2::{ADMITTED_PER_TURN_MAX, on_error as on_http2_error, restrain};
pub use limits::FrontLimits;
use offenders::Offenders;
pub use proxies::{Network, NoNetwork, Proxies};
pub(crate) use rest::{Rest, is_over};
pub(crate) use resting::Word;
use strangers::Strangers;
pub(crate) use upstream::{FixedServer, ServerBehind, Source};

use crate::transcode;

/// How a front behaves.
#[derive(Clone, Debug)]
pub(crate) struct FrontConfig {
    pub limits: FrontLimits,
    /// Threads over which its connections are spread.
    pub io_threads: usize,
    /// What whoever is in front of us has removed from every path; empty, or `/` and a name.
    pub root_path: String,
    /// Who we say we are in answers of our own.
    pub answered_by: HeaderValue,
    /// Who may call what; `None`: everybody may everything.
    pub access: Option<Arc<Access>>,
    pub proxies: Arc<Proxies>,
}

/// What all connections of a front share.
#[derive(Debug)]
pub(crate) struct Front {
    pub source: Source,
    pub config: FrontConfig,
    pub counters: Counters,
    offenders: Offenders,
    strangers: Strangers,
    /// What the connections that rest on one thread may keep.
    rest_bytes_max: u64,
    /// The part of the limits that transcoding has.
    transcoding: transcode::Limits,
    /// What load balancers are told; everything else is served all the same.
    is_healthy: AtomicBool,
    /// Of requests for which neither client nor deployment says anything.
    request_timeout: Mutex<Option<Duration>>,
}

// === impl Front ===

impl Front {
    pub(crate) fn new(source: Source, config: FrontConfig) -> Arc<Self> {
        let (counters, now) = (Counters::default(), Instant::now());
        let limits = &config.limits;
        let rest_bytes_max = match limits.idle_bytes_max {
            0 => u64::MAX,
            bytes => bytes / config.io_threads.max(1) as u64,
        };
        let transcoding = transcode::Limits {
            message_size: limits.message_size,
            refuses_unknown_fields: limits.refuses_unknown_fields,
            cors: transcode::Cors::new(limits.cors_origins.iter().map(String::as_str)),
            answered_by: config.answered_by.clone(),
        };
        Arc::new(Self {
            source,
            config,
            counters,
            offenders: Offenders::new(now),
            strangers: Strangers::new(now),
            rest_bytes_max,
            transcoding,
            is_healthy: AtomicBool::new(true),
            request_timeout: Mutex::default(),
        })
    }

    pub(crate) fn set_request_timeout(&self, timeout: Option<Duration>) {
        *self.request_timeout.lock() = timeout;
    }

    pub(crate) fn set_healthy(&self, is_healthy: bool) {
        self.is_healthy.store(is_healthy, Ordering::Relaxed);
    }

    fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    pub(crate) fn limits(&self) -> &FrontLimits {
        &self.config.limits
    }

    fn request_timeout(&self) -> Option<Duration> {
        *self.request_timeout.lock()
    }
}
