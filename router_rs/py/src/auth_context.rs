//! grpc's auth context: the properties of a client known from the transport, and how they were
//! proven.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use router_net::io::TlsSession;
use router_net::io::identity::{AlternativeName, Identity, NameKind, of_certificate};
use router_net::server::ConnectionInfo;
use rustls::{NamedGroup, ProtocolVersion};

type Property = (&'static str, Vec<Vec<u8>>);

/// Names and values are those of gRPC's C core (1.85).
pub(crate) fn auth_context<'py>(
    py: Python<'py>,
    connection: &ConnectionInfo,
) -> PyResult<Bound<'py, PyDict>> {
    let context = PyDict::new(py);
    for (name, values) in properties(connection.tls.as_deref()) {
        if !values.is_empty() {
            let values: Vec<_> = values.iter().map(|value| PyBytes::new(py, value)).collect();
            context.set_item(name, PyList::new(py, values)?)?;
        }
    }
    Ok(context)
}

fn properties(session: Option<&TlsSession>) -> Vec<Property> {
    let Some(session) = session else {
        return vec![
            ("transport_security_type", one("insecure")),
            ("security_level", one("TSI_SECURITY_NONE")),
        ];
    };
    let mut found = vec![
        ("transport_security_type", one("ssl")),
        ("security_level", one("TSI_PRIVACY_AND_INTEGRITY")),
        ("ssl_session_reused", one(if session.is_resumed { "true" } else { "false" })),
        ("ssl_requested_server_name", session.server_name.iter().map(bytes).collect()),
        ("ssl_tls_version", session.version.and_then(version_name).into_iter().collect()),
        (
            "ssl_negotiated_key_exchange_group",
            session.key_exchange_group.map(group_name).into_iter().collect(),
        ),
    ];
    if let Some(leaf) = session.certificates.as_ref().and_then(|chain| chain.first()) {
        found.extend(certificate_properties(of_certificate(leaf)));
    }
    found
}

fn certificate_properties(identity: Identity) -> Vec<Property> {
    let Identity { subject, common_name, alternative_names, pem } = identity;
    let of = |kinds: &[NameKind]| -> Vec<Vec<u8>> {
        let found = alternative_names.iter().filter(|name| kinds.contains(&name.kind));
        found.map(|name| name.text.clone()).collect()
    };
    let uris = of(&[NameKind::Uri]);
    let spiffe_id = match &uris[..] {
        [uri] if is_spiffe_id(uri) => vec![uri.clone()],
        _ => Vec::new(),
    };
    vec![
        ("x509_subject", vec![subject.into_bytes()]),
        ("x509_common_name", vec![common_name.unwrap_or_default()]),
        ("x509_pem_cert", vec![pem.into_bytes()]),
        ("peer_dns", of(&[NameKind::Dns])),
        ("peer_uri", uris),
        ("peer_email", of(&[NameKind::Email])),
        ("peer_ip", of(&[NameKind::Ip])),
        ("peer_spiffe_id", spiffe_id),
        ("x509_subject_alternative_name", texts(alternative_names)),
    ]
}

fn texts(names: Vec<AlternativeName>) -> Vec<Vec<u8>> {
    names.into_iter().map(|name| name.text).collect()
}

/// Of a trust domain and a path, within the bounds of the SPIFFE-ID specification, 2.
fn is_spiffe_id(uri: &[u8]) -> bool {
    let Some(rest) = uri.strip_prefix(b"spiffe://") else { return false };
    let Some(slash) = rest.iter().position(|&byte| byte == b'/') else { return false };
    uri.len() <= 2048 && (1..=255).contains(&slash) && slash + 1 < rest.len()
}

fn one(value: &str) -> Vec<Vec<u8>> {
    vec![bytes(value)]
}

fn bytes(value: impl AsRef<[u8]>) -> Vec<u8> {
    value.as_ref().to_vec()
}

fn version_name(version: ProtocolVersion) -> Option<Vec<u8>> {
    match version {
        ProtocolVersion::TLSv1_2 => Some(bytes("TLSv1.2")),
        ProtocolVersion::TLSv1_3 => Some(bytes("TLSv1.3")),
        _ => None,
    }
}

/// As OpenSSL spells them.
fn group_name(group: NamedGroup) -> Vec<u8> {
    match group {
        NamedGroup::secp256r1 => bytes("P-256"),
        NamedGroup::secp384r1 => bytes("P-384"),
        NamedGroup::secp521r1 => bytes("P-521"),
        other => bytes(format!("{other:?}")),
    }
}
