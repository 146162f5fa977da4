//! TLS settings from PEM; ALPN always offers `h2` only.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// Which part of a TLS setting cannot be used, and why.
#[derive(Debug, Error)]
#[error("cannot use the {part}: {reason}")]
pub struct TlsError {
    pub part: &'static str,
    pub reason: String,
}

fn error(part: &'static str) -> impl Fn(&dyn std::fmt::Display) -> TlsError {
    move |reason| TlsError { part, reason: reason.to_string() }
}

fn certificates(part: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|reason| error(part)(&reason))?;
    if chain.is_empty() {
        return Err(error(part)(&"no PEM certificate in it"));
    }
    Ok(chain)
}

fn key(part: &'static str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|reason| error(part)(&reason))
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    const PART: &str = "root certificates";
    let mut store = RootCertStore::empty();
    for certificate in certificates(PART, pem)? {
        store.add(certificate).map_err(|reason| error(PART)(&reason))?;
    }
    Ok(store)
}

/// A server's settings; with `client_roots`, clients are asked for a certificate, and refused
/// without one if `require_client`.
///
/// # Errors
/// A part that is no PEM, or a key that does not fit its certificate.
pub fn server_config(
    private_key: &[u8],
    chain: &[u8],
    client_roots: Option<&[u8]>,
    require_client: bool,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|reason| error("TLS versions")(&reason))?;
    let builder = match client_roots {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), provider());
            if !require_client {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier =
                verifier.build().map_err(|reason| error("root certificates")(&reason))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(
            certificates("certificate chain", chain)?,
            key("private key", private_key)?,
        )
        .map_err(|reason| error("certificate chain")(&reason))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// A client's settings; `identity` is its own key and certificate chain.
///
/// # Errors
/// As `server_config`; also when no roots are given and the system has none.
pub fn client_config(
    root_pem: Option<&[u8]>,
    identity: Option<(&[u8], &[u8])>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let store = match root_pem {
        Some(pem) => roots(pem)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|reason| error("TLS versions")(&reason))?
        .with_root_certificates(store);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((private_key, chain)) => builder
            .with_client_auth_cert(
                certificates("certificate chain", chain)?,
                key("private key", private_key)?,
            )
            .map_err(|reason| error("certificate chain")(&reason))?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    const PART: &str = "system's root certificates";
    let mut store = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(loaded.certs);
    if store.is_empty() {
        let reasons: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
        return Err(error(PART)(&format!(
            "none found; pass root_certificates ({})",
            reasons.join("; ")
        )));
    }
    Ok(store)
}
