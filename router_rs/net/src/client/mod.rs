//! HTTP/2 client: connections on demand, their liveness, and the calls that Python makes.
//!
//! Used by the ingress (through `dispatch`) and by channels. Decides how many connections a
//! thread has and when they close; which replica a call goes to is decided in `router_core`.

pub(crate) mod answer;
mod call;
mod channel;
pub(crate) mod connection;
mod connectivity;
pub(crate) mod dial;
mod handshake;
pub(crate) mod liveness;
pub(crate) mod pool;
mod relay;
mod runner;
mod stopwatch;
mod target;
mod user;
pub(crate) mod vitals;

pub use call::{ClientCall, End, NewCall, NewChoice};
pub use channel::{Channel, ChannelConfig};
pub use connectivity::{Connectivity, ReconnectBackoff};
#[cfg(feature = "stopwatch")]
pub use stopwatch::take_laps;
pub use target::TargetError;
