//! Sockets, TLS, the threads that serve them, and what those share: timers, phases, a brief lock,
//! random numbers, tokens. Knows neither gRPC nor Python.

#![forbid(unsafe_code)]

mod alarm;
mod brief_mutex;
mod chunked_stream;
mod counted_tcp;
mod fork_lock;
pub mod identity;
mod listen;
pub mod phase;
mod poller_mark;
pub mod random;
mod readers;
mod replayed;
mod stream;
mod threads;
pub mod tls;
pub mod token;
mod trim;
mod unix;

pub use alarm::Alarm;
pub use brief_mutex::BriefMutex;
pub use chunked_stream::ChunkedStream;
pub use counted_tcp::{CountedTcp, ReceivedBytes};
pub use fork_lock::{
    File, between_forks, lock_for_fork, note_opened, opened_sockets, unlock_after_fork,
};
pub use listen::{Bound, accept_each, bind_tcp, bind_unix, listen_at, pause_accepting, tune};
pub use poller_mark::poller_marks;
pub use readers::{Readers, RegularFile};
pub use replayed::Replayed;
pub use stream::{MayBeUnix, Peer, PeerCertificates, Remote, Stream, TlsSession, has_ended};
pub use threads::{
    BLOCKING_THREADS_MAX, IoThread, IoThreads, Recipient, TurnEnd, Work, at_turn_end,
    poll_others_first,
};
pub use trim::{on_buffers_freed, set_trim};
pub use unix::QuietUnixStream;
