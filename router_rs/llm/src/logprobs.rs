//! Log probabilities in the two formats of OpenAI's API.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::messages::TokenLogprob;
use crate::write::{put, put_integer, put_list, put_logprob, put_text};

/// The shape of chat: an object for each token, with the `top` likeliest in its place.
pub(crate) fn put_chat(out: &mut BytesMut, logprobs: &[TokenLogprob], top: usize) {
    put(out, r#"{"content":"#);
    put_list(out, logprobs, |out, token| {
        put_token(out, token);
        put(out, r#","top_logprobs":"#);
        put_list(out, token.top.iter().take(top), |out, token| {
            put_token(out, token);
            put(out, "}");
        });
        put(out, "}");
    });
    put(out, r#","refusal":null}"#);
}

/// Without the closing brace.
fn put_token(out: &mut BytesMut, token: &TokenLogprob) {
    put(out, r#"{"token":"#);
    put_text(out, &text(token));
    put(out, r#","logprob":"#);
    put_logprob(out, token.logprob);
    put(out, r#","bytes":"#);
    put_list(out, bytes(token), |out, byte| put_integer(out, u64::from(*byte)));
}

/// The shape of completions: four lists. `offset` is where the first token's text begins, in characters.
pub(crate) fn put_completions(
    out: &mut BytesMut,
    logprobs: &[TokenLogprob],
    top: usize,
    mut offset: usize,
) {
    put(out, r#"{"text_offset":"#);
    put_list(out, logprobs, |out, token| {
        put_integer(out, offset as u64);
        offset += characters(token);
    });
    put(out, r#","token_logprobs":"#);
    put_list(out, logprobs, |out, token| put_logprob(out, token.logprob));
    put(out, r#","tokens":"#);
    put_list(out, logprobs, |out, token| put_text(out, &text(token)));
    put(out, r#","top_logprobs":"#);
    put_list(out, logprobs, |out, token| put_map(out, token, top));
    put(out, "}");
}

/// The likeliest, and the token itself, which may not be among them.
fn put_map(out: &mut BytesMut, token: &TokenLogprob, top: usize) {
    let mut names: Vec<Cow<'_, str>> = Vec::with_capacity(top + 1);
    put(out, "{");
    for token in token.top.iter().take(top).chain([token]) {
        let name = text(token);
        // Two tokens may have one text.
        if names.contains(&name) {
            continue;
        }
        if !names.is_empty() {
            put(out, ",");
        }
        put_text(out, &name);
        put(out, ":");
        put_logprob(out, token.logprob);
        names.push(name);
    }
    put(out, "}");
}

/// How far the text goes on with these tokens, in characters.
pub(crate) fn characters(token: &TokenLogprob) -> usize {
    // Bytes that continue a character are not counted, so that each character counts once.
    bytes(token).iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

pub(crate) fn bytes(token: &TokenLogprob) -> &[u8] {
    if token.token_bytes.is_empty() { token.token.as_bytes() } else { &token.token_bytes }
}

pub(crate) fn text(token: &TokenLogprob) -> Cow<'_, str> {
    if token.token.is_empty() {
        String::from_utf8_lossy(&token.token_bytes)
    } else {
        Cow::Borrowed(&token.token)
    }
}
