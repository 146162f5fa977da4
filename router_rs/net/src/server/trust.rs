//! The server's half of the mesh handshake over HTTP/2 (design decisions 12 and 13).

use h2::server::SendResponse;
use http::{HeaderValue, Response, StatusCode};
use router_protocol::grpc::Framed;
use router_protocol::mesh::proof;
use router_protocol::names;

use super::connection_state::ConnectionState;

pub(super) fn is_handshake(head: &http::request::Parts) -> bool {
    matches!(head.uri.path(), names::HELLO_PATH | names::PROVE_PATH)
}

/// Answers Hello with the replica's id, a fresh nonce, and a proof for the router's nonce that the
/// server is a member. Answers Prove with 200 or 403. A server that is not a replica answers 404.
pub(super) fn answer(
    connection: &ConnectionState,
    head: &http::request::Parts,
    respond: &mut SendResponse<Framed>,
) {
    let config = &connection.server.config;
    let mut response = Response::new(());
    if config.replica_id.is_empty() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if head.uri.path() == names::HELLO_PATH {
        hello(connection, head.headers.get(names::ROUTER_NONCE), &mut response);
    } else {
        *response.status_mut() = prove(connection, head.headers.get(names::PROOF));
    }
    // An error means that the client is gone.
    let _ = respond.send_response(response, true);
}

fn hello(connection: &ConnectionState, asked: Option<&HeaderValue>, response: &mut Response<()>) {
    let Some(nonce) = proof::nonce() else {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return;
    };
    let config = &connection.server.config;
    let headers = response.headers_mut();
    let printable = "invariant: ids and hex are printable ASCII";
    if let Some(proof) = asked
        .and_then(|asked| proof::from_hex(asked.to_str().ok()?))
        .and_then(|asked| proof::replica_proof(&config.token, &asked, &config.replica_id))
    {
        headers.insert(names::REPLICA_PROOF, proof.parse().expect(printable));
    }
    let id = HeaderValue::from_str(&config.replica_id).expect(printable);
    headers.insert(names::REPLICA_ID, id);
    headers.insert(names::NONCE, proof::to_hex(&nonce).parse().expect(printable));
    connection.nonce.replace(nonce);
}

/// A nonce is used once, whether the proof is right or wrong.
fn prove(connection: &ConnectionState, claimed: Option<&HeaderValue>) -> StatusCode {
    let config = &connection.server.config;
    let nonce = connection.nonce.take();
    let is_proven = !nonce.is_empty()
        && claimed.and_then(|value| value.to_str().ok()).is_some_and(|claimed| {
            proof::verify(&config.token, &nonce, &config.replica_id, claimed)
        });
    if !is_proven {
        return StatusCode::FORBIDDEN;
    }
    connection.info.trust();
    StatusCode::OK
}
