//! Checks of names in addition to rustls's checks of chains, so that a wrong peer fails the
//! handshake.

use std::sync::Arc;

use router_core::NamePattern;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::pem::provider;
use crate::identity::names_of;

/// Accepts clients whose certificate is signed and carries one of the names.
#[derive(Debug)]
pub(super) struct NamedClients {
    chains: Arc<dyn ClientCertVerifier>,
    names: Vec<NamePattern>,
}

/// Accepts servers whose certificate is signed and carries one of the names, whatever address was
/// dialled.
#[derive(Debug)]
pub(super) struct NamedServers {
    signatures: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    names: Vec<NamePattern>,
}

/// The peer gets the alert "access denied".
fn check_names(leaf: &CertificateDer<'_>, allowed: &[NamePattern]) -> Result<(), Error> {
    let names = names_of(leaf);
    if allowed.iter().any(|pattern| names.iter().any(|name| pattern.matches(name))) {
        return Ok(());
    }
    Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
}

// === impl NamedClients ===

impl NamedClients {
    pub(super) fn new(chains: Arc<dyn ClientCertVerifier>, names: Vec<NamePattern>) -> Arc<Self> {
        Arc::new(Self { chains, names })
    }
}

impl ClientCertVerifier for NamedClients {
    fn offer_client_auth(&self) -> bool {
        self.chains.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chains.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chains.verify_client_cert(end_entity, intermediates, now)?;
        check_names(end_entity, &self.names)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

// === impl NamedServers ===

impl NamedServers {
    pub(super) fn new(
        signatures: Arc<WebPkiServerVerifier>,
        roots: Arc<RootCertStore>,
        names: Vec<NamePattern>,
    ) -> Arc<Self> {
        let algorithms = provider().signature_verification_algorithms;
        Arc::new(Self { signatures, roots, algorithms, names })
    }
}

impl ServerCertVerifier for NamedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        check_names(end_entity, &self.names)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}
