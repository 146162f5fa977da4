//! Refuses calls without the token that they need (`call_key`).

use std::rc::Rc;

use http::{HeaderMap, request};
use router_protocol::grpc::{Code, Status};

use super::call_key::CallKey;
use super::connection_state::ConnectionState;
use super::refusal::refuse;
use super::sink::Respond;

/// The key that a call needs but does not have.
pub(super) fn missing_key<'a>(
    connection: &'a ConnectionState,
    head: &request::Parts,
) -> Option<&'a CallKey> {
    let key = connection.server.call_key.as_ref()?;
    // A replica also has ports for strangers, which are open by design.
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

/// Answers a call without the token, and reports it to the user if wanted.
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
        // A call that has ended: its user cannot answer it.
        let served_call = connection.served_call(head, None, index, false);
        served_call.link.end();
        connection.server.sink.begin(served_call, None);
    }
}
