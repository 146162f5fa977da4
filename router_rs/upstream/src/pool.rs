//! The connections of one I/O thread, by target. Nothing here crosses threads.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use smallvec::SmallVec;
use tokio::time::timeout;

use super::connection::Connection;
use super::dial::{dial, on_silence};
use super::target::{DialError, Target, TargetKey};

/// The most connections of one thread to one target (design 7).
const CONNECTIONS_MAX: usize = 4;

/// The number of streams on the least loaded connection at which another one is opened. One
/// connection keeps writes together, and beyond this number one socket's buffers begin to queue.
const STREAMS_PER_CONNECTION: u32 = 128;

/// A dial that several calls may wait for.
pub type Dialling = Shared<LocalBoxFuture<'static, Result<Rc<Connection>, DialError>>>;

/// The result for a call that wants a connection.
#[derive(Debug)]
pub enum Acquired {
    Open(Rc<Connection>),
    Dialling(Dialling),
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::default());
}

/// A connection to `target` on this thread, opened if there is none.
///
/// Must be called within the thread's `LocalRuntime`: a dial is a separate task, so that it
/// continues when the call that began it is cancelled.
pub fn acquire(target: &Arc<Target>) -> Acquired {
    POOL.with_borrow_mut(|pool| pool.peer(target).acquire(target))
}

/// Forgets the connections to `target` on this thread; their calls continue.
pub fn forget(target: &Target) {
    let peer = POOL.with_borrow_mut(|pool| pool.peers.remove(&target.key()));
    drop(peer);
}

#[derive(Default)]
struct Pool {
    peers: HashMap<TargetKey, Peer>,
}

impl Pool {
    fn peer(&mut self, target: &Arc<Target>) -> &mut Peer {
        if !self.peers.contains_key(&target.key()) {
            // Targets that have been dropped: their last connections close by themselves.
            self.peers.retain(|_, peer| peer.target.strong_count() > 0);
        }
        self.peers.entry(target.key()).or_insert_with(|| Peer::new(target))
    }
}

struct Peer {
    target: Weak<Target>,
    connections: SmallVec<[Rc<Connection>; 1]>,
    dialling: Option<Dialling>,
}

impl Peer {
    fn new(target: &Arc<Target>) -> Self {
        Self { target: Arc::downgrade(target), connections: SmallVec::new(), dialling: None }
    }

    fn acquire(&mut self, target: &Arc<Target>) -> Acquired {
        self.collect_dialled();
        self.connections.retain(|connection| connection.is_open());
        let least = self.connections.iter().min_by_key(|connection| connection.in_flight());
        let Some(least) = least.cloned() else {
            return Acquired::Dialling(self.dial(target));
        };
        let is_full = least.in_flight() >= STREAMS_PER_CONNECTION
            || least.in_flight() as usize >= least.streams_max();
        if is_full && self.connections.len() < CONNECTIONS_MAX {
            // It is a separate task: the next call finds its result.
            let _not_awaited = self.dial(target);
        }
        Acquired::Open(least)
    }

    fn dial(&mut self, target: &Arc<Target>) -> Dialling {
        if let Some(dialling) = &self.dialling {
            return dialling.clone();
        }
        let target = Arc::clone(target);
        let dialling = async move { dial_and_watch(&target).await }.boxed_local().shared();
        tokio::task::spawn_local(dialling.clone());
        self.dialling = Some(dialling.clone());
        dialling
    }

    /// Takes over the connection of a dial that has ended. A failure is forgotten, since all who
    /// waited for it have it.
    fn collect_dialled(&mut self) {
        let Some(dialling) = &self.dialling else { return };
        if let Some(result) = dialling.peek() {
            self.connections.extend(result.as_ref().ok().cloned());
            self.dialling = None;
        }
    }
}

/// How long a replica may take to answer a handshake before it gets no further calls. Whether it
/// can be reached is decided later.
const SILENT_AFTER: Duration = Duration::from_millis(1500);

async fn dial_and_watch(target: &Arc<Target>) -> Result<Rc<Connection>, DialError> {
    let mut dialled = pin!(dial(target));
    if let Ok(dialled) = timeout(SILENT_AFTER, &mut dialled).await {
        return dialled;
    }
    on_silence(target);
    dialled.await
}
