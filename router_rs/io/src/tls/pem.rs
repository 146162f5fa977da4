//! Keys and certificates from PEM.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The part of a TLS setting that cannot be used, and the reason.
#[derive(Debug, Error)]
#[error("cannot use the {part}: {reason}")]
pub struct TlsError {
    pub part: &'static str,
    pub reason: String,
}

/// A key and the chain of certificates that ends in a root known to the peer; leaf first.
#[derive(Clone, Copy)]
pub struct PemPair<'a> {
    pub private_key: &'a [u8],
    pub chain: &'a [u8],
}

pub(super) const ROOTS: &str = "root certificates";
const CHAIN: &str = "certificate chain";
const KEY: &str = "private key";

pub(super) fn error(part: &'static str) -> impl Fn(&dyn std::fmt::Display) -> TlsError {
    move |reason| TlsError { part, reason: reason.to_string() }
}

impl PemPair<'_> {
    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(CHAIN, self.chain)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.private_key).map_err(|reason| match reason {
            pem::Error::NoItemsFound => {
                error(KEY)(&"no PEM private key in it (keys are read unencrypted)")
            }
            reason => unreadable(KEY, &reason),
        })
    }
}

impl std::fmt::Debug for PemPair<'_> {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PemPair").finish_non_exhaustive()
    }
}

fn unreadable(part: &'static str, reason: &pem::Error) -> TlsError {
    match reason {
        pem::Error::MissingSectionEnd { .. } => {
            error(part)(&"its PEM is cut off: a section has no END line")
        }
        pem::Error::Base64Decode(_) => error(part)(&"its PEM holds something else than base64"),
        reason => error(part)(reason),
    }
}

/// Why a chain and its key cannot be used.
pub(super) fn unusable(reason: &rustls::Error) -> TlsError {
    match reason {
        rustls::Error::InconsistentKeys(_) => {
            error(KEY)(&"it does not belong to the certificate, the first one of the chain")
        }
        rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
            error(CHAIN)(&"its PEM holds no X.509 certificate")
        }
        reason => error(CHAIN)(reason),
    }
}

/// The time in which all certificates of a PEM are valid, start and end in seconds of the Unix
/// epoch.
///
/// # Errors
/// It cannot be parsed.
pub fn lifetime_s(chain: &[u8]) -> Result<(i64, i64), TlsError> {
    let mut lifetime = (i64::MIN, i64::MAX);
    for certificate in certificates(CHAIN, chain)? {
        let (_, certificate) = X509Certificate::from_der(&certificate)
            .map_err(|_| error(CHAIN)(&"its PEM holds no X.509 certificate"))?;
        let validity = certificate.validity();
        lifetime.0 = lifetime.0.max(validity.not_before.timestamp());
        lifetime.1 = lifetime.1.min(validity.not_after.timestamp());
    }
    Ok(lifetime)
}

pub(super) fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(ROOTS, pem)? {
        store.add(certificate).map_err(|_| error(ROOTS)(&"its PEM holds no X.509 certificate"))?;
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
        .map_err(|reason| unreadable(part, &reason))?;
    if chain.is_empty() {
        return Err(error(part)(&"no PEM certificate in it"));
    }
    Ok(chain)
}
