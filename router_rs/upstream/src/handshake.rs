//! The client's half of the mesh handshake over HTTP/2: identifies the peer, and proves that we
//! have the token.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, StatusCode};
use router_protocol::mesh::proof::{from_hex, nonce, proof, to_hex, verify_replica};
use router_protocol::names::{
    HELLO_PATH, NONCE, PROOF, PROVE_PATH, REPLICA_ID, REPLICA_PROOF, ROUTER_NONCE,
};

use super::connection::{Connection, Sends, post};
use super::target::{DialError, ReplicaTarget};

/// Asks the peer for its identity and a proof of the token, then proves the token too.
///
/// When a replica dies, any other process can take its port, even one of another user of the
/// machine; without the handshake, that one would get calls. A peer that refuses the router's proof
/// stays usable as a stranger: its load trailers and refusal marks are not honoured, and it honours
/// none of our metadata.
///
/// # Errors
/// The peer is another replica, not a replica at all, or does not have the token.
pub(crate) async fn introduce(
    connection: &Rc<Connection>,
    replica: &ReplicaTarget,
) -> Result<(), DialError> {
    let ReplicaTarget { token, replica_id, proves_itself, .. } = replica;
    let asked = nonce().ok_or(DialError::NoNonce)?;
    let (status, hello) = ask(connection, HELLO_PATH, (ROUTER_NONCE, to_hex(&asked))).await?;
    let found = text(&hello, &REPLICA_ID);
    if status != StatusCode::OK || found != Some(replica_id.as_str()) {
        return Err(DialError::WrongReplica {
            expected: replica_id.clone(),
            found: found.unwrap_or("no replica").to_owned(),
        });
    }
    let nonce = text(&hello, &NONCE).and_then(from_hex).ok_or(DialError::NoNonce)?;
    if token.is_empty() {
        return Ok(());
    }
    let claimed = text(&hello, &REPLICA_PROOF).unwrap_or_default();
    if *proves_itself && !verify_replica(token, &asked, replica_id, claimed) {
        return Err(DialError::Unproven { replica_id: replica_id.clone() });
    }
    let claim = proof(token, &nonce, replica_id);
    let (status, _) = ask(connection, PROVE_PATH, (PROOF, claim)).await?;
    if status == StatusCode::OK {
        connection.trust();
    }
    Ok(())
}

async fn ask(
    connection: &Rc<Connection>,
    path: &'static str,
    said: (HeaderName, String),
) -> Result<(StatusCode, HeaderMap), DialError> {
    let request = post(path).header(said.0, said.1);
    let request = request.body(()).expect("invariant: constant path and hex are valid");
    let (head, ()) = request.into_parts();
    let started = connection.start(&head, Sends::Nothing).map_err(DialError::Handshake)?;
    let response =
        started.response.await.map_err(|error| DialError::Handshake(error.to_string()))?;
    let (head, _empty_body) = response.into_parts();
    Ok((head.status, head.headers))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
