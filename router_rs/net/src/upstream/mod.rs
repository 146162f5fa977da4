//! Connections to replicas and to other servers over HTTP/2: made on demand, shared by the calls of a
//! thread, watched, and closed. Which replica a call goes to is decided in `router_core`.

pub(crate) mod answer;
pub(crate) mod call_error;
pub(crate) mod connection;
pub(crate) mod dial;
mod handshake;
pub(crate) mod liveness;
pub(crate) mod pool;
mod relay;
mod stopwatch;
pub(crate) mod target;
pub(crate) mod vitals;

#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
