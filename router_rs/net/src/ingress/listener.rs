//! Accepts connections and spreads them over the I/O threads in turn.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Weak};

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::front::{Arrival, ConnectionCount, Front, serve};
use crate::io::tls::ServerTls;
use crate::io::{IoThread, IoThreads, accept_each, tune};
use crate::phase::Phase;

pub(super) struct Acceptor {
    pub front: Arc<Front>,
    /// Weak: the threads outlive no ingress, and this task lives on one of them.
    pub threads: Weak<IoThreads>,
    pub thread: IoThread,
    pub phase: watch::Receiver<Phase>,
    pub tls: Option<Arc<ServerTls>>,
}

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
        accept_each(listener, |stream, peer| {
            // One too many is closed at once: its client can go elsewhere.
            let Some(count) = ConnectionCount::take(&self.front) else { return Some(()) };
            tune(&stream);
            self.hand_over(stream, peer, count)
        })
        .await;
    }

    /// `None`: the threads are gone.
    fn hand_over(&self, stream: TcpStream, peer: SocketAddr, count: ConnectionCount) -> Option<()> {
        let threads = self.threads.upgrade()?;
        let thread = threads.next();
        let (front, phase) = (Arc::clone(&self.front), self.phase.clone());
        let tls = self.tls.clone();
        if thread.is_same(&self.thread) {
            let arrival = Arrival { stream, peer, tls, count };
            tokio::task::spawn_local(serve(front, arrival, phase));
            return Some(());
        }
        // A socket belongs to the poller of one thread; it moves as a plain descriptor. One that
        // cannot move is closed, which its client sees.
        if let Ok(stream) = stream.into_std() {
            thread.run(move || {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    let arrival = Arrival { stream, peer, tls, count };
                    tokio::task::spawn_local(serve(front, arrival, phase));
                }
            });
        }
        Some(())
    }
}
