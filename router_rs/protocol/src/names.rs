//! Paths and metadata keys that only the mesh uses.
//!
//! Everything under [`PREFIX`] is stripped at the ingress, in both directions, except the
//! documented [`ANSWERED_BY`] and headers for which [`passes`] is true.

use http::{HeaderMap, HeaderName, HeaderValue};
use router_core::Cost;

/// The prefix of all metadata of the mesh.
pub const PREFIX: &str = "pyserve-";

/// First request of a router's handshake, with [`ROUTER_NONCE`]; the answer carries [`REPLICA_ID`],
/// [`NONCE`] and [`REPLICA_PROOF`].
pub const HELLO_PATH: &str = "/pyserve.mesh/Hello";
/// Second request of the handshake; carries [`PROOF`], the answer is 200 or 403.
pub const PROVE_PATH: &str = "/pyserve.mesh/Prove";

/// A stream of `LoadReport`s (`proto/pyserve/wire/v1/load.proto`), for trusted connections.
pub const LOAD_PATH: &str = "/pyserve.mesh/Load";

/// The mesh token itself, in base64: in calls to a controller.
pub const TOKEN: HeaderName = HeaderName::from_static("pyserve-token-bin");

/// The id of the replica that answers the handshake.
pub const REPLICA_ID: HeaderName = HeaderName::from_static("pyserve-replica-id");
/// Fresh random bytes of the server, in hex; one per connection.
pub const NONCE: HeaderName = HeaderName::from_static("pyserve-nonce");
/// Fresh random bytes of the router, in hex, which the server's proof is for.
pub const ROUTER_NONCE: HeaderName = HeaderName::from_static("pyserve-router-nonce");
/// What [`crate::mesh::proof::replica_proof`] returns for the router's nonce.
pub const REPLICA_PROOF: HeaderName = HeaderName::from_static("pyserve-replica-proof");
/// What [`crate::mesh::proof::proof`] returns for the nonce.
pub const PROOF: HeaderName = HeaderName::from_static("pyserve-proof");
/// A router's name, a decimal number: on the load stream for its asks, on a call for the place that
/// was kept for it. Trusted connections only.
pub const ASKER: HeaderName = HeaderName::from_static("pyserve-asker");
/// Trailer `<in_flight>;<limit>` (decimal) of every answer to a trusted connection; header of a plain
/// HTTP answer that is given whole, which has no trailers.
pub const LOAD: HeaderName = HeaderName::from_static("pyserve-load");
/// `1` in the Trailers-Only `RESOURCE_EXHAUSTED` of a gate: the call did not start.
pub const REFUSED: HeaderName = HeaderName::from_static("pyserve-refused");
/// Request metadata `1`: the gate admits the call beyond its limit. Trusted connections only.
pub const BYPASS: HeaderName = HeaderName::from_static("pyserve-bypass");
/// The author of an answer that no replica made, for example `ingress`. Clients see it.
pub const ANSWERED_BY: HeaderName = HeaderName::from_static("pyserve-answered-by");
/// [`ANSWERED_BY`] of a plain HTTP answer that the native half of a replica made.
pub const ANSWERED_BY_REPLICA: HeaderValue = HeaderValue::from_static("replica");
/// Request metadata `1`: the caller is a handle, and its messages are framed. Trusted connections
/// only.
pub const FRAMING: HeaderName = HeaderName::from_static("pyserve-framing");
/// Request metadata: the last call for now, so a batch need not wait for more. Anybody may send it.
pub const BATCH_END: HeaderName = HeaderName::from_static("pyserve-batch-end");
/// Request metadata: what the call costs, a decimal number in the unit of its deployment. Anybody may
/// send it.
pub const COST: HeaderName = HeaderName::from_static("pyserve-cost");

/// Request metadata: the cache entries that the call would like to find, see
/// [`crate::cache_keys`]. Anybody may send it.
pub const CACHE_KEYS: HeaderName = HeaderName::from_static("pyserve-cache-keys");

/// Request header `1`, beside [`HTTP`]: the router wants to be told when work on the request begins,
/// since until then it may send it to another replica. Trusted connections only.
pub const TELL_START: HeaderName = HeaderName::from_static("pyserve-tell-start");

/// Request header: `<version> <scheme> <client> <root path>`, of a plain HTTP request that an ingress
/// forwards; `-` for an unknown client, the root path may be empty. Trusted connections only.
pub const HTTP: HeaderName = HeaderName::from_static("pyserve-http");
/// Request header `websocket`, beside [`HTTP`]: both bodies are the frames of RFC 6455.
pub const UPGRADE: HeaderName = HeaderName::from_static("pyserve-upgrade");
/// Trailer of an answer to such a request that the application has aborted: a reset would overtake
/// data written before it. Trusted connections only.
pub const BROKEN: HeaderName = HeaderName::from_static("pyserve-broken");
/// Request header, beside [`HTTP`]: the `grpc-timeout` that the client itself sent, while the
/// deadline takes its place inside the mesh. The replica restores it under its own name.
pub const CLIENT_TIMEOUT: HeaderName = HeaderName::from_static("pyserve-client-timeout");
/// The value of [`UPGRADE`], the only one.
pub const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Why a client got an error, where the body has a text of Ray Serve's.
pub const ERROR: HeaderName = HeaderName::from_static("x-pyserve-error");

/// Request metadata `1`: the answer contains, under the same name, the router's view and choice.
pub const EXPLAIN: HeaderName = HeaderName::from_static("x-pyserve-explain");

/// Request header `1` or `0`: whether JSON with fields that its message does not have is refused.
pub const REFUSE_UNKNOWN_FIELDS: HeaderName =
    HeaderName::from_static("x-pyserve-refuse-unknown-fields");

/// Whether a header is meant for the two ends of a call, so that routers pass it on unchanged.
pub fn passes(name: &HeaderName) -> bool {
    !name.as_str().starts_with(PREFIX) || *name == BATCH_END || *name == COST || *name == CACHE_KEYS
}

/// The cost that a request states; `None` if it states none.
///
/// # Errors
/// A sentence for its client about a value that is not an amount.
pub fn cost(headers: &HeaderMap) -> Result<Option<Cost>, String> {
    let Some(value) = headers.get(COST) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    Cost::parse(&text).map(Some).ok_or_else(|| {
        format!(
            "{COST} is {text:?}: give what the call costs as a decimal number from 0 to {}",
            Cost::AMOUNT_MAX
        )
    })
}

/// Metadata with the model that a call is for.
pub const MODEL_ID: HeaderName = HeaderName::from_static("multiplexed_model_id");

/// Identifies a request in our logs and in its client's.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Our id of a request whose answer has another [`REQUEST_ID`], set by the application.
pub const OUR_REQUEST_ID: HeaderName = HeaderName::from_static("x-pyserve-request-id");

/// Metadata of calls that belong together.
pub const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// The spellings that clients may use for [`MODEL_ID`], with `-` or `_`.
const MODEL_ID_SPELLINGS: [&str; 2] = ["multiplexed_model_id", "serve_multiplexed_model_id"];

/// The model that a request is for, `None` when it names none or an empty one.
pub fn model_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let is_spelling = |name: &HeaderName| {
        let bytes = || name.as_str().bytes().map(|byte| if byte == b'-' { b'_' } else { byte });
        MODEL_ID_SPELLINGS.iter().any(|spelling| bytes().eq(spelling.bytes()))
    };
    // Most names have another length, which costs one comparison.
    let is_as_long =
        |name: &HeaderName| MODEL_ID_SPELLINGS.iter().any(|s| s.len() == name.as_str().len());
    let mut names = headers.keys();
    let name = names.find(|name| is_as_long(name) && is_spelling(name))?;
    // The header that the mesh itself sends takes precedence.
    let found = headers.get(MODEL_ID).or_else(|| headers.get(name));
    found.filter(|value| !value.is_empty())
}

/// Whether both bodies of a plain HTTP request are a WebSocket's frames.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| *value == WEBSOCKET)
}

/// The session of a request, empty when it names none.
pub fn session_id(headers: &HeaderMap) -> &str {
    let found = spelled(headers, &SESSION_ID);
    found.and_then(|session| std::str::from_utf8(session.as_bytes()).ok()).unwrap_or_default()
}

/// The header called `name` (with `-`), in any spelling: `_` counts as `-`. Among several, the one
/// spelled as `name`.
pub fn spelled<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let wanted = name.as_str().as_bytes();
    // Most names have another length, which costs one comparison.
    let is_it = |other: &HeaderName| {
        let other = other.as_str().as_bytes();
        other.len() == wanted.len()
            && other.iter().zip(wanted).all(|(a, b)| a == b || (*a == b'_' && *b == b'-'))
    };
    let (other, value) = headers.iter().find(|(other, _)| is_it(other))?;
    if other == name { Some(value) } else { headers.get(name).or(Some(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_number_or_a_mistake() {
        let mut headers = HeaderMap::new();
        assert_eq!(Ok(None), cost(&headers));
        headers.insert(COST, HeaderValue::from_static("12.5"));
        assert_eq!(Ok(Cost::new(12.5)), cost(&headers));
        headers.insert(COST, HeaderValue::from_static("many"));
        let error = cost(&headers).expect_err("it is no number");
        assert_eq!(
            "pyserve-cost is \"many\": give what the call costs as a decimal number from 0 to \
             1000000000000",
            error
        );
    }

    #[test]
    fn a_model_id_is_found_in_each_spelling() {
        for name in [
            "multiplexed_model_id",
            "multiplexed-model-id",
            "serve_multiplexed_model_id",
            "serve-multiplexed-model_id",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("te", HeaderValue::from_static("trailers"));
            headers.insert(name, HeaderValue::from_static("m1"));
            assert_eq!(Some("m1"), model_id(&headers).map(|id| id.to_str().unwrap()), "{name}");
        }
    }

    #[test]
    fn a_header_is_found_in_each_spelling() {
        let name = HeaderName::from_static("x-request-id");
        for (spelling, is_it) in [
            ("x-request-id", true),
            ("X_Request_Id", true),
            ("x-request_id", true),
            ("x.request.id", false),
            ("x-request-ix", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("accept", HeaderValue::from_static("*/*"));
            let other: HeaderName = spelling.parse().unwrap();
            headers.insert(other, HeaderValue::from_static("a"));
            assert_eq!(is_it, spelled(&headers, &name).is_some(), "{spelling}");
        }
    }

    #[test]
    fn of_two_spellings_the_meshs_own_counts() {
        for names in [["x_session_id", "x-session-id"], ["x-session-id", "x_session_id"]] {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.insert(name, HeaderValue::from_static(name));
            }
            assert_eq!("x-session-id", session_id(&headers));
        }
        for names in
            [["multiplexed-model-id", "multiplexed_model_id"], ["multiplexed_model_id", "te"]]
        {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.insert(name, HeaderValue::from_static(name));
            }
            assert_eq!(
                Some("multiplexed_model_id"),
                model_id(&headers).map(|id| id.to_str().unwrap())
            );
        }
    }

    #[test]
    fn other_names_and_empty_values_are_no_model_id() {
        for (name, value) in [("multiplexed_model_ix", "m1"), ("multiplexed_model_id", "")] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(None, model_id(&headers), "{name}");
        }
    }
}
