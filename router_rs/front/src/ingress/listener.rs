//! Accepts connections and spreads them over the I/O threads in turn.

use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::sync::{Arc, Weak};

use router_io::phase::Phase;
use router_io::tls::ServerTls;
use router_io::{IoThread, IoThreads, accept_each, tune};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::arrival::serve;
use crate::{Arrival, Front, Pace, PendingConnection, make_room};

#[derive(Clone)]
pub(super) struct Acceptor {
    pub front: Arc<Front>,
    /// Weak: the threads must not outlive their ingress, and this task lives on one of them.
    pub threads: Weak<IoThreads>,
    pub thread: IoThread,
    pub phase: watch::Receiver<Phase>,
    pub tls: Option<Arc<ServerTls>>,
}

/// A connection on its way to the thread where it stays: as a plain descriptor, because a socket
/// belongs to the poller of one thread.
struct Newcomer {
    acceptor: Acceptor,
    stream: StdTcpStream,
    peer: SocketAddr,
    pending: PendingConnection,
    /// The threads whose idle connections may be closed to make room.
    threads: Vec<IoThread>,
}

// === impl Acceptor ===

impl Acceptor {
    /// Accepts until the ingress drains.
    pub(super) async fn run(self, listener: StdTcpListener) {
        let mut phase = self.phase.clone();
        tokio::select! {
            _ = phase.wait_for(|phase| *phase > Phase::Serving) => {}
            () = self.accept_all(listener) => {}
        }
    }

    async fn accept_all(&self, listener: StdTcpListener) {
        let mut pace = Pace::new(&self.front);
        let take = |stream, peer| {
            let pending = PendingConnection::new(&self.front, &stream);
            tune(&stream);
            let pause = pace.after(&pending);
            self.hand_over(stream, peer, pending).map(|()| pause)
        };
        accept_each(listener, take, || self.make_room()).await;
    }

    /// `None`: the threads are gone.
    fn hand_over(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        pending: PendingConnection,
    ) -> Option<()> {
        let threads = self.threads.upgrade()?;
        let thread = threads.next();
        if pending.is_free() && thread.is_same(&self.thread) {
            self.serve(stream, peer, pending);
            return Some(());
        }
        let others =
            threads.all().iter().filter(|other| !pending.is_free() && !other.is_same(thread));
        let (acceptor, threads) = (self.clone(), others.cloned().collect());
        // A connection that cannot be moved is closed, which its client notices.
        if let Ok(stream) = stream.into_std() {
            Newcomer { acceptor, stream, peer, pending, threads }.go_to(thread);
        }
        Some(())
    }

    /// Runs on the thread where the connection stays.
    fn serve(&self, stream: TcpStream, peer: SocketAddr, pending: PendingConnection) {
        let (front, phase, tls) = (Arc::clone(&self.front), self.phase.clone(), self.tls.clone());
        if let Ok(count) = pending.enter() {
            let arrival = Arrival { stream, peer, tls, count };
            tokio::task::spawn_local(serve(front, arrival, phase));
        }
    }

    /// The process has no descriptor left.
    fn make_room(&self) {
        let threads = self.threads.upgrade();
        for thread in threads.iter().flat_map(|threads| threads.all()) {
            let front = Arc::clone(&self.front);
            thread.run(move || make_room(&front));
        }
    }
}

// === impl Newcomer ===

impl Newcomer {
    fn go_to(self, thread: &IoThread) {
        thread.run(move || self.arrive());
    }

    /// Keeps the connection, hands it to a thread where an idle one can be closed for it, or
    /// refuses it: its client can go elsewhere.
    fn arrive(mut self) {
        match self.pending.enter() {
            Ok(count) => {
                if let Ok(stream) = TcpStream::from_std(self.stream) {
                    let Acceptor { front, phase, tls, .. } = self.acceptor;
                    let arrival = Arrival { stream, peer: self.peer, tls, count };
                    tokio::task::spawn_local(serve(front, arrival, phase));
                }
            }
            Err(pending) => match self.threads.pop() {
                Some(thread) => Self { pending, ..self }.go_to(&thread),
                None => pending.refuse(),
            },
        }
    }
}
