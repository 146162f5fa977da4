//! What is private and reads bytes from outside, for the fuzz targets of `router_rs/fuzz`.
//!
//! Every function panics when an invariant does not hold; what it returns is of no use.

pub use crate::dispatch::fuzzing::routes;
pub use crate::front::fuzzing::proxy_header;
pub use crate::mesh::relay::fuzzing::frames as relay;
pub use crate::server::fuzzing::http_head;
pub use crate::trace_context::fuzzing::trace_context;
pub use crate::transcode::fuzzing as transcode;
