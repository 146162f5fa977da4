//! A channel: calls of one user to one address, or to one deployment of a routing table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::uri::Scheme;
use parking_lot::Mutex;
use router_dispatch::RoutingTable;
use router_io::token::next_token;
use router_io::{IoThread, IoThreads, Work};
use router_upstream::keepalive::KeepaliveConfig;
use router_upstream::pool;
use router_upstream::target::{AddressTarget, Target};

use super::call::{ClientCall, NewCall, NewChoice};
use super::connectivity::{Connectivity, Tracker};
use super::runner;
use super::shared::{ChannelConfig, ChannelShared, Destination};
use super::target::{TargetError, parse};
use crate::link::{EventSink, Link};
use crate::server::Keepalive;

/// Requests through a table carry this authority unless the user names one.
const MESH_AUTHORITY: &str = "pyserve.mesh";

/// See the module's documentation. Dropping it closes it.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<ChannelShared>,
}

// === impl Channel ===

impl Channel {
    /// A channel to `host:port`, `dns:`, `ipv4:`, `ipv6:` or `unix:`. Nothing is dialled yet.
    ///
    /// # Errors
    /// The target or the authority cannot be used.
    pub fn to_address(
        target: &str,
        config: ChannelConfig,
        threads: Arc<IoThreads>,
    ) -> Result<Self, TargetError> {
        let parsed = parse(target)?;
        let keepalive = match config.keepalive {
            None => KeepaliveConfig::foreign(None, Duration::ZERO),
            Some(Keepalive { time, timeout }) => KeepaliveConfig::foreign(Some(time), timeout),
        };
        let tls = config.tls.clone();
        let target = Target::address(AddressTarget { address: parsed.address, tls, keepalive });
        Self::new(Destination::Address(target), &parsed.authority, config, threads)
    }

    /// A channel to a deployment, named `application/Deployment`.
    ///
    /// # Errors
    /// The name has no slash, or the authority cannot be used.
    pub fn to_deployment(
        name: &str,
        table: Arc<RoutingTable>,
        config: ChannelConfig,
        threads: Arc<IoThreads>,
    ) -> Result<Self, TargetError> {
        let (application, deployment) =
            name.split_once('/').ok_or_else(|| TargetError::Deployment(name.to_owned()))?;
        let destination = Destination::Deployment {
            table,
            application: application.to_owned(),
            deployment: deployment.to_owned(),
        };
        Self::new(destination, MESH_AUTHORITY, config, threads)
    }

    fn new(
        destination: Destination,
        authority: &str,
        config: ChannelConfig,
        threads: Arc<IoThreads>,
    ) -> Result<Self, TargetError> {
        let tls_name = config.tls.as_ref().and_then(|tls| tls.name_override());
        let authority = config.authority.as_deref().or(tls_name).unwrap_or(authority).to_owned();
        let scheme = if config.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let seed = match &destination {
            Destination::Address(target) => target.key().0,
            Destination::Deployment { .. } => 0,
        };
        let reconnect = config.reconnect;
        let shared = ChannelShared {
            authority: authority.parse().map_err(|_| TargetError::Authority(authority))?,
            scheme,
            config,
            destination,
            tracker: Tracker::new(seed, reconnect),
            budget: Arc::default(),
            caller: next_token(),
            thread: threads.next().clone(),
            _threads: threads,
            is_closed: AtomicBool::new(false),
            waiting: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Queues a call at the channel's I/O thread without waking it: `thread().wake()` must follow.
    /// Its events go to `sink`, the last one is `Done`.
    pub fn start(&self, sink: Arc<dyn EventSink>, new: NewCall) -> Arc<ClientCall> {
        let deadline = new.timeout.map(|timeout| Instant::now() + timeout);
        let link = Link::new(next_token(), deadline, sink, self.shared.thread.clone());
        let call = Arc::new(ClientCall::new(link));
        let (shared, started) = (Arc::clone(&self.shared), Arc::clone(&call));
        self.shared.thread.queue(Work::Run(Box::new(move || {
            tokio::task::spawn_local(runner::run(shared, started, new));
        })));
        call
    }

    /// Queues the choice of a place without waking the I/O thread: `thread().wake()` must follow.
    /// One `Chosen` event with the returned token reports the outcome.
    pub fn choose(&self, sink: Arc<dyn EventSink>, new: NewChoice) -> u64 {
        let token = next_token();
        let deadline = new.timeout.map(|timeout| Instant::now() + timeout);
        let shared = Arc::clone(&self.shared);
        let choice = runner::Choice { token, sink, deadline, new };
        self.shared.thread.queue(Work::Run(Box::new(move || {
            tokio::task::spawn_local(runner::choose_place(shared, choice));
        })));
        token
    }

    /// Whether the calls go through a routing table.
    pub fn is_to_deployment(&self) -> bool {
        matches!(self.shared.destination, Destination::Deployment { .. })
    }

    /// The thread on which the calls of this channel run.
    pub fn thread(&self) -> &IoThread {
        &self.shared.thread
    }

    /// The state known now. A channel to a deployment is always ready until it is closed.
    pub fn state(&self, try_to_connect: bool) -> Connectivity {
        let state = self.shared.tracker.state();
        if try_to_connect && state == Connectivity::Idle {
            let shared = Arc::clone(&self.shared);
            self.shared.thread.run(move || {
                tokio::task::spawn_local(runner::connect(shared));
            });
        }
        state
    }

    /// Sends one `State` event with the returned token when the state differs from `last`.
    pub fn watch_state(&self, sink: Arc<dyn EventSink>, last: u8) -> u64 {
        let token = next_token();
        self.shared.tracker.watch(sink, token, last);
        token
    }

    /// Ends the calls in flight `CANCELLED` and closes the connections. Idempotent.
    pub fn close(&self) {
        if self.shared.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.tracker.enter(Connectivity::Shutdown);
        for (_, waker) in &*self.shared.waiting.lock() {
            waker.wake_by_ref();
        }
        if let Destination::Address(target) = &self.shared.destination {
            let target = Arc::clone(target);
            self.shared.thread.run(move || pool::forget(&target));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}
