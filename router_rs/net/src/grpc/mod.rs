//! gRPC's words on top of HTTP/2: status, timeout, framing, compression, metadata.
//!
//! Pure conversions; nothing here waits or owns a socket.

mod code;
pub mod compress;
pub mod framing;
pub mod metadata;
mod status;
mod timeout;

use http::HeaderValue;

pub use code::Code;
pub use compress::{Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING};
pub use framing::{Decoder, Framed, Message, PREFIX_BYTES};
pub use status::{GRPC_MESSAGE, GRPC_STATUS, Status, encode_message};
pub use timeout::{GRPC_TIMEOUT, format_timeout, parse_timeout, read_timeout};

/// The content type of answers whose request named no codec of its own.
pub const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// `application/grpc`, alone or with a `+codec` or parameters; not `application/grpc-web`.
pub fn is_grpc_content_type(value: Option<&HeaderValue>) -> bool {
    value
        .and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_web_is_another_content_type() {
        for (text, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(expected, is_grpc_content_type(Some(&value)), "{text}");
        }
        assert!(!is_grpc_content_type(None));
    }
}
