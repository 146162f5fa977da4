//! Server-sent events that carry JSON.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

/// Writes an event whose data is one line of JSON.
pub(crate) fn put_event(body: &mut BytesMut, name: &str, data: &impl Serialize) {
    put_event_name(body, name);
    put_json(body, data);
    body.extend_from_slice(b"\n\n");
}

pub(crate) fn put_event_name(body: &mut BytesMut, name: &str) {
    body.extend_from_slice(b"event: ");
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\ndata: ");
}

pub(crate) fn put_json(body: &mut BytesMut, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(body.writer(), value)
        .expect("invariant: what is written has a JSON form, and buffers do not fail");
}
