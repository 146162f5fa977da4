//! The head of a plain HTTP request, as an ingress passes it on.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, request};
use router_protocol::grpc::GRPC_TIMEOUT;
use router_protocol::names::{self, CLIENT_TIMEOUT};

/// Settings for plain HTTP requests that apply before Python sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlainHttp {
    /// The number under which the registrar finds its handler.
    pub(super) index: i32,
    /// The weight of a request at the gate.
    pub(super) weight: u32,
    /// A body whose announced length is at most this comes with the request's event.
    pub(super) whole_body_bytes_max: usize,
}

/// The ingress's description of the client's connection, see [`names::HTTP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin<'a> {
    version: &'a str,
    scheme: &'a str,
    client: &'a str,
    root_path: &'a str,
}

impl<'a> Origin<'a> {
    fn parse(mark: &'a HeaderValue) -> Option<Self> {
        let mut fields = mark.to_str().ok()?.splitn(4, ' ');
        let mut next = || fields.next();
        let (version, scheme, client) = (next()?, next()?, next()?);
        // The prefix "/" matches every path; its root path is empty.
        let root_path = next().filter(|path| *path != "/").unwrap_or_default();
        Some(Self { version, scheme, client, root_path })
    }
}

/// The head of a plain HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpHead<'a> {
    parts: &'a request::Parts,
    origin: Origin<'a>,
}

impl<'a> HttpHead<'a> {
    /// `None` without a well-formed mark.
    pub(super) fn of(parts: &'a request::Parts) -> Option<Self> {
        Some(Self { parts, origin: Origin::parse(parts.headers.get(names::HTTP)?)? })
    }

    pub fn method(&self) -> &'a str {
        self.parts.method.as_str()
    }

    /// Path and query as the client sent them.
    pub fn target(&self) -> &'a str {
        self.parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }

    /// `1.0`, `1.1` or `2`.
    pub fn version(&self) -> &'a str {
        self.origin.version
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'a str {
        self.origin.scheme
    }

    /// `None` for a client on a Unix socket.
    pub fn client(&self) -> Option<SocketAddr> {
        self.origin.client.parse().ok()
    }

    /// The route prefix, which the target includes.
    pub fn root_path(&self) -> &'a str {
        self.origin.root_path
    }

    pub fn is_websocket(&self) -> bool {
        names::is_websocket(&self.parts.headers)
    }

    pub(super) fn is_head_request(&self) -> bool {
        self.parts.method == http::Method::HEAD
    }

    /// Iterates over the client's headers. Values of one name keep their order.
    pub fn for_each_header(&self, mut visit: impl FnMut(&str, &[u8])) {
        let headers = &self.parts.headers;
        if let Some(authority) = self.parts.uri.authority().filter(|_| !headers.contains_key(HOST))
        {
            visit(HOST.as_str(), authority.as_str().as_bytes());
        }
        let mut had_cookies = false;
        for (name, value) in headers {
            if *name == COOKIE {
                if !std::mem::replace(&mut had_cookies, true) {
                    visit(COOKIE.as_str(), &joined_cookies(headers, value));
                }
            } else if *name == CLIENT_TIMEOUT {
                visit(GRPC_TIMEOUT.as_str(), value.as_bytes());
            } else if *name != GRPC_TIMEOUT && !name.as_str().starts_with(names::PREFIX) {
                visit(name.as_str(), value.as_bytes());
            }
        }
    }
}

/// HTTP/2 clients may send each cookie in a header of its own; applications expect one
/// (RFC 9113, 8.2.3).
fn joined_cookies<'a>(headers: &'a HeaderMap, first: &'a HeaderValue) -> Cow<'a, [u8]> {
    let mut cookies = headers.get_all(COOKIE).iter().skip(1).peekable();
    if cookies.peek().is_none() {
        return Cow::Borrowed(first.as_bytes());
    }
    let mut joined = first.as_bytes().to_vec();
    for cookie in cookies {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    Cow::Owned(joined)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str, headers: &[(&'static str, &str)]) -> request::Parts {
        let mut request = Request::get(uri).body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request.into_parts().0
    }

    fn headers(parts: &request::Parts) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        HttpHead::of(parts).unwrap().for_each_header(|name, value| {
            pairs.push((name.to_owned(), String::from_utf8(value.to_vec()).unwrap()));
        });
        pairs
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_mark_tells_of_the_clients_connection() {
        let client = "127.0.0.1:5".parse().ok();
        for (mark, version, scheme, expected, root_path) in [
            ("1.1 http 127.0.0.1:5 /app", "1.1", "http", client, "/app"),
            ("2 https [::1]:6 /", "2", "https", "[::1]:6".parse().ok(), ""),
            ("1.0 http - ", "1.0", "http", None, ""),
            ("1.0 http -", "1.0", "http", None, ""),
            ("2 http - /a b", "2", "http", None, "/a b"),
        ] {
            let parts = parts("http://h/x%20y?q=1", &[("pyserve-http", mark)]);
            let head = HttpHead::of(&parts).unwrap();
            assert_eq!((version, scheme), (head.version(), head.scheme()), "{mark:?}");
            assert_eq!((expected, root_path), (head.client(), head.root_path()), "{mark:?}");
            assert_eq!(("GET", "/x%20y?q=1"), (head.method(), head.target()));
        }
    }

    #[test]
    fn a_head_without_a_whole_mark_is_none() {
        for mark in ["", "1.1", "1.1 http"] {
            assert!(HttpHead::of(&parts("/", &[("pyserve-http", mark)])).is_none(), "{mark:?}");
        }
        assert!(HttpHead::of(&parts("/", &[])).is_none());
    }

    #[test]
    fn the_client_finds_its_headers_and_none_of_the_mesh() {
        let mark = ("pyserve-http", "1.1 http - /");
        let given = [mark, ("accept", "a"), ("pyserve-x", "y"), ("grpc-timeout", "1S")];
        let actual = headers(&parts("http://h:1/", &given));
        assert_eq!(pairs(&[("host", "h:1"), ("accept", "a")]), actual);

        let given = [mark, ("pyserve-client-timeout", "2S"), ("grpc-timeout", "1S"), ("host", "i")];
        let actual = headers(&parts("http://h:1/", &given));
        assert_eq!(pairs(&[("grpc-timeout", "2S"), ("host", "i")]), actual);
    }

    #[test]
    fn cookies_are_joined_and_other_repeated_headers_are_not() {
        let mark = ("pyserve-http", "2 http - /");
        let given = [mark, ("cookie", "a=1"), ("via", "x"), ("cookie", "b=2"), ("via", "y")];
        let expected = [("cookie", "a=1; b=2"), ("via", "x"), ("via", "y")];
        assert_eq!(pairs(&expected), headers(&parts("/", &given)));
    }

    #[test]
    fn a_websocket_is_told_by_its_header() {
        let mark = ("pyserve-http", "1.1 http - /");
        let is_websocket = |given: &[(&'static str, &str)]| {
            HttpHead::of(&parts("/", given)).unwrap().is_websocket()
        };
        assert!(is_websocket(&[mark, ("pyserve-upgrade", "websocket")]));
        assert!(!is_websocket(&[mark, ("upgrade", "websocket")]));
    }
}
