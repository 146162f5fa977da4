//! Which peers are trusted to name the client: proxies, identified by their networks.
//!
//! Many people share a proxy's address, so limits per address do not apply to it. A connection from
//! anywhere else can claim about its client only what any client may claim about itself.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The proxies of a front.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    pub networks: Vec<Network>,
    /// Their connections begin with a PROXY protocol header, version 2.
    pub has_headers: bool,
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNetwork(String);

// === impl Proxies ===

impl Proxies {
    /// Whether the address is a trusted proxy's.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }
}

// === impl Network ===

impl Network {
    fn has(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            _ => false,
        }
    }

    fn bits(address: IpAddr) -> u32 {
        if address.is_ipv4() { u32::BITS } else { Ipv6Addr::BITS }
    }
}

impl FromStr for Network {
    type Err = NoNetwork;

    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address; no bit may be set after the prefix.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let refuse = || NoNetwork(text.to_owned());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let bits = Self::bits(address);
        let is_number = |prefix: &&str| prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix_bits = match prefix {
            None => bits,
            Some(prefix) => {
                Some(prefix).filter(is_number).and_then(|p| p.parse().ok()).ok_or_else(refuse)?
            }
        };
        let behind = match address {
            IpAddr::V4(address) => address.to_bits().checked_shl(prefix_bits).unwrap_or(0) != 0,
            IpAddr::V6(address) => address.to_bits().checked_shl(prefix_bits).unwrap_or(0) != 0,
        };
        // An IPv4 connection has an IPv4 address here, whatever its socket reports.
        if prefix_bits > bits || behind || address != address.to_canonical() {
            return Err(refuse());
        }
        let prefix_bits = u8::try_from(prefix_bits).map_err(|_| refuse())?;
        Ok(Self { address, prefix_bits })
    }
}

// === impl NoNetwork ===

impl fmt::Display for NoNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no network; write an address, or one and the bits that all of its addresses \
             begin with, such as 10.0.0.0/8",
            self.0
        )
    }
}

impl std::error::Error for NoNetwork {}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn proxies(networks: &[&str]) -> Proxies {
        let networks = networks.iter().map(|text| text.parse().expect("a network")).collect();
        Proxies { networks, has_headers: false }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.0.2.4/30", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("192.0.2.1", "::ffff:192.0.2.1", "::192.0.2.1"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "::1", "127.0.0.1"),
        ] {
            let proxies = proxies(&[network]);
            assert!(proxies.trusts(inside.parse().unwrap()), "{inside} of {network}");
            assert!(!proxies.trusts(outside.parse().unwrap()), "{outside} of {network}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_and_named() {
        for text in [
            "",
            "10",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/256",
            "10.0.0.1/8",
            "fd00::1/8",
            "::/129",
            "10.0.0.0/8/8",
            "proxy",
            "127.0.0.1:80",
            "[::1]",
            "::ffff:10.0.0.0/104",
            " 10.0.0.0/8",
        ] {
            let refused = text.parse::<Network>().expect_err(text);
            assert!(refused.to_string().contains(&format!("{text:?}")), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[0-9a-f:./ ]{0,45}") {
            let _read = text.parse::<Network>();
        }
    }
}
