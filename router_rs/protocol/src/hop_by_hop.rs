//! Headers about one connection (RFC 9110, 7.6.1).

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName};

/// Those that a client has declared as such.
pub fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers.get_all(CONNECTION).iter().flat_map(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
    })
}
