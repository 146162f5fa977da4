//! The head of a gRPC request, made from a head of another protocol, with its timeout and
//! encodings; and heads of answers.

use std::time::Duration;

use http::header::{self, CONNECTION, CONTENT_TYPE, HOST, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version};
use http::{request, response};
use router_protocol::grpc::{ClientTimeout, Code, Status, read_timeout_seconds};
use router_protocol::named_by_connection;
use router_protocol::names::REFUSE_UNKNOWN_FIELDS;

/// Headers of the client's protocol or of its connection, which are not meant for the service.
const OWN: [HeaderName; 14] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HOST,
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("x-grpc-web"),
    REFUSE_UNKNOWN_FIELDS,
];

/// The prefix of this protocol's headers.
const CONNECT_PREFIX: &str = "connect-";

/// For a request without a host.
const AUTHORITY: &str = "localhost";

/// The gRPC head for `path`, with the client's own headers as metadata.
pub(super) fn grpc_head(
    parts: &request::Parts,
    path: &str,
    content_type: HeaderValue,
) -> request::Parts {
    let mut head = parts.clone();
    head.method = Method::POST;
    head.version = Version::HTTP_2;
    head.uri = uri(parts, path);
    let named: Vec<HeaderName> = named_by_connection(&head.headers).collect();
    for name in OWN.iter().chain(&named) {
        head.headers.remove(name);
    }
    let of_connect: Vec<HeaderName> =
        head.headers.keys().filter(|name| is_of_connect(name)).cloned().collect();
    for name in &of_connect {
        head.headers.remove(name);
    }
    head.headers.insert(CONTENT_TYPE, content_type);
    head.headers.insert(TE, HeaderValue::from_static("trailers"));
    head
}

fn is_of_connect(name: &HeaderName) -> bool {
    name.as_str().starts_with(CONNECT_PREFIX)
}

fn uri(parts: &request::Parts, path: &str) -> Uri {
    let of_host = || Authority::try_from(parts.headers.get(HOST)?.as_bytes()).ok();
    let authority = parts.uri.authority().cloned().or_else(of_host);
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(parts.uri.scheme().cloned().unwrap_or(Scheme::HTTP));
    uri.authority = Some(authority.unwrap_or_else(|| Authority::from_static(AUTHORITY)));
    uri.path_and_query =
        Some(PathAndQuery::try_from(path).expect("invariant: a method's path is a path"));
    Uri::from_parts(uri).expect("invariant: it has all three parts")
}

/// A head with only these.
pub(super) fn answer_head(status: StatusCode, headers: HeaderMap) -> response::Parts {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    parts
}

/// Parses the timeout of a client whose protocol has none; `None`: no limit.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed number.
pub(super) fn read_timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    Ok(match read_timeout_seconds(headers)? {
        ClientTimeout::Unsaid | ClientTimeout::Never => None,
        ClientTimeout::After(timeout) => Some(timeout),
    })
}

/// The coding of a request's body (RFC 9110, 8.4), by its name in small letters; `gzip` has two names.
///
/// # Errors
/// `UNIMPLEMENTED`: there are several.
pub(super) fn content_encoding(headers: &HeaderMap) -> Result<Option<HeaderValue>, Status> {
    let lists = headers.get_all(header::CONTENT_ENCODING).iter();
    let names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let names = names.map(|name| name.trim_ascii().to_ascii_lowercase());
    let mut names = names.filter(|name| !matches!(&**name, b"" | b"identity"));
    let (first, second) = (names.next(), names.next());
    if second.is_some() {
        let text = "a body with several codings is not supported, use one";
        return Err(Status::new(Code::Unimplemented, text));
    }
    Ok(first.and_then(|name| match &*name {
        b"x-gzip" => Some(HeaderValue::from_static("gzip")),
        name => HeaderValue::from_bytes(name).ok(),
    }))
}

/// Whether a list of codings has gzip, and does not rule it out (RFC 9110, 12.5.3).
pub(super) fn accepts_gzip(list: Option<&HeaderValue>) -> bool {
    list.and_then(|list| list.to_str().ok()).is_some_and(|list| {
        list.split(',').any(|part| {
            let mut parameters = part.split(';').map(str::trim);
            let is_gzip = parameters.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            is_gzip
                && !parameters
                    .any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn protocol_headers_go_and_metadata_stays() {
        let request = Request::builder()
            .method(Method::GET)
            .uri("/v1/things?x=1")
            .header("host", "example.test:1")
            .header("connection", "keep-alive, X-Hop")
            .header("x-hop", "1")
            .header("content-length", "3")
            .header("connect-protocol-version", "1")
            .header("connect-timeout-ms", "5")
            .header("x-pyserve-refuse-unknown-fields", "1")
            .header("x-user", "u")
            .header("application", "a")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let head = grpc_head(&parts, "/p.S/M", HeaderValue::from_static("application/grpc"));
        assert_eq!("http://example.test:1/p.S/M", head.uri.to_string());
        assert_eq!((Method::POST, Version::HTTP_2), (head.method, head.version));
        let mut names: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(vec!["application", "content-type", "te", "x-user"], names);
    }
}
