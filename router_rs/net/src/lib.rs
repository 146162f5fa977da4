//! Sockets, HTTP/2 and gRPC framing; the replica's server, the client, the ingress.
//!
//! This crate moves bytes and waits. It decides nothing about replicas (that is `router_core`)
//! and knows no Python (that is `router_py`). Every future here runs on one I/O thread's
//! `LocalRuntime`, so state of a connection or a call needs no lock.

#![forbid(unsafe_code)]

mod brief_mutex;
pub mod client;
mod content_length;
pub mod dispatch;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod grpc;
pub mod ingress;
pub mod io;
pub mod link;
pub mod mesh;
pub mod names;
pub mod otlp;
mod phase;
mod random;
pub mod server;
pub mod trace_context;
pub mod transcode;
pub mod upstream;
mod windows;

pub use brief_mutex::BriefMutex;
use content_length::content_length;
