//! What Python drives: the replica's server, channels, and the links by which both tell it of calls.
//!
//! With the crates below it, whose names it passes on, it moves bytes and waits. It decides nothing
//! about replicas (that is `router_core`) and knows no Python (that is `router_py`). Every future here
//! runs on one I/O thread's `LocalRuntime`, so the state of a connection needs no lock, and that of a
//! call only where Python's thread looks at it too: in its `link`.

#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod link;
pub mod otlp;
pub mod server;

pub use router_dispatch as dispatch;
pub use router_front::ingress;
pub use router_io::{self as io, BriefMutex};
pub use router_protocol::{grpc, mesh, names, trace_context};
pub use router_transcode as transcode;
pub use router_upstream as upstream;
