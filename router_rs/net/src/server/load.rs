//! The load stream (design decision 7): reports the state of this replica to routers when it
//! changes.
//!
//! Answered here, without Python and without a place at the gate. Changes coalesce by themselves: a
//! report describes the state when it is written, not what happened.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, request};
use prost::Message;
use router_core::{AskerId, CacheBatch, LEASE_TIME};
use router_protocol::grpc::{CONTENT_TYPE_GRPC, Code, Framed, Status};
use router_protocol::mesh::load::{CacheReport, CostReport, LoadReport, LoadRequest, ModelList};
use router_protocol::mesh::messages::MessageReader;
use router_protocol::names;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::caches::CacheFollower;
use super::connection_state::ConnectionState;
use super::costs::Told;
use super::refusal::refuse;
use super::request_body::Incoming;
use super::sink::{Respond, Sink};
use super::state::{Granted, Models, ServerState};

/// A request with three flags has six bytes; a longer one is invalid.
const REQUEST_BYTES_MAX: usize = 64;

/// Costs change with each step; routers get the last change after this time. Arbitrary: answers bring
/// them news besides.
const COSTS_INTERVAL: Duration = Duration::from_millis(100);

/// The id of a router; `None` if the value is not one.
pub(super) fn asker(value: &HeaderValue) -> Option<AskerId> {
    value.to_str().ok()?.parse().ok().map(AskerId)
}

/// Starts a stream of reports, or refuses it to a stranger.
pub(super) fn answer(
    connection: &Rc<ConnectionState>,
    head: &request::Parts,
    body: Incoming,
    respond: Respond,
) {
    if !connection.info.is_trusted() {
        let text = "only routers of the mesh, which have proven its token, are told the load";
        return refuse(respond, &Status::new(Code::Unimplemented, text), HeaderMap::new());
    }
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    let Some(stream) = respond.send_response(response) else { return };
    let asker = head.headers.get(names::ASKER).and_then(asker);
    let asks = asker.map(|asker| Asks::new(asker, &connection.server, body));
    let news = News {
        models: connection.server.models.subscribe(),
        costs: connection.server.costs.subscribe(),
        costs_at: Instant::now(),
    };
    tokio::task::spawn_local(report(Rc::clone(connection), stream, news, asks));
}

/// A router's side of the stream, and the places that are kept for it.
struct Asks {
    asker: AskerId,
    server: Arc<ServerState>,
    granted: Arc<Granted>,
    requests: MessageReader<Incoming>,
    /// The router has ended its side.
    is_over: bool,
    lease_end: Option<Instant>,
    wants_caches: bool,
}

/// The result of a router's requests.
enum Said {
    /// So many places are kept for it now.
    Leases(u32),
    /// It wants reports of the cache, or no more.
    Caches(bool),
}

impl Asks {
    fn new(asker: AskerId, server: &Arc<ServerState>, body: Incoming) -> Self {
        Self {
            asker,
            server: Arc::clone(server),
            granted: Arc::default(),
            requests: MessageReader::new(body, REQUEST_BYTES_MAX),
            is_over: false,
            lease_end: None,
            wants_caches: false,
        }
    }

    /// Handles the router's requests, until there is something to do.
    async fn next(&mut self) -> Said {
        loop {
            let lease_end = self.lease_end;
            tokio::select! {
                leases = self.granted.wait() => {
                    self.lease_end = Some(Instant::now() + Duration::from_nanos(LEASE_TIME.0));
                    return Said::Leases(leases);
                }
                request = self.requests.next(), if !self.is_over => {
                    let said = self.follow(request);
                    if said.is_some() {
                        return Said::Caches(said == Some(true));
                    }
                }
                () = until(lease_end) => {
                    self.lease_end = None;
                    self.server.end_leases();
                }
            }
        }
    }

    /// Returns whether the router wants reports of the cache, if that has changed.
    fn follow(&mut self, request: Option<LoadRequest>) -> Option<bool> {
        let Some(request) = request else {
            self.is_over = true;
            self.server.withdraw(self.asker);
            return None;
        };
        let before = std::mem::replace(&mut self.wants_caches, request.caches);
        match request {
            // Each request has both wishes, and only one of them is new.
            LoadRequest { caches, .. } if caches != before => return Some(caches),
            LoadRequest { ask: true, when_idle: true, .. } => {
                ServerState::ask_when_idle(&self.server, self.asker, &self.granted);
            }
            LoadRequest { ask: true, when_idle: false, .. } => {
                self.server.ask(self.asker, &self.granted);
            }
            LoadRequest { ask: false, .. } => self.server.withdraw(self.asker),
        }
        None
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.server.withdraw(self.asker);
    }
}

/// Returns at `instant`, or never.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn next_said(asks: &mut Option<Asks>) -> Said {
    match asks {
        Some(asks) => asks.next().await,
        None => std::future::pending().await,
    }
}

async fn next_batch(follower: &mut Option<CacheFollower>) -> CacheBatch {
    match follower {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}

/// The sources of the reports of one stream.
struct News {
    models: watch::Receiver<Models>,
    costs: watch::Receiver<Option<Told>>,
    /// The next report of costs may be sent then.
    costs_at: Instant,
}

impl News {
    /// The costs, if they have changed since the last report of them, and may be reported again.
    fn take_costs(&mut self, server: &ServerState) -> Option<CostReport> {
        let now = Instant::now();
        if now < self.costs_at || !self.costs.has_changed().unwrap_or(false) {
            return None;
        }
        let told = (*self.costs.borrow_and_update())?;
        let costs = CostReport::of(&told.load_now(server.inside()));
        self.costs_at = now + COSTS_INTERVAL;
        Some(costs)
    }
}

/// Returns when there is a change to be reported, from `at` on.
async fn changed(costs: &watch::Receiver<Option<Told>>, at: Instant) {
    sleep_until(at).await;
    // On another receiver: this one says afterwards what is new.
    if costs.clone().changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn report(
    connection: Rc<ConnectionState>,
    mut stream: Sink,
    mut news: News,
    mut asks: Option<Asks>,
) {
    let mut draining = connection.draining.subscribe();
    // The first report is sent whether or not something has changed.
    news.models.mark_changed();
    if news.costs.borrow().is_some() {
        news.costs.mark_changed();
    }
    let mut sequence = 0;
    let mut follower: Option<CacheFollower> = None;
    loop {
        let (mut leases, mut cache, mut has_new_models) = (0, None, false);
        tokio::select! {
            biased;
            _ = draining.wait_for(|is_draining| *is_draining) => break,
            () = poll_fn(|context| stream.poll_cancelled(context)) => return,
            changed = news.models.changed() => match changed {
                Ok(()) => has_new_models = true,
                Err(_) => break,
            },
            said = next_said(&mut asks) => match said {
                Said::Leases(granted) => leases = granted,
                Said::Caches(wanted) => {
                    follower = wanted.then(|| connection.server.caches.follow());
                    continue;
                }
            },
            () = changed(&news.costs, news.costs_at) => {}
            batch = next_batch(&mut follower) => cache = Some(CacheReport::of(&batch)),
        }
        sequence += 1;
        // A report is about what has changed, all of it.
        has_new_models |= news.models.has_changed().unwrap_or(false);
        let model_ids = has_new_models.then(|| news.models.borrow_and_update().to_vec());
        let load = connection.server.load();
        let report = LoadReport {
            sequence,
            in_flight: load.in_flight,
            limit: load.limit,
            models: model_ids.map(|model_ids| ModelList { model_ids }),
            leases,
            costs: news.take_costs(&connection.server),
            cache,
        };
        if stream.send_data(Framed::new(report.encode_to_vec().into())).is_err() {
            return;
        }
        // A router that does not read gets one report when it does, not all that it missed.
        poll_fn(|context| stream.poll_room(1, context)).await;
    }
    let mut trailers = HeaderMap::new();
    Status::ok().write(&mut trailers);
    stream.send_trailers(trailers);
}
