//! Connections to replicas and to other servers over HTTP/2: made on demand, shared by the calls of a
//! thread, watched, and closed. Which replica a call goes to is decided in `router_core`.

#![forbid(unsafe_code)]

pub mod answer;
pub mod call_error;
pub mod connection;
mod dial;
mod handshake;
pub mod liveness;
pub mod pool;
mod relay;
mod stopwatch;
pub mod target;
pub mod vitals;

#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
