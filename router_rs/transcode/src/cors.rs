//! Cross-origin requests of browsers (the Fetch standard, section CORS protocol).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, request};

/// How long a browser may remember a preflight: two hours, the most that Chromium does.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("7200");

/// The headers that a page may always read in an answer, whether or not they are present. The
/// request's id is added to the answer later, on its way out, under one of two names.
const ALWAYS_EXPOSED: &str =
    "grpc-status,grpc-message,grpc-status-details-bin,x-request-id,x-pyserve-request-id";

const ANY: &str = "*";

/// The origins whose pages may use the protocols of browsers. Credentials are never allowed.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    is_any: bool,
    origins: Vec<Box<str>>,
}

/// The CORS headers of the answer to one request.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    origin: Option<HeaderValue>,
    /// The answer depends on the origin.
    varies: bool,
}

// === impl Cors ===

impl Cors {
    /// `origins` as browsers send them (`https://example.org`), or `*` for all; empty: none.
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a str>) -> Self {
        let origins: Vec<Box<str>> = origins.into_iter().map(Box::from).collect();
        Self { is_any: origins.iter().any(|origin| **origin == *ANY), origins }
    }

    /// The permissions for the sender of these headers.
    pub fn grant(&self, headers: &HeaderMap) -> Grant {
        let Some(origin) = headers.get(ORIGIN) else {
            return Grant { origin: None, varies: !self.is_any && !self.origins.is_empty() };
        };
        if self.is_any {
            return Grant { origin: Some(HeaderValue::from_static(ANY)), varies: false };
        }
        let is_known = self.origins.iter().any(|known| known.as_bytes() == origin.as_bytes());
        Grant { origin: is_known.then(|| origin.clone()), varies: true }
    }

    /// The answer to a preflight; without the grant's headers when the origin is not allowed.
    pub fn preflight(&self, headers: &HeaderMap, methods: &str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        answer.insert(
            VARY,
            HeaderValue::from_static(
                "origin, access-control-request-method, access-control-request-headers",
            ),
        );
        let Some(origin) = self.grant(headers).origin else { return response };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if let Ok(methods) = HeaderValue::from_str(methods) {
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
        if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            // Metadata may have any name, so every requested header is allowed.
            answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
        response
    }
}

/// Whether a request is a preflight.
pub fn is_preflight(parts: &request::Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether a preflight asks for a header of one of these protocols.
pub(crate) fn asks_for_rpc(headers: &HeaderMap) -> bool {
    headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|name| {
            let name = name.trim_ascii();
            name.eq_ignore_ascii_case(b"x-grpc-web")
                || name.eq_ignore_ascii_case(b"connect-protocol-version")
        })
    })
}

// === impl Grant ===

impl Grant {
    /// Adds the headers that let a page read the answer with these headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        if self.varies {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = &self.origin else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = headers.keys().filter(|name| is_custom(name));
        let list = exposed.fold(ALWAYS_EXPOSED.to_owned(), |list, name| list + "," + name.as_str());
        let list = HeaderValue::try_from(list).expect("invariant: header names are visible ASCII");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, list);
    }
}

/// Whether a page can read a header only if it is exposed, and has a use for it.
fn is_custom(name: &HeaderName) -> bool {
    let is_always = ALWAYS_EXPOSED.split(',').any(|exposed| exposed == name.as_str());
    let is_plain = [CONTENT_TYPE, CONTENT_LENGTH, VARY, CONTENT_ENCODING].contains(name);
    !is_always && !is_plain && !name.as_str().starts_with("access-control-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn written(cors: &Cors, origin: Option<&'static str>) -> HeaderMap {
        let request: Vec<_> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        let mut answer = headers(&[("content-type", "application/grpc-web"), ("x-user", "1")]);
        cors.grant(&headers(&request)).write(&mut answer);
        answer
    }

    #[test]
    fn everybody_may_when_the_list_says_so() {
        let answer = written(&Cors::new(["*"]), Some("https://a.test"));
        assert_eq!("*", answer[ACCESS_CONTROL_ALLOW_ORIGIN]);
        assert_eq!(
            "grpc-status,grpc-message,grpc-status-details-bin,x-request-id,x-pyserve-request-id,x-user",
            answer[ACCESS_CONTROL_EXPOSE_HEADERS]
        );
        assert!(!answer.contains_key(VARY));
        assert_eq!(2, written(&Cors::new(["*"]), None).len());
    }

    #[test]
    fn a_list_names_who_may_and_caches_are_told() {
        let cors = Cors::new(["https://a.test", "https://b.test"]);
        let answer = written(&cors, Some("https://b.test"));
        assert_eq!("https://b.test", answer[ACCESS_CONTROL_ALLOW_ORIGIN]);
        assert_eq!("origin", answer[VARY]);
        for stranger in [Some("https://c.test"), Some("https://a.test.evil"), None] {
            let answer = written(&cors, stranger);
            assert!(!answer.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN), "{stranger:?}");
            assert_eq!("origin", answer[VARY]);
        }
        assert_eq!(2, written(&Cors::new([]), None).len());
    }

    #[test]
    fn a_preflight_gets_what_it_asks_for() {
        let request = headers(&[
            ("origin", "https://a.test"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-grpc-web,x-user"),
        ]);
        assert!(asks_for_rpc(&request));
        let answer = Cors::new(["*"]).preflight(&request, "POST");
        assert_eq!(StatusCode::NO_CONTENT, answer.status());
        assert_eq!("POST", answer.headers()[ACCESS_CONTROL_ALLOW_METHODS]);
        assert_eq!("x-grpc-web,x-user", answer.headers()[ACCESS_CONTROL_ALLOW_HEADERS]);
        assert_eq!("7200", answer.headers()[ACCESS_CONTROL_MAX_AGE]);

        let refused = Cors::new(["https://b.test"]).preflight(&request, "POST");
        assert!(!refused.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
        assert!(!refused.headers().contains_key(ACCESS_CONTROL_ALLOW_METHODS));
    }
}
