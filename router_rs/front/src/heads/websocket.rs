//! The WebSocket handshake (RFC 6455, and RFC 8441 over HTTP/2): requests for one, and the answer.
//! Payloads are not inspected; `socket_frames` finds where frames end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::ext::Protocol;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, request, response};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use router_protocol::grpc::HttpFailure;
use router_protocol::names::WEBSOCKET;

/// RFC 6455, 1.3.
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The length of the nonce in a client's key (RFC 6455, 4.1).
const KEY_BYTES: usize = 16;

/// The only version that exists.
const VERSION: &str = "13";

/// Whether an HTTP/1.1 request asks to become a WebSocket.
pub(crate) fn is_upgrade(parts: &request::Parts) -> bool {
    let has = |name, wanted: &str| {
        let values = parts.headers.get_all(name).iter();
        let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
    };
    parts.version == Version::HTTP_11 && has(UPGRADE, "websocket") && has(CONNECTION, "upgrade")
}

/// Whether what follows an HTTP/1.1 request may be frames: more than `is_upgrade` says, and at least
/// what `head_lines` takes for one.
pub(crate) fn names_websocket(headers: &HeaderMap) -> bool {
    const NAME: &[u8] = b"websocket";
    let mut values = headers.get_all(UPGRADE).iter();
    values.any(|value| {
        value.as_bytes().windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME))
    })
}

/// Turns an extended CONNECT into an ordinary GET; false for any other request.
///
/// # Errors
/// 501 for another protocol than WebSocket.
pub(crate) fn take_connect(parts: &mut request::Parts) -> Result<bool, HttpFailure> {
    let Some(protocol) = parts.extensions.remove::<Protocol>() else { return Ok(false) };
    if protocol.as_str() != "websocket" {
        let text = format!("CONNECT for {:?} is not spoken here", protocol.as_str());
        return Err(HttpFailure::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    parts.method = Method::GET;
    Ok(true)
}

/// Refuses a handshake that cannot be answered.
///
/// # Errors
/// 400 for another method than GET, for a body and for a wrong key, 426 for another version.
pub(crate) fn check(parts: &request::Parts) -> Result<(), HttpFailure> {
    let bad = |text| Err(HttpFailure::new(StatusCode::BAD_REQUEST, text));
    if parts.method != Method::GET {
        return bad("a WebSocket begins with GET");
    }
    let has_length = parts.headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_length || parts.headers.contains_key(TRANSFER_ENCODING) {
        // Readers would disagree on what is this body, and what the first frames.
        return bad("a WebSocket's handshake has no body");
    }
    if parts.headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        let text = "sec-websocket-version must be 13";
        return Err(HttpFailure::new(StatusCode::UPGRADE_REQUIRED, text));
    }
    // HTTP/2 has no key: a stream cannot be mistaken for anything else.
    let mut keys = parts.headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|_| keys.next().is_none());
    let is_key = |key: &HeaderValue| {
        STANDARD.decode(key.as_bytes()).is_ok_and(|nonce| nonce.len() == KEY_BYTES)
    };
    if parts.version == Version::HTTP_11 && !key.is_some_and(is_key) {
        return bad("sec-websocket-key must be there once, as 16 bytes in base64");
    }
    Ok(())
}

/// The answer to an HTTP/1.1 client, once a replica has accepted with `head`.
pub(crate) fn switch(mut head: response::Parts, key: &HeaderValue) -> response::Parts {
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    for name in [CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(UPGRADE, WEBSOCKET);
    head.headers.insert(SEC_WEBSOCKET_ACCEPT, accept(key));
    head
}

/// Adds the headers that allow a retry to answers that refuse a handshake.
pub(crate) fn add_hints(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::UPGRADE_REQUIRED {
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        headers.insert(UPGRADE, WEBSOCKET);
    }
}

fn accept(key: &HeaderValue) -> HeaderValue {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(ACCEPT_GUID);
    HeaderValue::try_from(STANDARD.encode(digest.finish()))
        .expect("invariant: base64 is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};

    fn parts(headers: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_key_of_the_standard_is_accepted_as_the_standard_says() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", accept(&key));
        let head = Response::builder()
            .header("content-length", "0")
            .header("sec-websocket-protocol", "chat")
            .body(())
            .unwrap();
        let head = switch(head.into_parts().0, &key);
        assert_eq!(StatusCode::SWITCHING_PROTOCOLS, head.status);
        assert_eq!("chat", head.headers["sec-websocket-protocol"]);
        assert!(!head.headers.contains_key("content-length"));
    }

    #[test]
    fn an_upgrade_is_named_by_two_headers_in_any_letter_case() {
        for (headers, expected) in [
            (&[("upgrade", "websocket"), ("connection", "Upgrade")][..], true),
            (&[("upgrade", "WebSocket"), ("connection", "keep-alive, upgrade")], true),
            (&[("upgrade", "h2c, websocket"), ("connection", "upgrade")], true),
            (&[("upgrade", "h2c"), ("connection", "upgrade")], false),
            (&[("upgrade", "websocket")], false),
            (&[("connection", "upgrade")], false),
        ] {
            assert_eq!(expected, is_upgrade(&parts(headers)), "{headers:?}");
            assert!(!expected || names_websocket(&parts(headers).headers), "{headers:?}");
        }
        assert!(names_websocket(&parts(&[("upgrade", "x; WebSockets")]).headers));
        assert!(!names_websocket(&parts(&[("upgrade", "h2c")]).headers));
        let mut old = parts(&[("upgrade", "websocket"), ("connection", "upgrade")]);
        old.version = Version::HTTP_10;
        assert!(!is_upgrade(&old));
    }

    #[test]
    fn handshakes_that_cannot_be_answered_are_refused() {
        const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        const V13: (&str, &str) = ("sec-websocket-version", "13");
        for (headers, expected) in [
            (&[KEY, V13][..], None),
            (&[KEY], Some(426)),
            (&[KEY, ("sec-websocket-version", "12")], Some(426)),
            (&[V13], Some(400)),
            (&[V13, ("sec-websocket-key", "short")], Some(400)),
            (&[V13, ("sec-websocket-key", "dGhlIHNhbXBsZQ==")], Some(400)),
            (&[KEY, KEY, V13], Some(400)),
            (&[KEY, V13, ("content-length", "0")], None),
            (&[KEY, V13, ("content-length", "2")], Some(400)),
            (&[KEY, V13, ("transfer-encoding", "chunked")], Some(400)),
        ] {
            let refused = check(&parts(headers)).err().map(|failure| failure.status.as_u16());
            assert_eq!(expected, refused, "{headers:?}");
        }
        let mut post = parts(&[KEY, V13]);
        post.method = Method::POST;
        assert_eq!(StatusCode::BAD_REQUEST, check(&post).unwrap_err().status);
        let mut over_http2 = parts(&[V13]);
        over_http2.version = Version::HTTP_2;
        assert!(check(&over_http2).is_ok());
    }
}
