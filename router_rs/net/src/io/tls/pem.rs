//! Keys and certificates from PEM.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
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

/// A key and the chain of certificates that ends in a root which the peer knows; leaf first.
#[derive(Clone, Copy)]
pub struct PemPair<'a> {
    pub private_key: &'a [u8],
    pub chain: &'a [u8],
}

pub(super) const ROOTS: &str = "root certificates";
pub(super) const CHAIN: &str = "certificate chain";
const KEY: &str = "private key";

pub(super) fn error(part: &'static str) -> impl Fn(&dyn std::fmt::Display) -> TlsError {
    move |reason| TlsError { part, reason: reason.to_string() }
}

impl PemPair<'_> {
    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(CHAIN, self.chain)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.private_key).map_err(|reason| error(KEY)(&reason))
    }
}

impl std::fmt::Debug for PemPair<'_> {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PemPair").finish_non_exhaustive()
    }
}

pub(super) fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(ROOTS, pem)? {
        store.add(certificate).map_err(|reason| error(ROOTS)(&reason))?;
    }
    Ok(store)
}

pub(super) fn system_roots() -> Result<RootCertStore, TlsError> {
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

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
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
