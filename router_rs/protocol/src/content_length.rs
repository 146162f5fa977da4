//! How long a body is to be, as its head says.

use http::HeaderMap;
use http::header::CONTENT_LENGTH;

/// What `content-length` announces (RFC 9110, 8.6); `None` where it is missing or no number. Lengths
/// that can be read two ways are refused before, where a head comes in.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
