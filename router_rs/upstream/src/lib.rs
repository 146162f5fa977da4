//! Connections to replicas and to other servers over HTTP/2: made on demand, shared by the calls of a
//! thread, watched, and closed. Which replica a call goes to is decided in `router_core`.
//!
//! `call` is what all that carries calls has in common: doors and channels stand before it,
//! transcoding on it, and these connections behind it.

#![forbid(unsafe_code)]

pub mod answer;
pub mod call;
pub mod call_error;
pub mod connection;
pub mod dial;
mod handshake;
pub mod liveness;
pub mod pool;
mod relay;
mod stopwatch;
pub mod target;
pub mod vitals;

#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
