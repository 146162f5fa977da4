//! State that the requests of one client connection share.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::HeaderMap;
use router_dispatch::Stop;
use router_io::Remote;
use router_io::token::next_token;
use router_protocol::grpc::{Code, Status};
use slab::Slab;
use tokio::sync::oneshot;

use crate::Front;
use crate::access::{Asker, ClientIdentity};
use crate::client_stream::Gauge;
use crate::guard::connection_throttle::ThrottledConnection;
use crate::guard::frames::IDLE_POINTS;
use crate::guard::penalty_box::Offence;
use crate::heads::forwarded::{Client, named_client};
use crate::heads::plain_head::Said;
use crate::heads::proxies::Proxies;
use crate::idle::{IdleTracker, Room, Speech};
use crate::own_call::{CallFuture, OwnCall};
use crate::upstream::RouteLookup;

/// The points that a request earns for its connection, unless it was cancelled at once: a client
/// may cancel a request for which it has waited.
const CALL_POINTS: u64 = 16;

/// See the module's documentation. It lives on one thread.
#[derive(Debug)]
pub struct ConnectionState {
    pub(super) front: Arc<Front>,
    pub(super) lookup: RouteLookup,
    guest: Guest,
    pub(super) caller: ClientIdentity,
    /// Identifies the connection among callers.
    pub(super) number: u64,
    pub(super) is_tls: bool,
    /// Other connections of its address were closed for offences.
    pub(super) is_suspect: bool,
    pub(super) gauge: Arc<Gauge>,
    room: Rc<Room>,
    visit: ThrottledConnection,
    /// The connection details last sent to replicas.
    pub(super) said: Said,
    /// Where its calls run, one at a time; dangling for a connection that may have several.
    pub(super) own_call: RefCell<Weak<OwnCall>>,
    /// The task that reads the call's output is polled next, so it need not be woken.
    pub(super) is_attentive: Cell<bool>,
    /// No further requests are accepted.
    pub(super) is_draining: Cell<bool>,
    is_stopped: Cell<bool>,
    /// The client was informed that it sends too many requests.
    is_told: Cell<bool>,
    /// The tasks of calls that wait for something.
    waiting: RefCell<Slab<Waker>>,
    /// Closes when this state is dropped.
    held: RefCell<Option<oneshot::Sender<()>>>,
}

/// The client of a connection: its peer, or the one that a trusted proxy names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    pub peer: SocketAddr,
    /// The peer itself is a trusted proxy.
    is_proxy: bool,
}

/// A new peer, before anything was read from it.
pub(super) struct Met {
    pub guest: Guest,
    pub visit: ThrottledConnection,
    pub is_suspect: bool,
    pub gauge: Arc<Gauge>,
}

// === impl Guest ===

impl Guest {
    pub(super) fn new(proxies: &Proxies, peer: SocketAddr) -> Self {
        Self { peer, is_proxy: proxies.trusts(peer.ip()) }
    }

    /// The address for limits that apply per address; `None`: the clients behind it are unrelated.
    fn counted(self) -> Option<IpAddr> {
        (!self.is_proxy).then(|| self.peer.ip())
    }
}

// === impl Met ===

impl Met {
    pub(super) fn new(front: &Arc<Front>, guest: Guest, is_tls: bool) -> Self {
        let counted = guest.counted();
        let is_suspect = counted.is_some_and(|each| front.penalty_box.has(each, Instant::now()));
        let visit = ThrottledConnection::new(&front.connection_throttle, counted, is_tls);
        Self { guest, visit, is_suspect, gauge: Gauge::new(is_suspect) }
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    pub(super) fn new(
        front: Arc<Front>,
        room: Rc<Room>,
        met: Met,
        caller: ClientIdentity,
        client: &Remote,
    ) -> Self {
        let Met { guest, visit, is_suspect, gauge } = met;
        Self {
            lookup: RouteLookup::of(&front.backend, client),
            room,
            front,
            guest,
            caller,
            number: next_token(),
            is_tls: client.tls.is_some(),
            is_suspect,
            gauge,
            visit,
            said: Said::default(),
            own_call: RefCell::default(),
            is_attentive: Cell::new(false),
            is_draining: Cell::new(false),
            is_stopped: Cell::new(false),
            is_told: Cell::new(false),
            waiting: RefCell::default(),
            held: RefCell::default(),
        }
    }

    /// Runs calls in the connection's own task, which polls the returned value.
    pub(super) fn take_calls(&self) -> Rc<OwnCall> {
        let own = Rc::new(OwnCall::default());
        self.own_call.replace(Rc::downgrade(&own));
        own
    }

    /// Runs `call` in the connection's task if that accepts calls, or in its own.
    pub(super) fn run(&self, call: CallFuture) {
        match self.own_call.borrow().upgrade() {
            Some(own) => own.begin(call),
            None => drop(tokio::task::spawn_local(call)),
        }
    }

    /// The sender of a request: the client, or the one that a trusted proxy names in its head.
    pub(super) fn client(&self, headers: &HeaderMap) -> Client {
        let own = Client { peer: self.guest.peer, is_tls: self.is_tls };
        if !self.guest.is_proxy {
            return own;
        }
        named_client(headers, own, &self.front.config.proxies)
    }

    /// Drops `sender` with the last call.
    pub(super) fn hold(&self, sender: oneshot::Sender<()>) {
        self.held.replace(Some(sender));
    }

    /// The sender of these headers.
    pub(super) fn asker(&self, headers: &HeaderMap) -> Asker<'_> {
        Asker::new(self.front.config.access.as_deref(), &self.caller, headers)
    }

    /// Records a request of the client.
    pub fn on_request(&self) {
        self.visit.on_request();
    }

    /// Records that the connection must be closed because of an offence.
    pub(super) fn on_offence(&self, offence: Offence) {
        if let Some(address) = self.guest.counted() {
            self.front.penalty_box.add(address, offence, Instant::now());
        }
    }

    /// Its share of the memory for idle connections.
    pub(super) fn idle_tracker(&self, speech: Speech) -> IdleTracker {
        IdleTracker::new(Rc::clone(&self.room), speech, self.is_tls)
    }

    /// Like `idle_tracker`, for HTTP/2.
    pub fn idle_tracker_http2(&self) -> IdleTracker {
        self.idle_tracker(Speech::Http2)
    }

    /// Call it when the connection's task is polled.
    pub fn begin_turn(&self) {
        self.gauge.begin_turn();
    }

    /// A call is running that was not cancelled at once.
    pub fn earn_by_call(&self) {
        self.gauge.earn(CALL_POINTS);
    }

    /// A call was refused by the access rules. It costs as many points as a PING.
    pub fn on_refusal(&self) {
        self.gauge.waste(IDLE_POINTS);
    }

    /// A piece of an answer is sent.
    pub fn earn_by_answer(&self, bytes: usize) {
        self.gauge.earn_by_answer(bytes);
    }

    /// Whether the client floods us and must be notified; true once.
    pub fn is_flood(&self) -> bool {
        if self.is_told.get() || !self.gauge.is_too_much() {
            return false;
        }
        self.is_told.set(true);
        self.front.counters.floods.count();
        self.on_offence(Offence::Flood);
        true
    }

    /// Stops accepting requests.
    pub fn drain(&self) {
        self.is_draining.set(true);
    }

    /// Ends all calls.
    pub fn stop(&self) {
        self.is_stopped.set(true);
        for (_, waker) in &*self.waiting.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Notifies one call of the end of the front.
#[derive(Debug)]
pub(super) struct StopListener {
    connection: Rc<ConnectionState>,
    /// Our place among the waiting tasks. It is taken when the call waits for the first time.
    place: Cell<Option<usize>>,
}

impl StopListener {
    pub(super) fn new(connection: &Rc<ConnectionState>) -> Self {
        Self { connection: Rc::clone(connection), place: Cell::new(None) }
    }
}

impl Stop for StopListener {
    fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.connection.is_stopped.get() {
            let text = format!("{} is shutting down", self.connection.lookup.owner());
            return Poll::Ready(Status::new(Code::Unavailable, text));
        }
        let mut waiting = self.connection.waiting.borrow_mut();
        match self.place.get().and_then(|place| waiting.get_mut(place)) {
            // The waker changes when the call moves from its connection's task to its own.
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.place.set(Some(waiting.insert(cx.waker().clone()))),
        }
        Poll::Pending
    }
}

impl Drop for StopListener {
    fn drop(&mut self) {
        if let Some(place) = self.place.get() {
            self.connection.waiting.borrow_mut().remove(place);
        }
    }
}
