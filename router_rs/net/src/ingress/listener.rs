//! Accepts connections and spreads them over the I/O threads in turn.

use std::net::TcpListener as StdTcpListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection;
use super::state::IngressState;
use crate::io::tls::ServerTls;
use crate::io::{IoThread, IoThreads, tune};
use crate::server::Phase;

/// Out of descriptors: accepting again at once would spin. Arbitrary.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Acceptor {
    pub state: Arc<IngressState>,
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
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tune(&stream);
                    if self.hand_over(stream).is_none() {
                        return;
                    }
                }
                // A connection that died before it was accepted, or no descriptor is left.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// `None`: the threads are gone.
    fn hand_over(&self, stream: TcpStream) -> Option<()> {
        let threads = self.threads.upgrade()?;
        let thread = threads.next();
        let (state, phase) = (Arc::clone(&self.state), self.phase.clone());
        let tls = self.tls.clone();
        if thread.is_same(&self.thread) {
            tokio::task::spawn_local(connection::serve(state, stream, tls, phase));
            return Some(());
        }
        // A socket belongs to the poller of one thread; it moves as a plain descriptor. One that
        // cannot move is closed, which its client sees.
        if let Ok(stream) = stream.into_std() {
            thread.run(move || {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    tokio::task::spawn_local(connection::serve(state, stream, tls, phase));
                }
            });
        }
        Some(())
    }
}
