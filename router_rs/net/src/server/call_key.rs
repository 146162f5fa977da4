//! The token that a server may require of every call.
//!
//! Checked at HEADERS, before a byte of the body is kept, so that callers without it cost the
//! server no memory. It is for control planes; routers prove the mesh token once per connection
//! (`trust`), and need not show it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::HeaderMap;
use router_core::{TokenHash, is_same_hash};
use router_front::hash;
use router_protocol::grpc::metadata::binary_values;
use router_protocol::names;

#[derive(Debug)]
pub(super) struct CallKey {
    hash: TokenHash,
    start: Instant,
    /// When the server's user was last notified of a call without it, in seconds since `start`,
    /// plus one.
    told_s: AtomicU64,
}

// === impl CallKey ===

impl CallKey {
    /// `None`: no call needs a token.
    pub(super) fn of(token: &[u8]) -> Option<Self> {
        let is_wanted = !token.is_empty();
        is_wanted.then(|| Self { hash: hash(token), start: Instant::now(), told_s: 0.into() })
    }

    /// Whether a call has the token.
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(names::TOKEN).iter();
        values.flat_map(binary_values).any(|token| is_same_hash(&hash(&token), &self.hash))
    }

    /// Whether the user may be notified of another one: once a second, so that a flood costs Python
    /// nothing.
    pub(super) fn may_tell(&self) -> bool {
        let now_s = self.start.elapsed().as_secs() + 1;
        self.told_s.swap(now_s, Ordering::Relaxed) != now_s
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn opens(values: &[&'static str]) -> bool {
        let key = CallKey::of(b"secret").expect("a token");
        let values = values.iter().map(|value| (names::TOKEN, HeaderValue::from_static(value)));
        key.opens(&values.collect())
    }

    #[test]
    fn the_token_opens_and_nothing_else_does() {
        assert!(CallKey::of(b"").is_none());
        // "secret", alone and after another value, both valid forms of metadata.
        assert!(opens(&["c2VjcmV0"]));
        assert!(opens(&["YQ,c2VjcmV0"]));
        assert!(opens(&["YQ==", "c2VjcmV0"]));
        for values in [&[][..], &[""], &["secret"], &["c2VjcmU"], &["c2VjcmV0AA"], &["!"]] {
            assert!(!opens(values), "{values:?}");
        }
    }

    #[test]
    fn its_user_is_told_once_a_second() {
        let key = CallKey::of(b"secret").expect("a token");
        let told = (0..1000).filter(|_| key.may_tell()).count();
        assert!((1..=2).contains(&told), "{told}");
    }
}
