//! A server's side of TLS.

use std::sync::Arc;

use arc_swap::ArcSwap;
use router_core::NamePattern;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::pem::{PemPair, ROOTS, TlsError, error, provider, roots, unusable};
use super::verify::NamedClients;

/// Settings that reloads do not change.
#[derive(Clone, Debug, Default)]
pub struct ServerTlsOptions {
    /// Refuse clients without a certificate.
    pub require_client: bool,
    /// Offer HTTP/1.1 besides HTTP/2 (ALPN).
    pub http1: bool,
    /// Names, one of which a client's certificate must carry; `None`: any that is signed.
    pub allowed_names: Option<Vec<NamePattern>>,
}

/// A server's settings.
#[derive(Debug)]
pub struct ServerTls {
    options: ServerTlsOptions,
    current: ArcSwap<ServerConfig>,
}

// === impl ServerTls ===

impl ServerTls {
    /// With `client_roots`, clients are asked for a certificate.
    ///
    /// # Errors
    /// A part that is not PEM, a key that does not fit its certificate, or clients to be verified
    /// without roots to verify them against.
    pub fn new(
        pair: PemPair<'_>,
        client_roots: Option<&[u8]>,
        options: ServerTlsOptions,
    ) -> Result<Self, TlsError> {
        let config = configure(pair, client_roots, &options)?;
        Ok(Self { options, current: ArcSwap::from_pointee(config) })
    }

    /// Uses these for connections from now on.
    ///
    /// # Errors
    /// Like `new`; on an error the old ones stay.
    pub fn reload(&self, pair: PemPair<'_>, client_roots: Option<&[u8]>) -> Result<(), TlsError> {
        let config = configure(pair, client_roots, &self.options)?;
        self.current.store(Arc::new(config));
        Ok(())
    }

    /// For one connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

fn configure(
    pair: PemPair<'_>,
    client_roots: Option<&[u8]>,
    options: &ServerTlsOptions,
) -> Result<ServerConfig, TlsError> {
    if client_roots.is_none() && (options.require_client || options.allowed_names.is_some()) {
        return Err(error(ROOTS)(&"clients' certificates cannot be checked without any"));
    }
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|reason| error("TLS versions")(&reason))?;
    let builder = match client_roots {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), provider());
            let verifier =
                if options.require_client { verifier } else { verifier.allow_unauthenticated() };
            let verifier = verifier.build().map_err(|reason| error(ROOTS)(&reason))?;
            match &options.allowed_names {
                None => builder.with_client_cert_verifier(verifier),
                Some(names) => {
                    builder.with_client_cert_verifier(NamedClients::new(verifier, names.clone()))
                }
            }
        }
    };
    let mut config =
        builder.with_single_cert(pair.chain()?, pair.key()?).map_err(|reason| unusable(&reason))?;
    if client_roots.is_some() {
        // A resumed session is not verified again: a certificate would be accepted beyond its
        // expiry. Without client certificates, sessions are kept with this configuration, so they
        // end with it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"h2".to_vec()];
    if options.http1 {
        config.alpn_protocols.push(b"http/1.1".to_vec());
    }
    Ok(config)
}
