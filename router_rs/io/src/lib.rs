//! Sockets, TLS and the threads that serve them, which also deliver commands to calls (`link`). Knows
//! neither gRPC nor Python.

#![forbid(unsafe_code)]

mod alarm;
mod brief_mutex;
mod counted;
mod fork_lock;
pub mod identity;
mod listen;
pub mod phase;
mod poller_mark;
pub mod random;
mod stream;
mod threads;
pub mod tls;
pub mod token;
mod trim;
mod unix;

pub use alarm::Alarm;
pub use brief_mutex::BriefMutex;
pub use counted::CountedTcp;
pub use counted::ReceivedBytes;
pub use fork_lock::{File, lock_for_fork, opened_sockets, unlock_after_fork};
pub use fork_lock::{between_forks, note_opened};
pub use listen::{Bound, bind_tcp, bind_unix, tune};
pub use listen::{accept_each, pause_accepting};
pub use poller_mark::poller_marks;
pub use stream::{Peer, PeerCertificates, Stream, TlsSession};
pub use stream::{Remote, has_ended};
pub use threads::BLOCKING_THREADS_MAX;
pub use threads::poll_others_first;
pub use threads::{IoThread, IoThreads, Recipient, TurnEnd, Work, at_turn_end};
pub use trim::on_buffers_freed;
pub use trim::set_trim;
pub use unix::QuietUnixStream;
