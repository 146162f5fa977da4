//! The announced length of a body.

use http::HeaderMap;
use http::header::CONTENT_LENGTH;

/// The value of `content-length` (RFC 9110, 8.6); `None` if it is missing or malformed. Ambiguous
/// lengths are refused earlier, where a head is received.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
