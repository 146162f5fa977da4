//! The host of a request, in its target and in its header.

use std::net::Ipv6Addr;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, StatusCode, Version, request};
use router_protocol::grpc::HttpFailure;

/// Checks that all readers of the request see the same host. Two different hosts are used to
/// smuggle requests past a reader that looks at only one.
///
/// # Errors
/// 400: it is given twice, with two values, or is not a host with an optional port.
pub(crate) fn check_host(parts: &request::Parts) -> Result<(), HttpFailure> {
    // In HTTP/1.1 it is empty for a target without a host (RFC 9112, 3.2).
    match named_host(parts)? {
        None | Some(b"") => Ok(()),
        Some(named) if is_host(named) => Ok(()),
        Some(_) => Err(bad("the host header or :authority may be a name or an address, and :port")),
    }
}

/// Like `check_host`, for a gRPC call: a client with a list of addresses sends all of it, and the
/// host is not used for routing.
///
/// # Errors
/// Like `check_host`.
pub(crate) fn check_authority(parts: &request::Parts) -> Result<(), HttpFailure> {
    match named_host(parts)? {
        // RFC 9113, 8.3.1.
        Some(named) if named.contains(&b'@') => Err(bad(":authority may name no user")),
        _ => Ok(()),
    }
}

fn named_host(parts: &request::Parts) -> Result<Option<&[u8]>, HttpFailure> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err(bad("the request names two hosts"));
    }
    let target = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    if let (Some(host), Some(target)) = (host, target)
        && !host.eq_ignore_ascii_case(target)
    {
        return Err(bad("the host header and the target's host (:authority) differ"));
    }
    Ok(target.or(host))
}

/// Whether it is a name or an address, with or without a port. URIs allow more (RFC 3986, 3.2): a
/// user, lists, escaped letters. Readers disagree which part of those is the host.
fn is_host(named: &[u8]) -> bool {
    let is_port = |port: &[u8]| {
        let text = std::str::from_utf8(port).ok().filter(|_| port.iter().all(u8::is_ascii_digit));
        text.is_some_and(|text| text.parse::<u16>().is_ok())
    };
    if let Some(rest) = named.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
        let address = std::str::from_utf8(&rest[..end]).ok();
        let is_address = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        let port = &rest[end + 1..];
        return is_address && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port));
    }
    let mut parts = named.splitn(2, |byte| *byte == b':');
    let is_letter =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let is_name = parts.next().is_some_and(|name| !name.is_empty() && name.iter().all(is_letter));
    is_name && parts.next().is_none_or(is_port)
}

/// The host, which has been checked.
///
/// # Errors
/// 400: an HTTP/1.1 request without one.
pub(crate) fn authority(parts: &request::Parts) -> Result<Option<Authority>, HttpFailure> {
    if let Some(target) = parts.uri.authority() {
        return Ok(Some(target.clone()));
    }
    match parts.headers.get(HOST).map(HeaderValue::as_bytes) {
        None if parts.version == Version::HTTP_11 => Err(bad("the request has no host header")),
        None | Some(b"") => Ok(None),
        Some(host) => {
            Authority::try_from(host).map(Some).map_err(|_| bad("the host header names no host"))
        }
    }
}

fn bad(text: &'static str) -> HttpFailure {
    HttpFailure::new(StatusCode::BAD_REQUEST, text)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(version: Version, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn requests_whose_host_is_unclear_are_refused() {
        for (version, uri, headers, part) in [
            (Version::HTTP_11, "/", &[][..], "no host"),
            (Version::HTTP_11, "/", &[("host", "a"), ("host", "a")], "two hosts"),
            (Version::HTTP_11, "/", &[("host", "a b")], "a name or an address"),
            (Version::HTTP_11, "/", &[("host", "a,b")], "a name or an address"),
            (Version::HTTP_11, "http://a@b/", &[], "a name or an address"),
            (Version::HTTP_11, "http://a/", &[("host", "b")], "differ"),
            (Version::HTTP_2, "http://a/", &[("host", "b")], "differ"),
        ] {
            let parts = parts(version, uri, headers);
            let failure = check_host(&parts).and_then(|()| authority(&parts)).unwrap_err();
            assert_eq!(StatusCode::BAD_REQUEST, failure.status);
            assert!(failure.text.contains(part), "{failure:?}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port() {
        for host in ["a", "a.b-c_d.:80", "127.0.0.1:1", "[::1]", "[2001:db8::1]:65535", "~a:0"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            "a,b",
            "a@b",
            "a b",
            "a:",
            "a:x",
            "a:+1",
            "a:65536",
            "a:1:2",
            ":80",
            "a/b",
            "a%2eb",
            "a#b",
            "a?b",
            "a\\b",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[a]",
            "[fe80::1%25e]",
            "a;b",
            "a=b",
            "(a)",
            "*",
            "\u{e4}",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
