//! Channels: the calls that Python makes, through a routing table or to an address.

mod call;
mod channel;
mod connectivity;
mod runner;
mod shared;
mod target;
mod user;

pub use call::{ClientCall, End, NewCall, NewChoice};
pub use channel::Channel;
pub use connectivity::{Connectivity, ReconnectBackoff};
pub use shared::ChannelConfig;
pub use target::TargetError;
