//! What a certificate says of its holder.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names in a certificate. The chain was checked before anybody asks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub common_name: Option<Vec<u8>>,
    /// DNS names, URIs, addresses and mail addresses as text.
    pub alternative_names: Vec<Vec<u8>>,
    pub pem: String,
}

pub fn of_certificate(certificate: &CertificateDer<'_>) -> Identity {
    let pem = to_pem(certificate);
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Identity { pem, ..Identity::default() };
    };
    let common_name =
        parsed.subject().iter_common_name().next().map(|name| name.as_slice().to_vec());
    let alternative_names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => {
            extension.value.general_names.iter().filter_map(name_bytes).collect()
        }
        _ => Vec::new(),
    };
    Identity { common_name, alternative_names, pem }
}

/// The alternative names that rules are matched against. A name in the clothes of another kind (a
/// DNS name that reads like a URI or an address) is left out: whoever signs DNS names may not
/// hand out those.
pub fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(extension)) = parsed.subject_alternative_name() else { return Vec::new() };
    let names = extension.value.general_names.iter();
    names.filter(|name| is_honest(name)).filter_map(name_bytes).filter_map(text).collect()
}

fn text(name: Vec<u8>) -> Option<String> {
    String::from_utf8(name).ok()
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

fn name_bytes(name: &GeneralName<'_>) -> Option<Vec<u8>> {
    match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) | GeneralName::RFC822Name(text) => {
            Some(text.as_bytes().to_vec())
        }
        GeneralName::IPAddress(bytes) => {
            let address: std::net::IpAddr = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok()?.into(),
                16 => <[u8; 16]>::try_from(*bytes).ok()?.into(),
                _ => return None,
            };
            Some(address.to_string().into_bytes())
        }
        _ => None,
    }
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
