//! The origin of a call.

/// The protocol of a call's client, or its other origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Grpc,
    Connect,
    GrpcWeb,
    /// JSON to a method's path, without headers of Connect.
    Json,
    /// JSON to a path of a service's `google.api.http` rules.
    Rest,
    /// The HTTP APIs for language models: OpenAI's, with what other servers have added to it.
    OpenAi,
    Anthropic,
    Http,
    WebSocket,
    /// A channel of this process.
    Handle,
    /// The router itself, with a copy of a call.
    Mirror,
}

impl Door {
    /// The doors of clients.
    pub const OF_CLIENTS: [Self; 9] = [
        Self::Grpc,
        Self::Connect,
        Self::GrpcWeb,
        Self::Json,
        Self::Rest,
        Self::OpenAi,
        Self::Anthropic,
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
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Handle => "handle",
            Self::Mirror => "mirror",
        }
    }

    /// Whether answers have an HTTP status and no gRPC code.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::WebSocket)
    }
}
