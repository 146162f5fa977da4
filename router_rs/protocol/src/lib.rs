//! What processes say to each other: gRPC as the specification has it, and what those of one mesh add,
//! in headers and in messages of their own. How these travel between them is `router_wire`'s.
//!
//! It reads and writes bytes; it has no socket, no clock and no thread.

#![forbid(unsafe_code)]

mod content_length;
pub mod grpc;
mod hop_by_hop;
pub mod mesh;
pub mod names;
pub mod trace_context;
pub mod windows;

pub use content_length::content_length;
pub use hop_by_hop::named_by_connection;
