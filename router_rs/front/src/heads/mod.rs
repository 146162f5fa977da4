//! What heads of requests say, how they are read without doubt, and how they are made anew.

pub(crate) mod date;
pub(crate) mod forwarded;
pub(crate) mod head_lines;
pub(crate) mod host;
pub(crate) mod plain_head;
pub(crate) mod proxies;
pub(crate) mod proxy_header;
pub(crate) mod request_id;
pub(crate) mod websocket;
