//! What a request's head says about the client: `Forwarded` (RFC 7239), or the older
//! `X-Forwarded-For` and `X-Forwarded-Proto`.
//!
//! Each proxy appends the address that it got the request from, so the last one that is not a
//! trusted proxy is the client. Anything before it was sent by the client itself. A proxy writes
//! one of the two kinds and passes the other on, so if both are present they must agree; otherwise
//! neither counts.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use crate::heads::proxies::Proxies;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client's address, and whether it uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Port 0: unknown.
    pub peer: SocketAddr,
    pub is_tls: bool,
}

/// One hop: the address from which a proxy got the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    /// `None`: a private name of the proxy's, or missing.
    from: Option<SocketAddr>,
    is_tls: Option<bool>,
}

/// Finds the client. `proxy`: the peer of the connection, which is trusted, and its protocol.
pub(crate) fn named_client(headers: &HeaderMap, proxy: Client, proxies: &Proxies) -> Client {
    let old = headers.contains_key(X_FORWARDED_FOR).then(|| old_hop(headers, proxies));
    let new = headers.contains_key(FORWARDED).then(|| client_hop(new_hops(headers), proxies));
    let protocol = |found: Client| {
        let is_tls = elements(headers, X_FORWARDED_PROTO).next().and_then(is_tls);
        Client { is_tls: is_tls.unwrap_or(found.is_tls), ..found }
    };
    match (old, new) {
        (Some(old), Some(new)) if old.from.map(ip) != new.from.map(ip) => proxy,
        (Some(hop), None) => protocol(hop.over(proxy)),
        (_, Some(hop)) => hop.over(proxy),
        (None, None) => protocol(proxy),
    }
}

fn ip(address: SocketAddr) -> IpAddr {
    address.ip()
}

fn old_hop(headers: &HeaderMap, proxies: &Proxies) -> Hop {
    let hops = elements(headers, X_FORWARDED_FOR);
    client_hop(hops.map(|text| Hop { from: address(text), is_tls: None }), proxies)
}

fn new_hops(headers: &HeaderMap) -> impl Iterator<Item = Hop> {
    elements(headers, FORWARDED).map(Hop::parse)
}

/// Returns the first hop that is not a trusted proxy. `hops` begins with the last one. A hop
/// without an address ends the search, and the hop before it is returned.
fn client_hop(hops: impl Iterator<Item = Hop>, proxies: &Proxies) -> Hop {
    let mut found = Hop { from: None, is_tls: None };
    for hop in hops {
        let Some(from) = hop.from else { break };
        found = hop;
        if !proxies.trusts(from.ip()) {
            break;
        }
    }
    found
}

/// The parts of a list, the last one first.
fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter().rev();
    values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','))
}

fn is_tls(protocol: &[u8]) -> Option<bool> {
    let protocol = protocol.trim_ascii();
    let is =
        |names: [&str; 2]| names.iter().any(|name| protocol.eq_ignore_ascii_case(name.as_bytes()));
    // WebSockets count as requests here.
    if is(["https", "wss"]) { Some(true) } else { is(["http", "ws"]).then_some(false) }
}

/// Parses an address, with or without a port; with a port, IPv6 is in brackets.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, 0),
        Err(_) => text.parse().ok()?,
    };
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

// === impl Hop ===

impl Hop {
    /// Parses one element of `Forwarded`. A quoted comma or semicolon, which no address contains,
    /// makes the element useless.
    fn parse(element: &[u8]) -> Self {
        let mut hop = Self { from: None, is_tls: None };
        for pair in element.split(|byte| *byte == b';') {
            let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
            let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            let value = quoted.unwrap_or(value);
            if name.eq_ignore_ascii_case(b"for") {
                hop.from = address(value);
            } else if name.eq_ignore_ascii_case(b"proto") {
                hop.is_tls = is_tls(value);
            }
        }
        hop
    }

    fn over(self, proxy: Client) -> Client {
        Client {
            peer: self.from.unwrap_or(proxy.peer),
            is_tls: self.is_tls.unwrap_or(proxy.is_tls),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::heads::proxies::tests::proxies;

    const PROXY: &str = "10.0.0.1:4000";

    fn asked(headers: &[(&'static str, &str)]) -> (String, bool) {
        let pairs = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        let proxy = Client { peer: PROXY.parse().expect("an address"), is_tls: false };
        let client = named_client(&map, proxy, &proxies(&["10.0.0.0/8", "fd00::/8"]));
        (client.peer.to_string(), client.is_tls)
    }

    #[test]
    fn the_last_that_is_no_proxy_is_the_client() {
        for (value, expected) in [
            ("192.0.2.1", "192.0.2.1:0"),
            ("192.0.2.1:52100", "192.0.2.1:52100"),
            ("203.0.113.9, 192.0.2.1", "192.0.2.1:0"),
            ("203.0.113.9, 192.0.2.1, 10.0.0.7", "192.0.2.1:0"),
            ("10.0.0.9,10.0.0.8", "10.0.0.9:0"),
            ("2001:db8::1", "[2001:db8::1]:0"),
            ("[2001:db8::1]", "[2001:db8::1]:0"),
            ("[2001:db8::1]:52100, fd00::3", "[2001:db8::1]:52100"),
            ("::ffff:192.0.2.1", "192.0.2.1:0"),
            ("192.0.2.1, unknown", PROXY),
            ("192.0.2.1, unknown, 10.0.0.7", "10.0.0.7:0"),
            ("", PROXY),
            ("192.0.2.1, ", PROXY),
            ("192.0.2.1 192.0.2.2", PROXY),
        ] {
            assert_eq!(expected, asked(&[("x-forwarded-for", value)]).0, "{value}");
        }
        let twice =
            [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "192.0.2.1, 10.0.0.2")];
        assert_eq!("192.0.2.1:0", asked(&twice).0);
    }

    #[test]
    fn forwarded_says_client_and_protocol_of_the_same_hop() {
        for (value, expected) in [
            ("for=192.0.2.1;proto=https", ("192.0.2.1:0", true)),
            ("For=\"192.0.2.1:52100\" ; By=10.0.0.1; Proto=HTTPS", ("192.0.2.1:52100", true)),
            ("for=\"[2001:db8::1]:52100\"", ("[2001:db8::1]:52100", false)),
            ("for=192.0.2.1;proto=https, for=10.0.0.7;proto=http", ("192.0.2.1:0", true)),
            ("for=203.0.113.9;proto=https, for=192.0.2.1", ("192.0.2.1:0", false)),
            ("for=_hidden;proto=https", (PROXY, false)),
            ("for=\"192.0.2.1,203.0.113.9\"", (PROXY, false)),
            ("proto=https", (PROXY, false)),
        ] {
            let (peer, is_tls) = asked(&[("forwarded", value)]);
            assert_eq!(expected, (&*peer, is_tls), "{value}");
        }
    }

    #[test]
    fn the_last_word_on_the_protocol_counts() {
        for (value, expected) in [
            ("https", true),
            ("HTTPS", true),
            ("wss", true),
            ("http", false),
            ("ftp", false),
            ("http, https", true),
        ] {
            let headers = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", value)];
            assert_eq!(("192.0.2.1:0".to_owned(), expected), asked(&headers), "{value}");
            assert_eq!((PROXY.to_owned(), expected), asked(&headers[1..]), "{value}");
        }
    }

    #[test]
    fn two_headers_that_disagree_are_believed_neither() {
        let forwarded = ("forwarded", "for=\"192.0.2.1:7\";proto=https");
        let agreeing = [forwarded, ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(("192.0.2.1:7".to_owned(), true), asked(&agreeing));
        let differing =
            [forwarded, ("x-forwarded-for", "192.0.2.2"), ("x-forwarded-proto", "https")];
        assert_eq!((PROXY.to_owned(), false), asked(&differing));
    }

    proptest! {
        /// The client's own entries precede those of the proxy.
        #[test]
        fn nobody_passes_for_another(claim in "[ -~]{0,60}") {
            let old = format!("{claim}, 192.0.2.1, 10.0.0.2");
            prop_assert_eq!("192.0.2.1:0", asked(&[("x-forwarded-for", &old)]).0);
            let new = format!("{claim}, for=192.0.2.1, for=10.0.0.2");
            prop_assert_eq!("192.0.2.1:0", asked(&[("forwarded", &new)]).0);
            let both = [("forwarded", &*claim), ("x-forwarded-for", "192.0.2.1")];
            prop_assert!(["192.0.2.1:0", PROXY].contains(&&*asked(&both).0));
        }
    }
}
