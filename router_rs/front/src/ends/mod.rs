//! A client's end of a call (`router_call::ClientEnd`), for each protocol and its transport.

pub(crate) mod chunk_coalescer;
pub(crate) mod grpc_end;
pub(crate) mod http1_end;
pub(crate) mod http1_socket;
pub(crate) mod http2_end;
pub(crate) mod plain;
