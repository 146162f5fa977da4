//! Sockets, TLS and the threads that serve them, which also deliver commands to calls (`link`). Knows
//! neither gRPC nor Python.

mod alarm;
mod counted;
mod fork_lock;
pub mod identity;
mod listen;
mod poller_mark;
mod stream;
mod threads;
pub mod tls;
mod trim;
mod unix;

pub(crate) use alarm::Alarm;
pub use counted::CountedTcp;
pub(crate) use counted::ReceivedBytes;
pub use fork_lock::{File, lock_for_fork, opened_sockets, unlock_after_fork};
pub(crate) use fork_lock::{between_forks, note_opened};
pub use listen::{Bound, bind_tcp, bind_unix, tune};
pub(crate) use listen::{accept_each, pause_accepting};
pub use poller_mark::poller_marks;
pub use stream::{Peer, PeerCertificates, Stream, TlsSession};
pub(crate) use stream::{Remote, has_ended};
#[cfg(test)]
pub(crate) use threads::BLOCKING_THREADS_MAX;
pub(crate) use threads::poll_others_first;
pub use threads::{IoThread, IoThreads, TurnEnd, Work, at_turn_end};
pub(crate) use trim::on_buffers_freed;
pub use trim::set_trim;
pub use unix::QuietUnixStream;
