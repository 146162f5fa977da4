//! Messages between two processes of one mesh, apart from the calls: names and the proof.
//!
//! The client half of the handshake is in `router_upstream`, the server half in `router_net::server`; both use this.

pub mod load;
pub mod messages;
pub mod proof;
pub mod view;
