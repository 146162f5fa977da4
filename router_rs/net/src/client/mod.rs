//! HTTP/2 client: connections on demand, their liveness, and the calls that Python makes.
//!
//! Used by the ingress (through `dispatch`) and by channels. Decides how many connections a
//! thread has and when they close; which replica a call goes to is decided in `router_core`.

pub(crate) mod connection;
pub(crate) mod dial;
mod handshake;
pub(crate) mod liveness;
pub(crate) mod pool;

pub use dial::ClientTls;
