//! Content types of Connect (connectrpc.com/docs/protocol).

use http::HeaderValue;

/// The content types of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectType {
    UnaryProto,
    UnaryJson,
    StreamProto,
    StreamJson,
}

impl ConnectType {
    /// `None`: it is another content type, or its charset is not UTF-8.
    pub(super) fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?.to_ascii_lowercase();
        let mut parts = text.split(';').map(str::trim);
        let known = match parts.next()? {
            "application/proto" => ConnectType::UnaryProto,
            "application/json" => ConnectType::UnaryJson,
            "application/connect+proto" => ConnectType::StreamProto,
            "application/connect+json" => ConnectType::StreamJson,
            _ => return None,
        };
        let is_readable = parts.all(|part| match part.strip_prefix("charset=") {
            Some(charset) => matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"),
            None => true,
        });
        is_readable.then_some(known)
    }

    pub(super) fn is_json(self) -> bool {
        matches!(self, ConnectType::UnaryJson | ConnectType::StreamJson)
    }

    pub(super) fn is_stream(self) -> bool {
        matches!(self, ConnectType::StreamProto | ConnectType::StreamJson)
    }

    /// The content type of answers to it.
    pub(super) fn of_answer(self) -> &'static str {
        match self {
            ConnectType::UnaryProto => "application/proto",
            ConnectType::UnaryJson => "application/json",
            ConnectType::StreamProto => "application/connect+proto",
            ConnectType::StreamJson => "application/connect+json",
        }
    }
}
