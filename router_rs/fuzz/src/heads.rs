//! Heads of plain HTTP requests, and headers of proxies.

use http::{HeaderName, HeaderValue, Request, Version};

use crate::input::Input;

/// A line `<method> <target>`, one with a prefix, then headers. A first byte of `2` makes it HTTP/2.
pub fn heads(data: &[u8]) {
    let mut input = Input::new(data);
    let version = match input.byte() {
        b'0' => Version::HTTP_10,
        b'2' => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    let (method, target) = input.text().split_once(' ').unwrap_or_default();
    let prefix = input.text();
    // As configurations are checked: a path of visible characters, or nothing.
    let is_prefix = prefix.bytes().all(|byte| byte.is_ascii_graphic())
        && (prefix.is_empty() || prefix.starts_with('/') && !prefix.ends_with('/'));
    let request = Request::builder().version(version).method(method).uri(target).body(());
    let (true, Ok(request)) = (is_prefix, request) else { return };
    let mut parts = request.into_parts().0;
    while !input.is_empty() {
        let line = input.line();
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            parts.headers.append(name, value);
        }
    }
    router_net::fuzzing::http_head(&parts, prefix);
}

/// The header of a proxy, and what follows.
pub fn proxies(data: &[u8]) {
    router_net::fuzzing::proxy_header(data);
}
