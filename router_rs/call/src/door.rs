//! How a call came.

/// The protocol of a call's client, or who else makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Grpc,
    Connect,
    GrpcWeb,
    /// JSON to a method's path, without a word of Connect.
    Json,
    /// JSON to a path of a service's `google.api.http` rules.
    Rest,
    Http,
    WebSocket,
    /// A channel of this process.
    Handle,
    /// The router itself, with a copy of a call.
    Mirror,
}

impl Door {
    /// Those that clients come by.
    pub const OF_CLIENTS: [Self; 7] = [
        Self::Grpc,
        Self::Connect,
        Self::GrpcWeb,
        Self::Json,
        Self::Rest,
        Self::Http,
        Self::WebSocket,
    ];

    /// One word, for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Connect => "connect",
            Self::GrpcWeb => "grpc-web",
            Self::Json => "json",
            Self::Rest => "rest",
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Handle => "handle",
            Self::Mirror => "mirror",
        }
    }

    /// Answers have an HTTP status and no code of gRPC.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::WebSocket)
    }
}
