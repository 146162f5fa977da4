//! Listens to what replicas say about their models, while calls name models, and asks for places,
//! while calls are parked (design decision 7).
//!
//! One task per deployment, begun by such a call, on that call's thread. It opens a load stream to
//! each replica, and ends with all of them when there was no such call for a while. A stream that
//! breaks is opened again; it begins with the whole list, and the ask is repeated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request};
use router_core::{Nanos, ReplicaId};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::entry::DeploymentEntry;
use crate::grpc::framing::frame;
use crate::grpc::{CONTENT_TYPE_GRPC, Code, GRPC_STATUS};
use crate::mesh::load::{LoadReport, LoadRequest};
use crate::mesh::messages::MessageReader;
use crate::names::{ASKER, LOAD_PATH};
use crate::upstream::pool::{Acquired, acquire};
use crate::upstream::target::Target;

/// The streams close when no call has named a model or asked for so long (design 7).
const QUIET: Nanos = Nanos::from_secs(10);

/// Pauses before a broken stream is opened again (design 6).
const PAUSE_INITIAL: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A list of models beyond this is no list of models.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// What a deployment's entry keeps of this.
#[derive(Debug)]
pub(super) struct Loads {
    /// When a call last named a model or asked.
    last_call: AtomicU64,
    is_listening: AtomicBool,
    /// The members have changed.
    pub(super) changed: Notify,
    /// Who is asked for a place.
    asked: watch::Sender<Vec<ReplicaId>>,
    /// The router's name at all gates.
    asker: HeaderValue,
}

/// A call names a model or waits for a place that it asks for; must be called on an I/O thread.
pub(super) fn on_call(entry: &Arc<DeploymentEntry>, now: Nanos) {
    let loads = &entry.loads;
    loads.last_call.store(now.0, Ordering::SeqCst);
    if !loads.is_listening.load(Ordering::SeqCst)
        && !loads.is_listening.swap(true, Ordering::SeqCst)
    {
        let guard = ListenGuard { entry: Arc::downgrade(entry), is_done: false };
        tokio::task::spawn_local(listen(guard));
    }
}

impl Loads {
    /// `asker` is a number that no other router has.
    pub(super) fn new(asker: u64) -> Self {
        Self {
            last_call: AtomicU64::new(0),
            is_listening: AtomicBool::new(false),
            changed: Notify::new(),
            asked: watch::Sender::new(Vec::new()),
            asker: HeaderValue::from(asker),
        }
    }

    /// The router's name at all gates.
    pub(super) fn asker(&self) -> &HeaderValue {
        &self.asker
    }

    /// Asks these replicas and no others; tells whether any is asked.
    pub(super) fn ask(&self, wanted: &[ReplicaId]) -> bool {
        self.asked.send_if_modified(|asked| {
            let is_new = asked != wanted;
            if is_new {
                asked.clear();
                asked.extend_from_slice(wanted);
            }
            is_new
        });
        !wanted.is_empty()
    }

    /// Whether the task may end; calls that come from now on begin another.
    fn may_end(&self, now: Nanos) -> bool {
        if now < self.ends_at() {
            return false;
        }
        self.is_listening.store(false, Ordering::SeqCst);
        // A call that found us listening has noted itself before: look again.
        let is_called = now < self.ends_at();
        !is_called || self.is_listening.swap(true, Ordering::SeqCst)
    }

    fn ends_at(&self) -> Nanos {
        Nanos(self.last_call.load(Ordering::SeqCst)).saturating_add(QUIET)
    }
}

/// Lets another call begin anew when the task's thread ends.
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
    // Holding the entry is no leak: the task ends soon after the last call.
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
        if entry.loads.may_end(entry.now()) {
            guard.is_done = true;
            return;
        }
        let end = entry.instant(entry.loads.ends_at());
        tokio::select! {
            () = sleep_until(Instant::from_std(end)) => {}
            () = entry.loads.changed.notified() => {}
        }
    }
}

/// Why a stream ended.
enum End {
    /// The replica does not tell us, now or later.
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
            // Whatever it had, nobody can use it there.
            End::Unreachable => {
                if let Some(entry) = entry.upgrade() {
                    entry.on_models(id, &[]);
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
    let Some((asker, asked)) = entry.upgrade().map(|entry| {
        let loads = &entry.loads;
        (loads.asker.clone(), loads.asked.subscribe())
    }) else {
        return End::Denied;
    };
    let (body, sending) = match open(target, asker).await {
        Ok(stream) => stream,
        Err(end) => return end,
    };
    let mut reports = MessageReader::new(body, REPORT_BYTES_MAX);
    let mut asking = Asking { id, asked, sending, has_asked: false };
    asking.asked.mark_changed();
    loop {
        tokio::select! {
            report = reports.next::<LoadReport>() => {
                let (Some(report), Some(entry)) = (report, entry.upgrade()) else {
                    return End::Broken;
                };
                *heard = true;
                asking.on_report(&entry, report);
            }
            changed = asking.asked.changed() => if changed.is_err() { return End::Denied },
        }
        if asking.update().is_err() {
            return End::Broken;
        }
    }
}

/// The router's side of a load stream.
struct Asking {
    id: ReplicaId,
    asked: watch::Receiver<Vec<ReplicaId>>,
    sending: SendStream<Bytes>,
    /// The replica has an ask of ours.
    has_asked: bool,
}

impl Asking {
    fn on_report(&mut self, entry: &DeploymentEntry, report: LoadReport) {
        if let Some(models) = report.models {
            entry.on_models(self.id, &models.model_ids);
        }
        for _ in 0..report.leases {
            // The ask has ended with the lease. What nobody wants is given back by asking no more.
            self.has_asked = !entry.on_lease(self.id);
        }
    }

    /// Tells the replica what has changed.
    fn update(&mut self) -> Result<(), h2::Error> {
        let is_wanted = self.asked.borrow_and_update().contains(&self.id);
        if is_wanted == self.has_asked {
            return Ok(());
        }
        self.has_asked = is_wanted;
        self.sending.send_data(frame(&LoadRequest { ask: is_wanted }), false)
    }
}

/// Opens a load stream, on which both sides may speak.
async fn open(
    target: &Arc<Target>,
    asker: HeaderValue,
) -> Result<(RecvStream, SendStream<Bytes>), End> {
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
    let (response, sending) = connection.start_aside(request).map_err(|_| End::Broken)?;
    drop(connection);
    let response = response.await.map_err(|_| End::Broken)?;
    if let Some(status) = response.headers().get(GRPC_STATUS) {
        // Any other answer than "I do not have that" may be of the moment.
        let is_final = Code::Unimplemented.number().to_string().as_bytes() == status.as_bytes();
        return Err(if is_final { End::Denied } else { End::Broken });
    }
    Ok((response.into_body(), sending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_ends_ten_seconds_after_the_last_call_and_begins_again_with_the_next() {
        let loads = Loads::new(1);
        loads.is_listening.store(true, Ordering::SeqCst);
        loads.last_call.store(Nanos::from_secs(3).0, Ordering::SeqCst);
        assert!(!loads.may_end(Nanos::from_millis(12_999)));
        assert!(loads.is_listening.load(Ordering::SeqCst));
        assert!(loads.may_end(Nanos::from_secs(13)));
        assert!(!loads.is_listening.load(Ordering::SeqCst));
    }
}
