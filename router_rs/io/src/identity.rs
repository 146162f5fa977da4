//! The holder of a certificate, as the certificate describes it.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{RelativeDistinguishedName, X509Name};

/// The content of a certificate. Its chain was verified before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// As RFC 2253 writes it: `CN=a,O=b`, the last part first.
    pub subject: String,
    pub common_name: Option<Vec<u8>>,
    pub alternative_names: Vec<AlternativeName>,
    pub pem: String,
}

/// A name as text.
#[derive(Debug, PartialEq, Eq)]
pub struct AlternativeName {
    pub kind: NameKind,
    pub text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Dns,
    Uri,
    Email,
    Ip,
}

pub fn of_certificate(certificate: &CertificateDer<'_>) -> Identity {
    let pem = to_pem(certificate);
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Identity { pem, ..Identity::default() };
    };
    let subject = subject_text(parsed.subject());
    let common_name =
        parsed.subject().iter_common_name().next().map(|name| name.as_slice().to_vec());
    let alternative_names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => {
            extension.value.general_names.iter().filter_map(alternative_name).collect()
        }
        _ => Vec::new(),
    };
    Identity { subject, common_name, alternative_names, pem }
}

fn subject_text(subject: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = subject.iter_rdn().map(relative_name_text).collect();
    parts.reverse();
    parts.join(",")
}

/// RFC 2253, 2.2: several attributes of one part are joined by a plus.
fn relative_name_text(part: &RelativeDistinguishedName<'_>) -> String {
    let attributes = part.iter().map(|attribute| {
        let id = attribute.attr_type();
        let key = oid2abbrev(id, oid_registry()).map_or_else(|_| id.to_id_string(), str::to_owned);
        format!("{key}={}", escaped(attribute.as_slice()))
    });
    attributes.collect::<Vec<_>>().join("+")
}

/// RFC 2253, 2.4, with what is not ASCII as pairs of digits.
fn escaped(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for (at, &byte) in value.iter().enumerate() {
        let is_edge = match byte {
            b' ' => at == 0 || at + 1 == value.len(),
            b'#' => at == 0,
            _ => false,
        };
        if is_edge || b",+\"\\<>;".contains(&byte) {
            text.push('\\');
            text.push(char::from(byte));
        } else if byte.is_ascii_graphic() || byte == b' ' {
            text.push(char::from(byte));
        } else {
            write!(text, "\\{byte:02X}").expect("invariant: a string takes all");
        }
    }
    text
}

/// The alternative names that rules are matched against. A name that imitates another kind (a DNS
/// name that reads like a URI or an address) is left out: a signer of DNS names may have no
/// authority over the other kind.
pub fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(extension)) = parsed.subject_alternative_name() else { return Vec::new() };
    let names = extension.value.general_names.iter();
    let honest = names.filter(|name| is_honest(name)).filter_map(alternative_name);
    honest.filter_map(|name| String::from_utf8(name.text).ok()).collect()
}

fn is_honest(name: &GeneralName<'_>) -> bool {
    match name {
        GeneralName::URI(text) => text.contains("://"),
        GeneralName::DNSName(text) => {
            !text.contains([':', '/', '@']) && text.parse::<std::net::IpAddr>().is_err()
        }
        GeneralName::RFC822Name(text) => text.contains('@') && !text.contains("://"),
        _ => true,
    }
}

fn alternative_name(name: &GeneralName<'_>) -> Option<AlternativeName> {
    let (kind, text) = match name {
        GeneralName::DNSName(text) => (NameKind::Dns, text.as_bytes().to_vec()),
        GeneralName::URI(text) => (NameKind::Uri, text.as_bytes().to_vec()),
        GeneralName::RFC822Name(text) => (NameKind::Email, text.as_bytes().to_vec()),
        GeneralName::IPAddress(bytes) => {
            let address: std::net::IpAddr = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok()?.into(),
                16 => <[u8; 16]>::try_from(*bytes).ok()?.into(),
                _ => return None,
            };
            (NameKind::Ip, address.to_string().into_bytes())
        }
        _ => return None,
    };
    Some(AlternativeName { kind, text })
}

/// PEM with lines of 64 characters (RFC 7468).
fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let body = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in body.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).expect("invariant: base64 is ASCII"));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
