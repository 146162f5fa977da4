//! Limits for the clients of a front.

use std::time::Duration;

use router_protocol::grpc::SizeLimit;
use router_protocol::grpc::size_limit::INGRESS_TRANSCODES;

/// Bounds for one front; all hold at once. The defaults are those of `IngressLimits` in
/// `pyserve/_router.pyi`.
#[derive(Clone, Debug)]
pub struct FrontLimits {
    /// Open connections; for one more another that rests has to go, else it is closed at once.
    pub connections_max: u64,
    /// What the process may have open of all kinds; part of it is kept from clients.
    pub descriptors_max: u64,
    /// What all connections that rest may keep in memory, estimated by what they speak; beyond it
    /// those that have rested longest are closed. 0: no limit.
    pub idle_bytes_max: u64,
    /// Requests that one HTTP/2 connection may have open; one more is refused as not started.
    pub streams_max: u32,
    /// Of a request's head: as it is sent in HTTP/1.1, as RFC 9113 (6.5.2) counts in HTTP/2.
    pub header_bytes_max: u32,
    /// Of the body of one plain HTTP request; `None`: no limit.
    pub body_bytes_max: Option<u64>,
    /// Of one message that is transcoded.
    pub message_size: SizeLimit,
    /// JSON with fields that its message does not have is refused, unless the client says otherwise.
    pub refuses_unknown_fields: bool,
    /// For the TLS handshake and the first bytes, and for the head of each HTTP/1.1 request.
    pub header_timeout: Duration,
    /// A connection without a byte and a request.
    pub idle_timeout: Duration,
    /// A plain HTTP client that neither sends what is missing nor takes what is there, and a gRPC
    /// client that takes nothing.
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
