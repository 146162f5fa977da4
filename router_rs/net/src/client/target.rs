//! The names of gRPC targets (gRPC name resolution), as far as they are supported here.

use std::path::PathBuf;

use router_upstream::target::DialAddress;
use thiserror::Error;

/// gRPC's default port.
const PORT_DEFAULT: &str = "443";

/// A target that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    #[error(
        "target {0:?} has a scheme that is not spoken here, use host:port, dns:, ipv4:, ipv6: or \
         unix:"
    )]
    Scheme(String),
    #[error("target {0:?} names no host, write host:port")]
    Host(String),
    #[error("target {0:?} names no deployment, write application/Deployment")]
    Deployment(String),
    #[error("{0:?} cannot be used as an authority")]
    Authority(String),
}

/// An address and the authority that requests to it carry by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub address: DialAddress,
    pub authority: String,
}

/// Parses a target.
///
/// # Errors
/// It has another scheme, or no host.
pub(super) fn parse(target: &str) -> Result<Parsed, TargetError> {
    if let Some(rest) = target.strip_prefix("unix:") {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        if path.is_empty() {
            return Err(TargetError::Host(target.to_owned()));
        }
        let address = DialAddress::Unix(PathBuf::from(path));
        return Ok(Parsed { address, authority: "localhost".to_owned() });
    }
    let address = match target.split_once(':') {
        Some(("dns", rest)) => match rest.strip_prefix("//") {
            // dns://server/host:port names a DNS server; the system's resolver is used all the
            // same.
            Some(rest) => rest.split_once('/').map_or(rest, |(_server, address)| address),
            None => rest,
        },
        Some(("ipv4" | "ipv6", rest)) => rest,
        Some((_, rest)) if rest.starts_with("//") => {
            return Err(TargetError::Scheme(target.to_owned()));
        }
        Some(("unix-abstract" | "vsock" | "xds", _)) => {
            return Err(TargetError::Scheme(target.to_owned()));
        }
        _ => target,
    };
    let address = with_port(address);
    if address.starts_with(':') {
        return Err(TargetError::Host(target.to_owned()));
    }
    Ok(Parsed { address: DialAddress::Tcp(address.clone()), authority: address })
}

fn with_port(address: &str) -> String {
    let is_bare_v6 = !address.starts_with('[') && address.matches(':').count() > 1;
    let has_port = !is_bare_v6 && !address.ends_with(']') && address.contains(':');
    match (has_port, is_bare_v6) {
        (true, _) => address.to_owned(),
        (false, true) => format!("[{address}]:{PORT_DEFAULT}"),
        (false, false) => format!("{address}:{PORT_DEFAULT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, target: &str) {
        assert_eq!(expected, parse(target).unwrap().address.to_string(), "{target}");
    }

    #[test]
    fn targets_name_an_address() {
        check("localhost:50051", "localhost:50051");
        check("127.0.0.1:1", "ipv4:127.0.0.1:1");
        check("[::1]:1", "ipv6:[::1]:1");
        check("[::1]:443", "ipv6:::1");
        check("[::1]:443", "[::1]");
        check("host:443", "host");
        check("host:9", "dns:///host:9");
        check("host:9", "dns://8.8.8.8/host:9");
        check("host:9", "dns:host:9");
        check("unix:/run/x.sock", "unix:/run/x.sock");
        check("unix:/run/x.sock", "unix:///run/x.sock");
        check("unix:rel.sock", "unix:rel.sock");
    }

    #[test]
    fn other_schemes_and_empty_targets_are_refused() {
        for target in ["xds:///x", "http://host:1", "unix-abstract:x", "vsock:1:2"] {
            assert_eq!(Err(TargetError::Scheme(target.to_owned())), parse(target));
        }
        for target in ["", ":1", "unix:", "dns:///"] {
            assert_eq!(Err(TargetError::Host(target.to_owned())), parse(target));
        }
    }
}
