//! Connections to replicas and to other servers, over the wire or HTTP/2: created on demand, shared
//! by the calls of a thread, monitored, and closed. `router_core` decides which replica a call goes
//! to.

#![forbid(unsafe_code)]

pub mod answer;
pub mod call_error;
pub mod connection;
mod dial;
mod drive;
pub mod frame_stream;
mod handshake;
mod http2;
pub mod keepalive;
pub mod pool;
pub mod reachability;
pub mod request_body;
mod stopwatch;
pub mod target;
mod watch;
mod wire;

#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
