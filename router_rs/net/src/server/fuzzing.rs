//! Heads of plain HTTP requests: from a client's to what a handler sees.

use http::request;
use router_front::fuzzing::forwarded;
use router_protocol::names;

use super::http_head::HttpHead;

/// A client's request on its way to a handler below `prefix`.
pub fn http_head(parts: &request::Parts, prefix: &str) {
    let Some(forwarded) = forwarded(parts, prefix) else { return };
    let head = HttpHead::of(&forwarded).expect("every forwarded head is marked");
    assert_eq!(prefix.trim_end_matches('/'), head.root_path(), "the prefix arrives");
    assert_eq!("127.0.0.1:52100".parse().ok(), head.client(), "the client arrives");
    assert_eq!(parts.method.as_str(), head.method());
    assert!(!head.is_websocket(), "only the ingress says so");
    head.for_each_header(|name, _| {
        assert!(!name.starts_with(names::PREFIX), "{name} is of the mesh");
    });
}
