//! The head of a plain HTTP request: turns the client's into the one that replicas get.
//!
//! Pure functions: which headers are removed or added, and what is refused.

use std::cell::RefCell;

use http::header::{CONNECTION, COOKIE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Parts as UriParts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version, request};
use router_dispatch::strip_mesh_headers;
use router_protocol::grpc::{
    ClientTimeout, GRPC_TIMEOUT, HttpFailure, Status, read_timeout, read_timeout_seconds,
};
use router_protocol::named_by_connection;
use router_protocol::names;

use crate::heads::forwarded::Client;
use crate::heads::host::authority;

/// `?1`: continue with the request if its client goes away.
const DISCONNECT_DISABLED: HeaderName = HeaderName::from_static("x-request-disconnect-disabled");

/// Headers about one hop only, in addition to those that `connection` names (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The client, and how it reached us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub client: Client,
    /// The prefix removed from the path before the request came here.
    pub root_path: &'a str,
    pub said: &'a Said,
}

/// The value last sent to replicas for a connection. Except for proxies, most connections have one
/// client, version and prefix.
#[derive(Debug, Default)]
pub(crate) struct Said(RefCell<Option<Told>>);

#[derive(Debug)]
struct Told {
    client: Client,
    version: Version,
    prefix: String,
    value: HeaderValue,
}

/// Makes the head that a replica gets. A refusal has a status and a sentence.
///
/// # Errors
/// 400: the host is missing, or HTTP/2 does not allow a value.
pub(crate) fn rewrite(
    parts: &mut request::Parts,
    origin: Origin<'_>,
    prefix: &str,
) -> Result<(), HttpFailure> {
    check_blanks(parts)?;
    let authority = authority(parts)?;
    remove_hop_by_hop(&mut parts.headers);
    strip_mesh_headers(&mut parts.headers);
    if let Some(timeout) = parts.headers.remove(GRPC_TIMEOUT) {
        // Inside the mesh, the deadline's header takes its place.
        parts.headers.insert(names::CLIENT_TIMEOUT, timeout);
    }
    join_cookies(&mut parts.headers);
    parts.headers.insert(names::HTTP, origin.say(parts.version, prefix)?);
    if let Some(authority) = &authority {
        // The host of the target overrides the header; in most requests they are equal.
        if parts.headers.get(HOST).is_none_or(|host| host != authority.as_str()) {
            let host = HeaderValue::from_str(authority.as_str());
            parts.headers.insert(HOST, host.map_err(|_| bad("the host is no name"))?);
        }
    }
    let path = full_path(origin.root_path, parts.uri.path_and_query())?;
    parts.uri = absolute(origin.client.is_tls, authority, path)?;
    parts.version = Version::HTTP_2;
    Ok(())
}

impl Origin<'_> {
    /// The value of `names::HTTP`.
    fn say(&self, version: Version, prefix: &str) -> Result<HeaderValue, HttpFailure> {
        let mut said = self.said.0.borrow_mut();
        if let Some(told) = said.as_ref()
            && (told.client, told.version, &*told.prefix) == (self.client, version, prefix)
        {
            return Ok(told.value.clone());
        }
        let Client { peer, is_tls } = self.client;
        let scheme = if is_tls { "https" } else { "http" };
        let version_text = version_text(version);
        let text = format!("{version_text} {scheme} {peer} {}{prefix}", self.root_path);
        let value = HeaderValue::from_maybe_shared(bytes::Bytes::from(text));
        let value = value.map_err(|_| bad("the route prefix has control characters"))?;
        let (client, prefix) = (self.client, prefix.to_owned());
        *said = Some(Told { client, version, prefix, value: value.clone() });
        Ok(value)
    }
}

/// The path before any prefix was removed: applications expect their root path in front.
fn full_path(
    root_path: &str,
    path: Option<&PathAndQuery>,
) -> Result<Option<PathAndQuery>, HttpFailure> {
    match path {
        Some(path) if !root_path.is_empty() => {
            let whole = PathAndQuery::from_maybe_shared(format!("{root_path}{path}"));
            whole.map(Some).map_err(|_| bad("the request's target is no path"))
        }
        path => Ok(path.cloned()),
    }
}

/// The authority of the request, as HTTP/2 needs it.
fn absolute(
    is_tls: bool,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
) -> Result<Uri, HttpFailure> {
    let mut uri = UriParts::default();
    uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    // HTTP/1.0 clients may omit it; HTTP/2 needs one.
    uri.authority = Some(authority.unwrap_or_else(|| Authority::from_static("localhost")));
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(uri).map_err(|_| bad("the request's target is no path"))
}

fn bad(text: &'static str) -> HttpFailure {
    HttpFailure::new(StatusCode::BAD_REQUEST, text)
}

fn version_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// Checks the transfer coding of the body. hyper accepts anything that ends in `chunked`, and
/// readers interpret two codings differently: where one of them sees the request end, another goes
/// on.
///
/// # Errors
/// 501 for anything but one `chunked`.
pub(crate) fn check_codings(headers: &HeaderMap) -> Result<(), HttpFailure> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let text = "transfer-encoding may be \"chunked\", once, and nothing else";
            Err(HttpFailure::new(StatusCode::NOT_IMPLEMENTED, text))
        }
    }
}

/// Refuses blanks around a value: HTTP/1.1 removes them, HTTP/2 has none (RFC 9113, 8.2.1), and a
/// reader that keeps them sees another value.
fn check_blanks(parts: &request::Parts) -> Result<(), HttpFailure> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_blanks = |value: &[u8]| is_blank(value.first()) || is_blank(value.last());
    let is_http2 = parts.version == Version::HTTP_2;
    if is_http2 && parts.headers.values().any(|value| has_blanks(value.as_bytes())) {
        return Err(bad("a header's value begins or ends with a blank"));
    }
    Ok(())
}

/// Removes headers that concern only the client's connection.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // One pass over a handful of names costs less than a lookup of each of these.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = named_by_connection(headers).collect();
    for name in named {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// HTTP/2 clients may split the cookies, for HPACK; applications expect one header (RFC 9113,
/// 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let parts: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_maybe_shared(bytes::Bytes::from(parts.join(&b"; "[..])));
    headers.insert(COOKIE, joined.expect("invariant: each part is a value"));
}

/// Parses the client's timeout.
///
/// # Errors
/// 400 for a malformed number.
pub(crate) fn client_timeout(headers: &HeaderMap) -> Result<ClientTimeout, HttpFailure> {
    let of_grpc = || {
        let timeout = read_timeout(headers)?;
        Ok(timeout.map_or(ClientTimeout::Unsaid, ClientTimeout::After))
    };
    let timeout = match read_timeout_seconds(headers) {
        Ok(ClientTimeout::Unsaid) => of_grpc(),
        said => said,
    };
    timeout.map_err(|status: Status| HttpFailure::new(StatusCode::BAD_REQUEST, status.message))
}

/// Whether the request must go on without its client.
pub(crate) fn is_detached(headers: &HeaderMap) -> bool {
    names::spelled(headers, &DISCONNECT_DISABLED).is_some_and(|value| value == "?1")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use http::Request;
    use proptest::prelude::*;

    fn parts(version: Version, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn origin(said: &Said) -> Origin<'_> {
        Origin { client: client("127.0.0.1:52100", false), root_path: "", said }
    }

    fn client(peer: &str, is_tls: bool) -> Client {
        Client { peer: peer.parse().unwrap(), is_tls }
    }

    #[test]
    fn the_meshs_header_says_version_scheme_client_and_root_path() {
        for (version, is_tls, root_path, prefix, expected) in [
            (Version::HTTP_11, false, "", "/app", "1.1 http 127.0.0.1:52100 /app"),
            (Version::HTTP_10, false, "", "", "1.0 http 127.0.0.1:52100 "),
            (Version::HTTP_2, true, "/api", "/a/b", "2 https 127.0.0.1:52100 /api/a/b"),
            (Version::HTTP_11, false, "/api", "", "1.1 http 127.0.0.1:52100 /api"),
        ] {
            let mut parts = parts(version, "/x?y=%20", &[("host", "h")]);
            let said = Said::default();
            let client = client("127.0.0.1:52100", is_tls);
            let origin = Origin { client, root_path, ..origin(&said) };
            rewrite(&mut parts, origin, prefix).unwrap();
            assert_eq!(expected, parts.headers[names::HTTP]);
            let expected = format!("{root_path}/x?y=%20");
            assert_eq!(expected, parts.uri.path_and_query().unwrap().as_str());
        }
    }

    #[test]
    fn each_client_version_and_prefix_of_a_connection_is_said_as_it_is() {
        let said = Said::default();
        for (peer, version, prefix) in [
            ("127.0.0.1:1", Version::HTTP_11, "/a"),
            ("127.0.0.1:1", Version::HTTP_11, "/a"),
            ("127.0.0.1:1", Version::HTTP_11, "/b"),
            ("127.0.0.1:1", Version::HTTP_10, "/b"),
            ("[2001:db8::1]:0", Version::HTTP_10, "/b"),
        ] {
            let mut parts = parts(version, "/a/b", &[("host", "h")]);
            let origin = Origin { client: client(peer, false), ..origin(&said) };
            rewrite(&mut parts, origin, prefix).unwrap();
            let expected = format!("{} http {peer} {prefix}", version_text(version));
            assert_eq!(expected, parts.headers[names::HTTP]);
        }
    }

    #[test]
    fn the_host_is_that_of_the_target_else_that_of_the_header() {
        for (uri, headers, expected) in [
            ("/", &[("host", "a:1")][..], "a:1"),
            ("http://b/", &[("host", "B")], "b"),
            ("http://b/", &[], "b"),
        ] {
            let mut parts = parts(Version::HTTP_11, uri, headers);
            rewrite(&mut parts, origin(&Said::default()), "").unwrap();
            assert_eq!(expected, parts.uri.authority().unwrap().as_str(), "{uri} {headers:?}");
            assert_eq!(expected, parts.headers[HOST], "{uri} {headers:?}");
        }
        let mut old = parts(Version::HTTP_10, "/", &[]);
        rewrite(&mut old, origin(&Said::default()), "").unwrap();
        assert_eq!("localhost", old.uri.authority().unwrap().as_str());
        assert!(!old.headers.contains_key(HOST));
    }

    #[test]
    fn a_body_may_be_chunked_once() {
        for (codings, is_taken) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["Chunked"], true),
            (&["chunked, chunked"], false),
            (&["chunked", "chunked"], false),
            (&["gzip, chunked"], false),
            (&["identity"], false),
            (&[""], false),
        ] {
            let headers: Vec<_> = codings.iter().map(|text| ("transfer-encoding", *text)).collect();
            let checked = check_codings(&parts(Version::HTTP_11, "/", &headers).headers);
            assert_eq!(is_taken, checked.is_ok(), "{codings:?}");
        }
    }

    #[test]
    fn what_clients_claim_in_the_name_of_the_mesh_is_removed() {
        let headers = [("host", "h"), ("pyserve-http", "2 https evil /"), ("pyserve-bypass", "1")];
        let mut parts = parts(Version::HTTP_11, "/", &headers);
        rewrite(&mut parts, origin(&Said::default()), "").unwrap();
        let values: Vec<_> = parts.headers.get_all(names::HTTP).iter().collect();
        assert_eq!(vec!["1.1 http 127.0.0.1:52100 "], values);
        assert!(!parts.headers.contains_key(names::BYPASS));
    }

    #[test]
    fn blanks_around_values_are_refused_over_http2() {
        for (value, is_taken) in [("v w", true), ("", true), (" v", false), ("v\t", false)] {
            for version in [Version::HTTP_11, Version::HTTP_2] {
                let mut parts = parts(version, "http://h/", &[("host", "h"), ("x-a", value)]);
                let rewritten = rewrite(&mut parts, origin(&Said::default()), "");
                assert_eq!(is_taken || version == Version::HTTP_11, rewritten.is_ok(), "{value:?}");
            }
        }
    }

    #[test]
    fn cookies_are_joined_in_order() {
        let headers = [("host", "h"), ("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d")];
        let mut parts = parts(Version::HTTP_2, "http://h/", &headers);
        rewrite(&mut parts, origin(&Said::default()), "").unwrap();
        let values: Vec<_> = parts.headers.get_all(COOKIE).iter().collect();
        assert_eq!(vec!["a=1; b=2; c=3; d"], values);
    }

    #[test]
    fn the_clients_timeout_is_a_number_of_seconds() {
        let after = |seconds| Ok(ClientTimeout::After(Duration::from_secs_f64(seconds)));
        for (name, value, expected) in [
            ("x-request-timeout-seconds", "1.5", after(1.5)),
            ("x-request-timeout-seconds", " 2 ", after(2.0)),
            ("x-request-timeout-seconds", "0", Ok(ClientTimeout::Never)),
            ("x-request-timeout-seconds", "-1", Ok(ClientTimeout::Never)),
            ("x-request-timeout-seconds", "1e300", Ok(ClientTimeout::Never)),
            ("x-request-timeout-seconds", "1e400", Err(())),
            ("x-request-timeout-seconds", "-1e400", Err(())),
            ("x-request-timeout-seconds", "inf", Err(())),
            ("x-request-timeout-seconds", "-Infinity", Err(())),
            ("x-request-timeout-seconds", "nan", Err(())),
            ("x-request-timeout-seconds", "", Err(())),
            ("x-request-timeout-seconds", "soon", Err(())),
            ("grpc-timeout", "3S", after(3.0)),
            ("grpc-timeout", "soon", Err(())),
            ("x-other", "1", Ok(ClientTimeout::Unsaid)),
        ] {
            let read = client_timeout(&parts(Version::HTTP_11, "/", &[(name, value)]).headers);
            assert_eq!(expected, read.map_err(|_| ()), "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn nothing_about_the_hop_stays_and_nothing_else_goes(
            named in proptest::collection::vec("x-[a-c]", 0..4),
            others in proptest::collection::vec("x-[a-f]", 0..6),
            hops in proptest::collection::vec(0..HOP_BY_HOP.len(), 0..4),
            is_split in any::<bool>(),
        ) {
            let mut headers = HeaderMap::new();
            for name in &others {
                headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("v"));
            }
            for index in &hops {
                headers.append(&HOP_BY_HOP[*index], HeaderValue::from_static("close"));
            }
            if is_split {
                for name in &named {
                    headers.append(CONNECTION, HeaderValue::try_from(name).unwrap());
                }
            } else {
                headers.append(CONNECTION, HeaderValue::try_from(named.join(" , ")).unwrap());
            }
            remove_hop_by_hop(&mut headers);
            for name in &HOP_BY_HOP {
                prop_assert!(!headers.contains_key(name));
            }
            for name in &others {
                prop_assert_eq!(!named.contains(name), headers.contains_key(name));
            }
        }
    }
}
