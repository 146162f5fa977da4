//! Listens to what replicas say about their models, while calls name models (design decision 7).
//!
//! One task per deployment, begun by a call that names a model, on that call's thread. It opens a
//! load stream to each replica, and ends with all of them when no call has named a model for a
//! while. A stream that breaks is opened again; it begins with the whole list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use h2::RecvStream;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request};
use prost::Message;
use router_core::{Nanos, ReplicaId};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::entry::DeploymentEntry;
use crate::client::dial::Target;
use crate::client::pool::{Acquired, acquire};
use crate::grpc::{CONTENT_TYPE_GRPC, Code, Decoder, GRPC_STATUS};
use crate::mesh::load::LoadReport;
use crate::mesh::names::LOAD_PATH;

/// The streams close when no call has named a model for so long (design 7).
const QUIET: Nanos = Nanos::from_secs(10);

/// Pauses before a broken stream is opened again (design 6).
const PAUSE_INITIAL: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A list of models beyond this is no list of models.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// What a deployment's entry keeps of this.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// When a call last named a model.
    last_call: AtomicU64,
    is_listening: AtomicBool,
    /// The members have changed.
    pub(super) changed: Notify,
}

/// A call names a model; must be called on an I/O thread.
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
        let end = read_reports(&target, |report| {
            heard = true;
            if let (Some(entry), Some(models)) = (entry.upgrade(), report.models) {
                entry.on_models(id, &models.model_ids);
            }
        })
        .await;
        match end {
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

async fn read_reports(target: &Arc<Target>, mut on_report: impl FnMut(LoadReport)) -> End {
    let connection = match acquire(target) {
        Acquired::Open(connection) => connection,
        Acquired::Dialling(dialling) => match dialling.await {
            Ok(connection) => connection,
            Err(_) => return End::Unreachable,
        },
    };
    if !connection.is_trusted() {
        return End::Denied;
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://pyserve.mesh{LOAD_PATH}"))
        .header(CONTENT_TYPE, CONTENT_TYPE_GRPC)
        .header(TE, HeaderValue::from_static("trailers"))
        .body(())
        .expect("invariant: constants make a request");
    let Ok((response, _no_body)) = connection.start_aside(request) else { return End::Broken };
    drop(connection);
    let Ok(response) = response.await else { return End::Broken };
    if let Some(status) = response.headers().get(GRPC_STATUS) {
        // Any other answer than "I do not have that" may be of the moment.
        let is_final = Code::Unimplemented.number().to_string().as_bytes() == status.as_bytes();
        return if is_final { End::Denied } else { End::Broken };
    }
    read_body(response.into_body(), &mut on_report).await;
    End::Broken
}

/// Ends with the stream, or with what is no report.
async fn read_body(mut body: RecvStream, on_report: &mut impl FnMut(LoadReport)) {
    let mut decoder = Decoder::new(REPORT_BYTES_MAX);
    while let Some(Ok(mut chunk)) = body.data().await {
        // Fails only for a stream that is over, whose window nobody needs.
        let _window_of_an_ended_stream = body.flow_control().release_capacity(chunk.len());
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(message)) => match LoadReport::decode(message.into_bytes()) {
                    Ok(report) => on_report(report),
                    Err(_) => return,
                },
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_ends_ten_seconds_after_the_last_call_and_begins_again_with_the_next() {
        let loads = Loads::default();
        loads.is_listening.store(true, Ordering::SeqCst);
        loads.last_call.store(Nanos::from_secs(3).0, Ordering::SeqCst);
        assert!(!loads.may_end(Nanos::from_millis(12_999)));
        assert!(loads.is_listening.load(Ordering::SeqCst));
        assert!(loads.may_end(Nanos::from_secs(13)));
        assert!(!loads.is_listening.load(Ordering::SeqCst));
    }
}
