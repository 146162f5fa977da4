//! Turns a request's head into the one that replicas get.

use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::request;

use crate::heads::forwarded::{Client, named_client};
use crate::heads::host::check_host;
use crate::heads::plain_head::{
    Origin, Said, client_timeout, is_detached, remove_hop_by_hop, rewrite,
};
use crate::heads::proxies::Proxies;
use crate::heads::proxy_header;
use crate::heads::request_id;
use crate::heads::websocket;

/// Rewrites a head as for a replica; `None`: it is refused.
pub fn forwarded(parts: &request::Parts, prefix: &str) -> Option<request::Parts> {
    let mut forwarded = parts.clone();
    let _timeout = client_timeout(&parts.headers);
    let _goes_on = is_detached(&parts.headers);
    assert!(!request_id::of(&parts.headers).is_empty(), "every request has a name");
    if websocket::is_upgrade(parts) {
        let _refused = websocket::check(parts);
    }
    let proxy = Client { peer: ([127, 0, 0, 1], 52100).into(), is_tls: false };
    let said = Said::default();
    check_host(parts).ok()?;
    let origin = Origin { client: asked(parts, proxy), root_path: "", said: &said };
    rewrite(&mut forwarded, origin, prefix).ok()?;
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        assert!(!forwarded.headers.contains_key(&name), "{name} is about one hop");
    }
    assert!(forwarded.headers.get_all(HOST).iter().count() <= 1, "one host");
    assert!(forwarded.uri.authority().is_some(), "HTTP/2 needs an authority");
    assert_eq!(
        parts.uri.path_and_query().map_or("/", |path| path.as_str()),
        forwarded.uri.path_and_query().map_or("", |path| path.as_str()),
        "the target stays as it was"
    );
    let mut again = forwarded.headers.clone();
    remove_hop_by_hop(&mut again);
    assert_eq!(forwarded.headers, again, "nothing is left to remove");
    Some(forwarded)
}

/// Identifies the client, with all peers or none as proxies.
fn asked(parts: &request::Parts, proxy: Client) -> Client {
    let everybody = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
    let all = Proxies { networks: everybody.to_vec(), has_headers: false };
    let _first = named_client(&parts.headers, proxy, &all);
    named_client(&parts.headers, proxy, &Proxies::default())
}

/// Parses the header of a proxy. The bytes that follow it must not change the result.
pub fn proxy_header(data: &[u8]) {
    let found = proxy_header::parse(data);
    let followed = proxy_header::parse(&[data, b"GET / HTTP/1.1\r\n\r\n"].concat());
    assert!(found.is_err() || found == followed, "{found:?}, then {followed:?}");
}
