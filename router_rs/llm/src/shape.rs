//! The fields that all objects of one answer share.

use bytes::BytesMut;

use crate::write::{put, put_integer, put_text};

/// An answer's names, and how much of the engine's a client wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub id: String,
    /// As the client has written it.
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Alternatives for each token; none: no log probabilities either.
    pub top_logprobs: Option<usize>,
}

// === impl Shape ===

impl Shape {
    /// The fields that all objects of one answer have, without the closing brace.
    pub(crate) fn put(&self, out: &mut BytesMut, object: &str) {
        put(out, r#"{"id":"#);
        put_text(out, &self.id);
        put(out, r#","object":"#);
        put_text(out, object);
        put(out, r#","created":"#);
        put_integer(out, self.created);
        put(out, r#","model":"#);
        put_text(out, &self.model);
    }
}
