//! Connections to replicas and to other servers, over the wire or HTTP/2: made on demand, shared by the
//! calls of a thread, watched, and closed. Which replica a call goes to is decided in `router_core`.

#![forbid(unsafe_code)]

pub mod answer;
pub mod call_error;
pub mod connection;
mod dial;
mod drive;
pub mod frame_stream;
mod handshake;
mod http2;
pub mod liveness;
pub mod pool;
pub mod request_body;
mod stopwatch;
pub mod target;
pub mod vitals;
mod watch;
mod wire;

#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
