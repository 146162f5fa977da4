//! The formats of messages between processes: gRPC as specified, and the additions of a mesh, in
//! headers and in messages of its own. `router_wire` defines how they are transported.
//!
//! It reads and writes bytes; it has no socket, no clock and no thread.

#![forbid(unsafe_code)]

pub mod cache_keys;
mod content_length;
pub mod grpc;
mod hop_by_hop;
pub mod mesh;
pub mod names;
pub mod trace_context;
pub mod windows;

pub use content_length::content_length;
pub use hop_by_hop::named_by_connection;
