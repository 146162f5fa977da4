//! A client's side of TLS.

use std::sync::Arc;

use arc_swap::ArcSwap;
use router_core::NamePattern;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;

use super::pem::{PemPair, ROOTS, TlsError, error, provider, roots, system_roots, unusable};
use super::verify::NamedServers;

/// Settings that reloads do not change.
#[derive(Clone, Debug, Default)]
pub struct ClientTlsOptions {
    /// The name that the server's certificate must carry, instead of the dialled one.
    pub server_name: Option<String>,
    /// Names, one of which the server's certificate must carry, whatever was dialled.
    pub allowed_names: Option<Vec<NamePattern>>,
}

/// The TLS settings of a client.
#[derive(Debug)]
pub struct ClientTls {
    options: ClientTlsOptions,
    current: ArcSwap<ClientConfig>,
}

// === impl ClientTls ===

impl ClientTls {
    /// `root_pem`: the trusted roots, else the system's. `identity`: our certificate.
    ///
    /// # Errors
    /// A part that is not PEM, a key that does not fit its certificate, or no roots given while the
    /// system has none.
    pub fn new(
        root_pem: Option<&[u8]>,
        identity: Option<PemPair<'_>>,
        options: ClientTlsOptions,
    ) -> Result<Self, TlsError> {
        let config = configure(root_pem, identity, &options)?;
        Ok(Self { options, current: ArcSwap::from_pointee(config) })
    }

    /// Uses these for connections from now on.
    ///
    /// # Errors
    /// Like `new`; on an error the old ones stay.
    pub fn reload(
        &self,
        root_pem: Option<&[u8]>,
        identity: Option<PemPair<'_>>,
    ) -> Result<(), TlsError> {
        self.current.store(Arc::new(configure(root_pem, identity, &self.options)?));
        Ok(())
    }

    /// For one connection.
    pub fn current(&self) -> Arc<ClientConfig> {
        self.current.load_full()
    }

    /// The name that is checked instead of the dialled one.
    pub fn name_override(&self) -> Option<&str> {
        self.options.server_name.as_deref()
    }

    /// The name to expect at `address`, `host:port`.
    ///
    /// # Errors
    /// The name, if it cannot be in a certificate.
    pub fn server_name(&self, address: &str) -> Result<ServerName<'static>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.options.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned())
            .map_err(|_| format!("{name:?} is no name that a certificate can carry"))
    }
}

/// Settings are equal if they are the same object: their content may change.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ClientTls {}

fn configure(
    root_pem: Option<&[u8]>,
    identity: Option<PemPair<'_>>,
    options: &ClientTlsOptions,
) -> Result<ClientConfig, TlsError> {
    let store = match root_pem {
        Some(pem) => roots(pem)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|reason| error("TLS versions")(&reason))?;
    let builder = match &options.allowed_names {
        None => builder.with_root_certificates(store),
        // `dangerous` is rustls's name for any verifier that is not its own; ours wraps its.
        Some(names) => builder
            .dangerous()
            .with_custom_certificate_verifier(named_servers(store, names.clone())?),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => builder
            .with_client_auth_cert(pair.chain()?, pair.key()?)
            .map_err(|reason| unusable(&reason))?,
    };
    if identity.is_some() || options.allowed_names.is_some() {
        // As at the server: every connection is verified again.
        config.resumption = Resumption::disabled();
    }
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn named_servers(
    store: RootCertStore,
    names: Vec<NamePattern>,
) -> Result<Arc<NamedServers>, TlsError> {
    let store = Arc::new(store);
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&store), provider())
        .build()
        .map_err(|reason| error(ROOTS)(&reason))?;
    Ok(NamedServers::new(verifier, store, names))
}
