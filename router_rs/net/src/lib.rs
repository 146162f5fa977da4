//! The parts that Python drives: the replica's server, channels, and the links through which both
//! report their calls.
//!
//! Together with the crates below it, whose names it re-exports, it moves bytes and waits. It makes
//! no decision about replicas (that is `router_core`) and does not depend on Python (that is
//! `router_py`). Every future here runs on the `LocalRuntime` of one I/O thread, so the state of a
//! connection needs no lock. The state of a call needs one only where Python's thread accesses it
//! too: in its `link`.

#![forbid(unsafe_code)]

pub mod client;
mod file_part;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod link;
pub mod otlp;
pub mod server;

pub use file_part::FilePart;
pub use router_dispatch as dispatch;
pub use router_front::ingress;
pub use router_io::{self as io, BriefMutex};
pub use router_protocol::{cache_keys, grpc, mesh, names, trace_context};
pub use router_transcode as transcode;
pub use router_upstream as upstream;
