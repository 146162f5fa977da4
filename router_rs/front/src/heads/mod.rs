//! Heads of requests: how they are read without ambiguity, and how they are rewritten.

pub(crate) mod date;
pub(crate) mod forwarded;
pub(crate) mod head_lines;
pub(crate) mod host;
pub(crate) mod plain_head;
pub(crate) mod proxies;
pub(crate) mod proxy_header;
pub(crate) mod request_id;
pub(crate) mod websocket;
