//! The header with which a proxy names the client of the connection that it forwards: the PROXY
//! protocol, version 2 (haproxy.org, doc/proxy-protocol.txt).
//!
//! It precedes everything else, TLS included, and is expected from trusted proxies only. The front
//! does not guess: such a connection either has a header or is closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of a header; no protocol that may follow begins with them.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The signature, version and command, family and transport, and the length of the rest.
const FIXED_BYTES: usize = 16;

/// The limit for the rest, which is read and discarded: addresses, and further information such as
/// the name in the client's certificate. Arbitrary: the headers of proxies are some hundred bytes.
const REST_BYTES_MAX: usize = 4096;

/// The bytes are not exactly one header of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The fixed part of the header, which describes the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fixed {
    family: Family,
    rest_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// The proxy speaks for itself, or does not know its client's address.
    Unknown,
    Inet,
    Inet6,
}

/// Reads a header and no further. `None`: the connection is the proxy's own, or its client is
/// unknown.
///
/// # Errors
/// It is malformed, or the connection ends in it.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<SocketAddr>, Malformed> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await.map_err(|_| Malformed)?;
    let fixed = Fixed::parse(&fixed)?;
    let mut rest = [0; REST_BYTES_MAX];
    let rest = rest.get_mut(..fixed.rest_bytes).ok_or(Malformed)?;
    stream.read_exact(rest).await.map_err(|_| Malformed)?;
    fixed.family.source(rest)
}

/// Like `read`, from a slice.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
    let (fixed, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    let fixed = Fixed::parse(fixed)?;
    fixed.family.source(rest.get(..fixed.rest_bytes).ok_or(Malformed)?)
}

// === impl Fixed ===

impl Fixed {
    fn parse(bytes: &[u8; FIXED_BYTES]) -> Result<Self, Malformed> {
        let [command, protocol, high, low] = bytes[SIGNATURE.len()..] else {
            return Err(Malformed);
        };
        let family = match (command, protocol) {
            _ if !bytes.starts_with(SIGNATURE) => return Err(Malformed),
            (0x21, 0x11) => Family::Inet,
            (0x21, 0x21) => Family::Inet6,
            // LOCAL, with any rest; UNSPEC, and Unix streams, whose addresses have no meaning here.
            (0x20, _) | (0x21, 0x00 | 0x31) => Family::Unknown,
            // Datagrams do not use TCP, and the rest is unassigned.
            _ => return Err(Malformed),
        };
        let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
        if rest_bytes > REST_BYTES_MAX { Err(Malformed) } else { Ok(Self { family, rest_bytes }) }
    }
}

// === impl Family ===

impl Family {
    /// The address of the client. The addresses and ports of source and destination come first,
    /// then parts that are not used.
    fn source(self, rest: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
        match self {
            Family::Unknown => Ok(None),
            Family::Inet => address::<4, 12>(rest, |bytes| Ipv4Addr::from(bytes).into()).map(Some),
            Family::Inet6 => {
                // An IPv4-mapped address is converted to IPv4, for limits and for display.
                let made = |bytes| Ipv6Addr::from(bytes).to_canonical();
                address::<16, 36>(rest, made).map(Some)
            }
        }
    }
}

/// `LENGTH`: the size of two addresses of `EACH` bytes and two ports.
fn address<const EACH: usize, const LENGTH: usize>(
    rest: &[u8],
    make: impl Fn([u8; EACH]) -> IpAddr,
) -> Result<SocketAddr, Malformed> {
    let addresses = rest.first_chunk::<LENGTH>().ok_or(Malformed)?;
    let source = addresses.first_chunk::<EACH>().ok_or(Malformed)?;
    let port = u16::from_be_bytes([addresses[2 * EACH], addresses[2 * EACH + 1]]);
    Ok(SocketAddr::new(make(*source), port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(command: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [SIGNATURE, &[command, protocol][..], &length, rest].concat()
    }

    fn inet() -> Vec<u8> {
        [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80].to_vec()
    }

    fn inet6(source: &str) -> Vec<u8> {
        let source: Ipv6Addr = source.parse().expect("an address");
        [&source.octets()[..], &[0; 16], &[0x12, 0x34, 0, 80]].concat()
    }

    #[test]
    fn the_source_is_the_client() {
        for (protocol, rest, expected) in [
            (0x11, inet(), "192.0.2.1:4660"),
            (0x11, [inet(), vec![4, 0, 1, 0]].concat(), "192.0.2.1:4660"),
            (0x21, inet6("2001:db8::1"), "[2001:db8::1]:4660"),
            (0x21, inet6("::ffff:192.0.2.1"), "192.0.2.1:4660"),
        ] {
            let expected = Ok(Some(expected.parse().expect("an address")));
            assert_eq!(expected, parse(&header(0x21, protocol, &rest)));
        }
    }

    #[test]
    fn a_proxy_that_names_nobody_speaks_for_itself() {
        for (command, protocol, rest) in [
            (0x20, 0x00, vec![]),
            (0x20, 0x11, inet()),
            (0x20, 0xff, vec![1; 100]),
            (0x21, 0x00, vec![]),
            (0x21, 0x00, vec![0; 20]),
            (0x21, 0x31, vec![0; 216]),
        ] {
            assert_eq!(Ok(None), parse(&header(command, protocol, &rest)));
        }
    }

    #[test]
    fn what_is_no_header_is_malformed() {
        let good = header(0x21, 0x11, &inet());
        for (what, bytes) in [
            ("version 1", b"PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n".to_vec()),
            ("another version", header(0x11, 0x11, &inet())),
            ("another command", header(0x22, 0x11, &inet())),
            ("datagrams", header(0x21, 0x12, &inet())),
            ("another family", header(0x21, 0x41, &inet())),
            ("too short for its family", header(0x21, 0x11, &inet()[..11])),
            ("too short for its family", header(0x21, 0x21, &inet())),
            ("too long", header(0x20, 0x00, &[0; REST_BYTES_MAX + 1])),
            ("cut off", good[..good.len() - 1].to_vec()),
            ("nothing", Vec::new()),
            ("HTTP", b"GET / HTTP/1.1\r\nhost: test\r\n\r\n".to_vec()),
        ] {
            assert_eq!(Err(Malformed), parse(&bytes), "{what}");
        }
    }

    proptest! {
        /// This holds for any bytes, split in any way.
        #[test]
        fn nothing_behind_the_header_is_read(
            command in prop_oneof![Just(0x20_u8), Just(0x21), any::<u8>()],
            protocol in prop_oneof![Just(0x11_u8), Just(0x21), any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..100),
            behind in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let bytes = [header(command, protocol, &rest), behind.clone()].concat();
            let mut stream = &bytes[..];
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let found = runtime.block_on(read(&mut stream));
            prop_assert_eq!(parse(&bytes), found);
            if found.is_ok() {
                prop_assert_eq!(&behind[..], stream);
            }
        }
    }
}
