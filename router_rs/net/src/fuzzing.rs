//! Gives the fuzz targets of `router_rs/fuzz` access to private parsers of bytes from outside.
//!
//! Every function panics when an invariant does not hold; the return values have no meaning.

pub use crate::server::fuzzing::http_head;
pub use router_dispatch::fuzzing::routes;
pub use router_front::fuzzing::proxy_header;
pub use router_protocol::trace_context::fuzzing::trace_context;
pub use router_transcode::fuzzing as transcode;
pub use router_wire::fuzzing::frames as wire;
