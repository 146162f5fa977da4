//! Checks each request against the access rules, and keeps refusals for the audit log.
//!
//! The rules themselves are in `router_core`. This module extracts from a request what they need:
//! the names in the client's certificate, and the hash of its bearer token. The token is not passed
//! on from here; the header stays with the request, because applications may read it too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use router_core::{AccessPolicy, AccessRequest, Reach, Ruling, TokenHash};
use router_io::identity::names_of;
use router_io::{Peer, Stream};
use router_protocol::grpc::{Code, Status};

/// Refusals kept until the log reader takes them. Further ones are only counted, so that a flood
/// costs no memory. Arbitrary.
const REFUSALS_KEPT_MAX: usize = 256;

/// The limit for a path in a refusal. Arbitrary: longer than method names are.
const PATH_BYTES_MAX: usize = 256;

const UNAUTHENTICATED: &str =
    "this needs a client certificate or a bearer token that an access rule names";
const DENIED: &str = "no access rule lets this caller make this call";

/// The rules of one ingress, replaceable while it serves.
#[derive(Debug, Default)]
pub struct Access {
    policy: ArcSwap<AccessPolicy>,
    allowed: AtomicU64,
    unauthenticated: AtomicU64,
    denied: AtomicU64,
    unrecorded: AtomicU64,
    refusals: Mutex<VecDeque<RefusedRequest>>,
}

/// A refused request. It never holds the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    pub code: Code,
    /// Cut off after 256 bytes.
    pub path: String,
    /// As grpc writes it.
    pub peer: String,
    /// The names in the client's certificate.
    pub names: Vec<String>,
    pub had_token: bool,
}

/// The sender of a request, as the rules see it; all checks of the request go through it. Without
/// rules everything is allowed.
pub(super) struct Asker<'a>(Option<Known<'a>>);

struct Known<'a> {
    access: &'a Access,
    policy: Guard<Arc<AccessPolicy>>,
    caller: &'a ClientIdentity,
    token_hash: Option<TokenHash>,
    had_token: bool,
}

/// The peer of a connection, as identified by its certificate.
#[derive(Clone, Debug)]
pub(super) struct ClientIdentity {
    peer: Peer,
    names: Vec<String>,
}

// === impl ClientIdentity ===

impl ClientIdentity {
    pub(super) fn of(stream: &Stream, peer: Peer) -> Self {
        let chain = stream.peer_certificates();
        let names = chain.and_then(|chain| chain.first().map(names_of)).unwrap_or_default();
        Self { peer, names }
    }
}

// === impl Access ===

impl Access {
    pub fn new(policy: AccessPolicy) -> Arc<Self> {
        Arc::new(Self { policy: ArcSwap::from_pointee(policy), ..Self::default() })
    }

    /// Uses these rules for requests from now on.
    pub fn replace(&self, policy: AccessPolicy) {
        self.policy.store(Arc::new(policy));
    }

    /// Takes the refusals since the last call, oldest first.
    pub fn take_refusals(&self) -> Vec<RefusedRequest> {
        std::mem::take(&mut *self.refusals.lock()).into()
    }

    /// Named counters.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("allowed", read(&self.allowed)),
            ("unauthenticated", read(&self.unauthenticated)),
            ("denied", read(&self.denied)),
            ("unrecorded", read(&self.unrecorded)),
        ]
    }

    fn record(&self, refused: RefusedRequest) {
        let mut refusals = self.refusals.lock();
        if refusals.len() < REFUSALS_KEPT_MAX {
            refusals.push_back(refused);
        } else {
            drop(refusals);
            self.unrecorded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl Asker ===

impl<'a> Asker<'a> {
    /// Describes the caller that sent these headers.
    pub(super) fn new(
        access: Option<&'a Access>,
        caller: &'a ClientIdentity,
        headers: &HeaderMap,
    ) -> Self {
        Self(access.map(|access| {
            let policy = access.policy.load();
            let token = bearer_token(headers);
            let token_hash = token.filter(|_| policy.asks_for_tokens()).map(hash);
            Known { access, policy, caller, token_hash, had_token: token.is_some() }
        }))
    }

    /// Whether the caller may make a call of this path in at least one application. Checked before
    /// any lookup, so that a refused caller does not learn which paths exist.
    pub(super) fn may(&self, path: &str) -> bool {
        self.is_let_in(path, Reach::Unknown)
    }

    /// Whether the caller may make a call of this path that leads to `application`; `None`: to no
    /// application.
    pub(super) fn may_reach(&self, path: &str, application: Option<&str>) -> bool {
        self.is_let_in(path, application.map_or(Reach::Nowhere, Reach::Application))
    }

    /// Whether [`Self::may`] is only a preliminary answer.
    pub(super) fn names_applications(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.policy.names_applications())
    }

    fn is_let_in(&self, path: &str, reach: Reach<'_>) -> bool {
        let Some(known) = &self.0 else { return true };
        matches!(known.ruling(path, reach), Ruling::Allowed(_))
    }

    /// Records that its request is admitted.
    pub(super) fn admit(&self) {
        if let Some(known) = &self.0 {
            known.access.allowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that the caller may not make a call of this path, and returns the answer.
    /// `UNAUTHENTICATED`: credentials may help; `PERMISSION_DENIED`: they do not. If the rules
    /// allow the call in another application, the answer is that of an unknown path.
    pub(super) fn refuse(&self, path: &str) -> Status {
        let known = self.0.as_ref();
        let ruling =
            known.map_or(Ruling::Denied, |known| match known.ruling(path, Reach::Unknown) {
                Ruling::Allowed(_) => known.ruling(path, Reach::Nowhere),
                refusal => refusal,
            });
        let (code, text) = if ruling == Ruling::Unauthenticated {
            (Code::Unauthenticated, UNAUTHENTICATED)
        } else {
            (Code::PermissionDenied, DENIED)
        };
        if let Some(known) = known {
            known.record(path, code);
        }
        Status::new(code, text)
    }
}

impl Known<'_> {
    fn ruling(&self, path: &str, reach: Reach<'_>) -> Ruling<'_> {
        let Self { caller, token_hash, .. } = self;
        let identities = &caller.names;
        self.policy.decide(&AccessRequest { path, identities, token_hash: *token_hash, reach })
    }

    fn record(&self, path: &str, code: Code) {
        let access = self.access;
        let counter = match code {
            Code::Unauthenticated => &access.unauthenticated,
            _ => &access.denied,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        access.record(RefusedRequest {
            code,
            path: cut(path),
            peer: self.caller.peer.uri(),
            names: self.caller.names.clone(),
            had_token: self.had_token,
        });
    }
}

/// The token of `authorization: Bearer`; none if there are several, since other readers may use
/// another one.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Tokens are compared by hash, so that the time reveals nothing about their length either.
pub fn hash(token: &[u8]) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

fn cut(path: &str) -> String {
    let mut end = path.len().min(PATH_BYTES_MAX);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use router_core::{AccessRule, PathPattern};

    use super::*;

    fn access() -> Arc<Access> {
        let rule = AccessRule {
            name: "users".to_owned(),
            paths: vec![PathPattern::parse("/shop.Cart/*").expect("a path")],
            applications: None,
            identities: None,
            token_hashes: Some(vec![hash(b"secret")]),
            anonymous: false,
        };
        Access::new(AccessPolicy::new(vec![rule], false).expect("usable rules"))
    }

    fn caller() -> ClientIdentity {
        ClientIdentity { peer: Peer::Unix, names: Vec::new() }
    }

    /// Checks a call with these `authorization` headers.
    fn check(access: &Access, values: &[&'static str], path: &str) -> Result<(), Status> {
        let values = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value)));
        let caller = caller();
        let asker = Asker::new(Some(access), &caller, &values.collect());
        if asker.may(path) { Ok(()) } else { Err(asker.refuse(path)) }
    }

    #[test]
    fn a_bearer_token_lets_in_whatever_the_case_of_its_scheme() {
        let access = access();
        for value in ["Bearer secret", "bearer secret", "BEARER  secret "] {
            let result = check(&access, &[value], "/shop.Cart/Add");
            assert!(result.is_ok(), "{value}: {result:?}");
        }
    }

    #[test]
    fn what_is_no_single_known_token_is_unauthenticated() {
        let access = access();
        for values in [
            &[][..],
            &["Bearer wrong"],
            &["Basic secret"],
            &["secret"],
            &["Bearer"],
            &["Bearer secret", "Bearer secret"],
        ] {
            let status = check(&access, values, "/shop.Cart/Add").expect_err("not let in");
            assert_eq!(Code::Unauthenticated, status.code, "{values:?}");
        }
    }

    #[test]
    fn a_known_token_elsewhere_is_denied() {
        let access = access();
        let status = check(&access, &["Bearer secret"], "/shop.Orders/List").expect_err("no rule");
        assert_eq!(Code::PermissionDenied, status.code);
    }

    #[test]
    fn refusals_are_kept_without_the_token_up_to_a_bound() {
        let access = access();
        let path = format!("/{}", "é".repeat(1000));
        for _ in 0..REFUSALS_KEPT_MAX + 3 {
            let refused = check(&access, &["Bearer hidden"], &path);
            assert!(refused.is_err());
        }
        let refusals = access.take_refusals();
        assert_eq!(REFUSALS_KEPT_MAX, refusals.len());
        assert!(refusals[0].had_token && refusals[0].path.len() <= PATH_BYTES_MAX);
        assert!(!format!("{refusals:?}").contains("hidden"));
        assert!(access.take_refusals().is_empty());
        assert_eq!(("unrecorded", 3), access.stats()[3]);
    }
}
