//! The token usage of a request, in OpenAI's format.

use bytes::BytesMut;

use crate::messages::Usage;
use crate::write::{put, put_integer};

pub(crate) fn put_usage(out: &mut BytesMut, usage: &Usage) {
    let total = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
    put(out, r#"{"prompt_tokens":"#);
    put_integer(out, usage.prompt_tokens.into());
    put(out, r#","completion_tokens":"#);
    put_integer(out, usage.completion_tokens.into());
    put(out, r#","total_tokens":"#);
    put_integer(out, total);
    put(out, r#","prompt_tokens_details":{"cached_tokens":"#);
    put_integer(out, usage.cached_tokens.into());
    put(out, r#"},"completion_tokens_details":{"reasoning_tokens":"#);
    put_integer(out, usage.reasoning_tokens.into());
    put(out, "}}");
}

/// For work that generates no tokens.
pub(crate) fn put_prompt_usage(out: &mut BytesMut, usage: Option<&Usage>) {
    let tokens = usage.map_or(0, |usage| usage.prompt_tokens);
    put(out, r#"{"prompt_tokens":"#);
    put_integer(out, tokens.into());
    put(out, r#","total_tokens":"#);
    put_integer(out, tokens.into());
    put(out, "}");
}
