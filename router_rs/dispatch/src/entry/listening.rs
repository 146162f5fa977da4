//! Follows what replicas report about their models, while calls name models, and about the costs of
//! their requests, while there are calls, and asks for places, while calls are parked (design
//! decision 7).
//!
//! One task per deployment, started by such a call on that call's thread. It opens a load stream to
//! each replica, and ends all of them when there has been no such call for a while. A broken stream
//! is opened again; it begins with the whole list, and the ask is repeated.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request};
use router_core::{LeaseRequest, Nanos, ReplicaId};
use router_protocol::grpc::framing::frame;
use router_protocol::grpc::{CONTENT_TYPE_GRPC, Code, GRPC_STATUS};
use router_protocol::mesh::load::{CostReport, LoadReport, LoadRequest};
use router_protocol::mesh::messages::MessageReader;
use router_protocol::names::{ASKER, LOAD_PATH};
use router_upstream::answer::AnswerBody;
use router_upstream::connection::Sends;
use router_upstream::pool::{Acquired, acquire};
use router_upstream::request_body::{Closed, RequestBody};
use router_upstream::target::Target;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::DeploymentEntry;

/// Pauses before a broken stream is opened again (design 6).
const PAUSE_INITIAL: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The limit for a list of models; a longer report is invalid.
const REPORT_BYTES_MAX: usize = 1 << 20;

impl DeploymentEntry {
    /// A call names a model, or waits for a place that it asks for. Call it on an I/O thread.
    pub(super) fn listen_to_loads(self: &Arc<Self>, now: Nanos) {
        let loads = &self.loads;
        loads.last_call.store(now.0, Ordering::SeqCst);
        if !loads.is_listening.load(Ordering::SeqCst)
            && !loads.is_listening.swap(true, Ordering::SeqCst)
        {
            let guard = ListenGuard { entry: Arc::downgrade(self), is_done: false };
            tokio::task::spawn_local(listen(guard));
        }
    }
}

/// Lets another call start the task again when its thread ends.
struct ListenGuard {
    entry: Weak<DeploymentEntry>,
    is_done: bool,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        if let (false, Some(entry)) = (self.is_done, self.entry.upgrade()) {
            entry.loads.is_listening.store(false, Ordering::SeqCst);
        }
    }
}

/// Ends its task when dropped.
struct Listening(AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(mut guard: ListenGuard) {
    let mut streams: BTreeMap<ReplicaId, Listening> = BTreeMap::new();
    // Holding the entry does not leak it: the task ends soon after the last call.
    let Some(entry) = guard.entry.upgrade() else { return };
    loop {
        let members = entry.members();
        streams.retain(|id, _| members.iter().any(|(member, _)| member == id));
        for (id, target) in members {
            streams.entry(id).or_insert_with(|| {
                let follower = follow(Arc::downgrade(&entry), id, target);
                Listening(tokio::task::spawn_local(follower).abort_handle())
            });
        }
        entry.loads.forget_caches(entry.now());
        if entry.loads.may_end(entry.now()) {
            guard.is_done = true;
            return;
        }
        let end = entry.clock.instant(entry.loads.ends_at());
        tokio::select! {
            () = sleep_until(Instant::from_std(end)) => {}
            () = entry.loads.changed.notified() => {}
        }
    }
}

/// Why a stream ended.
enum End {
    /// The replica does not report to us, now or later.
    Denied,
    Broken,
    Unreachable,
}

async fn follow(entry: Weak<DeploymentEntry>, id: ReplicaId, target: Arc<Target>) {
    let mut pause = PAUSE_INITIAL;
    loop {
        let mut heard = false;
        match listen_once(&entry, id, &target, &mut heard).await {
            End::Denied => return,
            End::Broken => {}
            // Its models cannot be used while it is unreachable.
            End::Unreachable => {
                if let Some(entry) = entry.upgrade() {
                    entry.on_models(id, &[]);
                    entry.on_cache(id, true, &[]);
                }
            }
        }
        if heard {
            pause = PAUSE_INITIAL;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Opens one stream and follows it to its end.
async fn listen_once(
    entry: &Weak<DeploymentEntry>,
    id: ReplicaId,
    target: &Arc<Target>,
    heard: &mut bool,
) -> End {
    let Some((asker, asked, wants_caches)) = entry.upgrade().map(|entry| {
        let loads = &entry.loads;
        (loads.asker.clone(), loads.asked.subscribe(), loads.wants_caches.subscribe())
    }) else {
        return End::Denied;
    };
    let (body, sending) = match open(target, asker).await {
        Ok(stream) => stream,
        Err(end) => return end,
    };
    let _costs_end = CostsEnd { entry: entry.clone(), id };
    let mut reports = MessageReader::new(body, REPORT_BYTES_MAX);
    let mut asking = Asking {
        id,
        asked,
        wants_caches,
        sending,
        sent: LoadRequest::default(),
        ask: None,
        batches: 0,
    };
    asking.asked.mark_changed();
    loop {
        tokio::select! {
            report = reports.next::<LoadReport>() => {
                let (Some(report), Some(entry)) = (report, entry.upgrade()) else {
                    return End::Broken;
                };
                *heard = true;
                if asking.on_report(&entry, report).is_err() {
                    return End::Broken;
                }
            }
            changed = asking.wants_caches.changed() => if changed.is_err() { return End::Denied },
            changed = asking.asked.changed() => if changed.is_err() { return End::Denied },
        }
        if asking.update().is_err() {
            return End::Broken;
        }
    }
}

/// After the stream nothing is known of what the calls of other routers cost there.
struct CostsEnd {
    entry: Weak<DeploymentEntry>,
    id: ReplicaId,
}

impl Drop for CostsEnd {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.upgrade() {
            entry.on_costs(self.id, None);
        }
    }
}

/// The router's side of a load stream.
struct Asking {
    id: ReplicaId,
    asked: watch::Receiver<Vec<LeaseRequest>>,
    sending: RequestBody,
    /// The ask that the replica has from this router.
    ask: Option<LeaseRequest>,
    wants_caches: watch::Receiver<bool>,
    /// The last request to the replica.
    sent: LoadRequest,
    /// Batches of its cache's changes that have come.
    batches: u64,
}

/// A batch is missing, so the replica has to report its whole cache again.
struct Gap;

impl Asking {
    fn on_report(&mut self, entry: &DeploymentEntry, report: LoadReport) -> Result<(), Gap> {
        if let Some(cache) = &report.cache {
            let is_next = cache.number == self.batches + 1;
            if !cache.is_whole && !is_next {
                return Err(Gap);
            }
            self.batches = cache.number;
            entry.on_cache(self.id, cache.is_whole, &cache.changes());
        }
        if let Some(models) = report.models {
            entry.on_models(self.id, &models.model_ids);
        }
        if let Some(costs) = report.costs.as_ref().and_then(CostReport::load) {
            entry.on_costs(self.id, Some(&costs));
        }
        for _ in 0..report.leases {
            // The ask has ended with the lease. An unwanted lease is given back by not asking
            // again.
            if entry.on_lease(self.id) {
                self.ask = None;
            } else {
                self.ask = Some(LeaseRequest { replica: self.id, when_idle: false });
            }
        }
        Ok(())
    }

    /// Sends the replica any change of the ask.
    fn update(&mut self) -> Result<(), Closed> {
        let wanted = self.asked.borrow_and_update();
        let ask = wanted.iter().copied().find(|ask| ask.replica == self.id);
        drop(wanted);
        let caches = *self.wants_caches.borrow_and_update();
        if caches != self.sent.caches {
            // The place that it has, if any, stays as it is.
            self.sent.caches = caches;
            self.sending.send_data(frame(&self.sent), false)?;
        }
        if ask == self.ask {
            return Ok(());
        }
        self.ask = ask;
        let when_idle = ask.is_some_and(|ask| ask.when_idle);
        self.sent = LoadRequest { ask: ask.is_some(), when_idle, caches };
        self.sending.send_data(frame(&self.sent), false)
    }
}

/// Opens a load stream, on which both sides may send.
async fn open(target: &Arc<Target>, asker: HeaderValue) -> Result<(AnswerBody, RequestBody), End> {
    let connection = match acquire(target) {
        Acquired::Open(connection) => connection,
        Acquired::Dialling(dialling) => dialling.await.map_err(|_| End::Unreachable)?,
    };
    if !connection.is_trusted() {
        return Err(End::Denied);
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://pyserve.mesh{LOAD_PATH}"))
        .header(CONTENT_TYPE, CONTENT_TYPE_GRPC)
        .header(TE, HeaderValue::from_static("trailers"))
        .header(ASKER, asker)
        .body(())
        .expect("invariant: constants and a number make a request");
    let (head, ()) = request.into_parts();
    let started = connection.start_aside(&head, Sends::Later).map_err(|_| End::Broken)?;
    drop(connection);
    let (response, Some(sending)) = started else { return Err(End::Broken) };
    let response = response.await.map_err(|_| End::Broken)?;
    if let Some(status) = response.headers().get(GRPC_STATUS) {
        // Any other answer than UNIMPLEMENTED may be temporary.
        let is_final = Code::Unimplemented.number().to_string().as_bytes() == status.as_bytes();
        return Err(if is_final { End::Denied } else { End::Broken });
    }
    Ok((response.into_body(), sending))
}
