//! Paths and metadata keys that only the mesh uses.
//!
//! Everything under [`PREFIX`] is stripped at the ingress, both ways, but for the documented
//! [`ANSWERED_BY`].

use http::HeaderName;

/// All metadata of the mesh begins with this.
pub const PREFIX: &str = "pyserve-";

/// First request of a router's handshake; the answer carries [`REPLICA_ID`] and [`NONCE`].
pub const HELLO_PATH: &str = "/pyserve.mesh/Hello";
/// Second request of the handshake; carries [`PROOF`], the answer is 200 or 403.
pub const PROVE_PATH: &str = "/pyserve.mesh/Prove";

/// Who answers the handshake.
pub const REPLICA_ID: HeaderName = HeaderName::from_static("pyserve-replica-id");
/// Fresh random bytes of the server, in hex; one per connection.
pub const NONCE: HeaderName = HeaderName::from_static("pyserve-nonce");
/// What [`super::proof::proof`] returns for the nonce.
pub const PROOF: HeaderName = HeaderName::from_static("pyserve-proof");
/// Trailer `<in_flight>;<limit>` (decimal) of every answer to a trusted connection.
pub const LOAD: HeaderName = HeaderName::from_static("pyserve-load");
/// `1` in the Trailers-Only `RESOURCE_EXHAUSTED` of a gate: the call did not start.
pub const REFUSED: HeaderName = HeaderName::from_static("pyserve-refused");
/// Who made an answer that no replica made, for example `ingress`. Clients see it.
pub const ANSWERED_BY: HeaderName = HeaderName::from_static("pyserve-answered-by");
