//! The token that every call of a server may have to carry.
//!
//! Asked at HEADERS, before a byte of the body is kept: who does not have it costs the server no
//! memory. It is for control planes; routers prove the mesh token once a connection (`trust`), and
//! need not show it again.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::{HeaderMap, request};
use router_core::{TokenHash, is_same_hash};

use super::admit::{exchange, refuse};
use super::connection::ConnectionState;
use super::sink::Respond;
use crate::front::hash;
use crate::grpc::metadata::binary_values;
use crate::grpc::{Code, Status};
use crate::link::Event;
use crate::names;

#[derive(Debug)]
pub(super) struct CallKey {
    hash: TokenHash,
    start: Instant,
    /// Seconds from `start`, and one: when the server's user was last told of a call without it.
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

    /// Whether the user may be told of one more: once a second, so that a flood costs Python
    /// nothing.
    fn may_tell(&self) -> bool {
        let now_s = self.start.elapsed().as_secs() + 1;
        self.told_s.swap(now_s, Ordering::Relaxed) != now_s
    }
}

/// The key that a call does not have and needs.
pub(super) fn missing<'a>(
    connection: &'a ConnectionState,
    head: &request::Parts,
) -> Option<&'a CallKey> {
    let key = connection.server.call_key.as_ref()?;
    // A replica has ports for strangers too, which are open by what they are for.
    let is_replica = !connection.server.config.replica_id.is_empty();
    let is_open = is_replica && (connection.guest.is_some() || connection.info.is_inner);
    if is_open || connection.info.is_trusted() {
        return None;
    }
    let is_known = key.opens(&head.headers);
    if is_known {
        connection.info.end_probation();
    }
    (!is_known).then_some(key)
}

/// Answers a call without the token, and tells the user of it if one wants to know.
pub(super) fn turn_away(
    key: &CallKey,
    connection: &Rc<ConnectionState>,
    head: request::Parts,
    respond: Respond,
) {
    let text =
        "the mesh token is missing or wrong; PYSERVE_TOKEN_FILE names the file that holds it";
    refuse(respond, &Status::new(Code::Unauthenticated, text), HeaderMap::new());
    connection.guest.iter().for_each(|guest| guest.front.on_refusal());
    let Some(index) = connection.server.methods.turned_away() else { return };
    if key.may_tell() {
        // A call that has ended: there is nothing that its user could answer.
        let exchange = exchange(connection, head, None, index, false);
        exchange.link.end();
        exchange.clone().link.push(Event::Call { exchange, message: None });
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
        // "secret", and with another value before it, as metadata may come.
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
