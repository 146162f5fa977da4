//! Limits for the clients of a front.

use std::time::Duration;

use router_protocol::grpc::SizeLimit;
use router_protocol::grpc::size_limit::INGRESS_TRANSCODES;

/// Bounds for one front; all hold at once. The defaults are those of `IngressLimits` in
/// `pyserve/_router.pyi`.
#[derive(Clone, Debug)]
pub struct FrontLimits {
    /// Open connections. For one more, an idle one is closed, else the new one at once.
    pub connections_max: u64,
    /// The process's limit of descriptors of all kinds; part of it is kept from clients.
    pub descriptors_max: u64,
    /// The memory of all idle connections, estimated by their protocol. Beyond it, those that
    /// have been idle longest are closed. 0: no limit.
    pub idle_bytes_max: u64,
    /// Requests that one HTTP/2 connection may have open; another one is refused as not processed.
    pub streams_max: u32,
    /// The size of a request's head: as sent in HTTP/1.1, as counted by RFC 9113 (6.5.2) in HTTP/2.
    pub header_bytes_max: u32,
    /// The size of a plain HTTP request's body; `None`: no limit.
    pub body_bytes_max: Option<u64>,
    /// The size of one transcoded message.
    pub message_size: SizeLimit,
    /// Refuse JSON with unknown fields, unless the client asks otherwise.
    pub refuses_unknown_fields: bool,
    /// For the TLS handshake and the first bytes, and for the head of each HTTP/1.1 request.
    pub header_timeout: Duration,
    /// For a connection without traffic and requests.
    pub idle_timeout: Duration,
    /// For a plain HTTP client that neither sends its request's rest nor reads its answer, and for
    /// a gRPC client that does not read.
    pub body_timeout: Duration,
    /// HTTP/1.1 between two requests.
    pub keep_alive_timeout: Duration,
    /// Origins whose pages may use gRPC-Web and Connect; `*`: all.
    pub cors_origins: Vec<String>,
}

impl Default for FrontLimits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            descriptors_max: u64::MAX,
            idle_bytes_max: 48 << 20,
            streams_max: 1024,
            header_bytes_max: 16 * 1024,
            body_bytes_max: None,
            message_size: SizeLimit { bytes_max: 4 << 20, option: INGRESS_TRANSCODES },
            refuses_unknown_fields: false,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(3600),
            body_timeout: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(90),
            cors_origins: vec!["*".to_owned()],
        }
    }
}
