//! State that the calls of a connection share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::request;
use router_front as front;
use router_io::IoThread;
use router_io::phase::Phase;
use router_io::token::next_token;
use slab::Slab;
use tokio::sync::watch;

use super::served_call::{ConnectionInfo, ServedCall};
use super::state::ServerState;
use crate::link::Link;

/// See the module's documentation. It lives on one thread.
pub(super) struct ConnectionState {
    pub(super) server: Arc<ServerState>,
    pub(super) info: Arc<ConnectionInfo>,
    pub(super) thread: IoThread,
    /// The calls in flight, to be woken when the server stops.
    pub(super) calls: RefCell<Slab<Arc<ServedCall>>>,
    /// Set when the connection takes no more calls: streams that end with it must end.
    pub(super) draining: watch::Sender<bool>,
    /// The nonce of an unfinished handshake.
    pub(super) nonce: Cell<Vec<u8>>,
    /// `None`: the connection is local or inside this process.
    pub(super) guest: Option<Guest>,
}

/// A connection of an unknown client.
pub(super) struct Guest {
    pub(super) front: Rc<front::ConnectionState>,
    /// Requests that are not gRPC go to the front.
    pub(super) has_doors: bool,
}

/// The context for serving a connection.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) server: Arc<ServerState>,
    pub(super) thread: IoThread,
    pub(super) phase: watch::Receiver<Phase>,
}

// === impl Host ===

impl Host {
    pub(super) fn state(&self, info: ConnectionInfo, guest: Option<Guest>) -> Rc<ConnectionState> {
        Rc::new(ConnectionState {
            server: Arc::clone(&self.server),
            info: Arc::new(info),
            thread: self.thread.clone(),
            calls: RefCell::default(),
            draining: watch::Sender::new(false),
            nonce: Cell::default(),
            guest,
        })
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Makes the `ServedCall` that the user of a new call gets.
    pub(super) fn served_call(
        &self,
        head: request::Parts,
        deadline: Option<Instant>,
        method: i32,
        is_http: bool,
    ) -> Arc<ServedCall> {
        let link = Link::new(next_token(), deadline, self.server.sink.clone(), self.thread.clone());
        let (since, info) = (Instant::now(), self.info.clone());
        let (alone_ns, cost) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(ServedCall {
            link,
            head,
            since,
            method,
            connection: info,
            is_http,
            alone_ns,
            cost,
            file_error: OnceLock::new(),
        })
    }
}
