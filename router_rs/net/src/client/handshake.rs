//! The client's half of the mesh handshake: who is there, and the proof that we know the token.

use std::rc::Rc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Version, request};

use super::connection::Connection;
use super::dial::DialError;
use crate::grpc::CONTENT_TYPE_GRPC;
use crate::mesh::names::{HELLO_PATH, NONCE, PROOF, PROVE_PATH, RELAY, REPLICA_ID};
use crate::mesh::proof::{from_hex, proof};
use crate::mesh::relay::read_offer;

/// Asks who answers, then proves the token.
///
/// A peer that refuses the proof stays usable as a stranger: its load trailers and refusal marks
/// are not honoured, and it honours none of our metadata.
///
/// # Errors
/// The peer is another replica than `replica_id`, or no replica at all.
pub(crate) async fn introduce(
    connection: &Rc<Connection>,
    token: &[u8],
    replica_id: &str,
) -> Result<(), DialError> {
    let (status, hello) = ask(connection, HELLO_PATH, None).await?;
    let found = text(&hello, &REPLICA_ID);
    if status != StatusCode::OK || found != Some(replica_id) {
        return Err(DialError::WrongReplica {
            expected: replica_id.to_owned(),
            found: found.unwrap_or("no replica").to_owned(),
        });
    }
    let nonce = text(&hello, &NONCE).and_then(from_hex).ok_or(DialError::NoNonce)?;
    if token.is_empty() {
        return Ok(());
    }
    let claim = proof(token, &nonce, replica_id);
    let (status, proven) = ask(connection, PROVE_PATH, Some(&claim)).await?;
    if status == StatusCode::OK {
        connection.trust();
        if let Some(head_bytes_max) = text(&proven, &RELAY).and_then(read_offer) {
            connection.offer_relay(head_bytes_max);
        }
    }
    Ok(())
}

async fn ask(
    connection: &Rc<Connection>,
    path: &'static str,
    claim: Option<&str>,
) -> Result<(StatusCode, HeaderMap), DialError> {
    let mut request = post(path);
    if let Some(claim) = claim {
        request = request.header(PROOF, claim);
    }
    let request = request.body(()).expect("invariant: constant path and hex are valid");
    let started = connection.start(request, true).map_err(DialError::Handshake)?;
    let response =
        started.response.await.map_err(|error| DialError::Handshake(error.to_string()))?;
    let (head, _empty_body) = response.into_parts();
    Ok((head.status, head.headers))
}

/// What is between two processes of the mesh goes to a path alone: there is no host to name.
pub(super) fn post(path: &'static str) -> request::Builder {
    let request = Request::builder().method(Method::POST).uri(path).version(Version::HTTP_11);
    request.header(CONTENT_TYPE, CONTENT_TYPE_GRPC)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
