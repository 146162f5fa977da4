//! The listener in front of a routing table: accepts connections and forwards calls.
//!
//! It never decodes a message; it reads only path, metadata, deadline and sizes (design 5).
//! `router_dispatch` and `router_core` decide which replica gets a call.

mod listener;

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use router_dispatch::RoutingTable;
use router_io::phase::Phase;
use router_io::tls::ServerTls;
use router_io::{Bound, IoThreads, bind_tcp, listen_at};
use tokio::sync::watch;

use crate::{Backend, Front, FrontConfig};
use listener::Acceptor;

pub use crate::{
    Access, FrontLimits as IngressLimits, Network, NoNetwork, Proxies, RefusedRequest,
};

/// Where an ingress listens and with how many threads.
#[derive(Clone, Debug)]
pub struct IngressConfig {
    /// `host:port`; port 0 picks one.
    pub addresses: Vec<String>,
    pub io_threads: usize,
    pub tls: Option<Arc<ServerTls>>,
    pub limits: IngressLimits,
    /// The prefix that a proxy in front has removed from every path; empty, or `/` and a name.
    pub root_path: String,
    /// The access rules; `None`: everything is allowed.
    pub access: Option<Arc<Access>>,
    pub proxies: Arc<Proxies>,
}

impl Default for IngressConfig {
    /// Nowhere, with one thread and without TLS.
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            io_threads: 1,
            tls: None,
            limits: IngressLimits::default(),
            root_path: String::new(),
            access: None,
            proxies: Arc::default(),
        }
    }
}

/// An ingress. It binds and starts threads in [`Ingress::start`], not before.
#[derive(Debug)]
pub struct Ingress {
    config: IngressConfig,
    front: Arc<Front>,
    phase: watch::Sender<Phase>,
    threads: Mutex<Option<Arc<IoThreads>>>,
}

// === impl Ingress ===

impl Ingress {
    pub fn new(table: Arc<RoutingTable>, config: IngressConfig) -> Self {
        let front = FrontConfig {
            limits: config.limits.clone(),
            io_threads: config.io_threads,
            root_path: config.root_path.trim_end_matches('/').to_owned(),
            answered_by: HeaderValue::from_static("ingress"),
            access: config.access.clone(),
            proxies: Arc::clone(&config.proxies),
        };
        let front = Front::new(Backend::Table(table), front);
        Self { config, front, phase: watch::Sender::new(Phase::Serving), threads: Mutex::default() }
    }

    /// Binds and serves, also on these sockets, which were bound elsewhere and may stay open.
    /// Returns the addresses, first in the order of the configuration and then in that of the
    /// sockets.
    ///
    /// # Errors
    /// A port is taken or an address cannot be bound; then nothing is bound. The operating system
    /// refuses threads.
    pub fn start(&self, held: Vec<OwnedFd>) -> io::Result<Vec<Bound>> {
        let mut slot = self.threads.lock();
        if slot.is_some() {
            return Err(io::Error::other("the ingress has been started before"));
        }
        let listeners = self
            .config
            .addresses
            .iter()
            .map(|address| bind_tcp(address, false).map_err(|error| name(error, address)))
            .chain(held.into_iter().map(listen_at))
            .collect::<io::Result<Vec<TcpListener>>>()?;
        let bound = listeners.iter().map(Bound::of).collect::<io::Result<Vec<Bound>>>()?;
        let threads = IoThreads::start("pyserve-in", self.config.io_threads)?;
        for listener in listeners {
            let thread = threads.next().clone();
            let acceptor = Acceptor {
                front: Arc::clone(&self.front),
                threads: Arc::downgrade(&threads),
                thread: thread.clone(),
                phase: self.phase.subscribe(),
                tls: self.config.tls.clone(),
            };
            thread.run(move || {
                tokio::task::spawn_local(acceptor.run(listener));
            });
        }
        *slot = Some(threads);
        Ok(bound)
    }

    /// Stops listening and asks clients to go elsewhere; calls in flight continue.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Answers the remaining calls with `UNAVAILABLE`; connections close when they are empty.
    pub fn stop(&self) {
        self.advance(Phase::Stopped);
    }

    /// Sets the timeout of further requests, gRPC or not, for which neither the client nor the
    /// deployment sets one.
    pub fn set_request_timeout(&self, timeout: Option<Duration>) {
        self.front.set_request_timeout(timeout);
    }

    /// Sets what `/-/healthz` answers to load balancers; calls are served either way. It also
    /// answers 503 while draining, but only on connections that exist already, since the port is
    /// closed then.
    pub fn set_healthy(&self, is_healthy: bool) {
        self.front.set_healthy(is_healthy);
    }

    /// Calls that are not over.
    pub fn in_flight(&self) -> u64 {
        self.front.counters.in_flight()
    }

    /// Named counters, for status pages and tests.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut stats = self.front.counters.read();
        stats.push(("connections_max", self.front.limits().connections_bound()));
        stats
    }

    /// By protocol: open requests, and answered ones by class.
    pub fn doors(&self) -> Vec<(&'static str, Vec<(&'static str, u64)>)> {
        self.front.counters.doors.read()
    }

    fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let is_later = phase > *current;
            *current = phase.max(*current);
            is_later
        });
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        self.stop();
    }
}

fn name(error: io::Error, address: &str) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}
