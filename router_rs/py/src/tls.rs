//! TLS settings and identities as Python sees them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_core::NamePattern;
use router_net::io::tls::{self, ClientTlsOptions, PemPair, ServerTlsOptions};

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ServerTls {
    pub(crate) tls: Arc<tls::ServerTls>,
}

#[pymethods]
impl ServerTls {
    #[new]
    #[pyo3(signature = (
        pairs, root_certificates, require_client_auth, *, http1 = false, allowed_names = None,
    ))]
    fn new(
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        root_certificates: Option<&[u8]>,
        require_client_auth: bool,
        http1: bool,
        allowed_names: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let options = ServerTlsOptions {
            require_client: require_client_auth,
            http1,
            allowed_names: allowed_names.map(names).transpose()?,
        };
        let tls = tls::ServerTls::new(only_pair(&pairs)?, root_certificates, options);
        Ok(Self { tls: Arc::new(tls.map_err(value_error)?) })
    }

    fn reload(
        &self,
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        root_certificates: Option<&[u8]>,
    ) -> PyResult<()> {
        self.tls.reload(only_pair(&pairs)?, root_certificates).map_err(value_error)
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ClientTls {
    pub(crate) tls: Arc<tls::ClientTls>,
}

#[pymethods]
impl ClientTls {
    #[new]
    #[pyo3(signature = (
        root_certificates, private_key, certificate_chain, server_name, *, allowed_names = None,
    ))]
    fn new(
        root_certificates: Option<&[u8]>,
        private_key: Option<&[u8]>,
        certificate_chain: Option<&[u8]>,
        server_name: Option<String>,
        allowed_names: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let identity = identity(private_key, certificate_chain)?;
        let allowed_names = allowed_names.map(names).transpose()?;
        let options = ClientTlsOptions { server_name, allowed_names };
        let tls = tls::ClientTls::new(root_certificates, identity, options);
        Ok(Self { tls: Arc::new(tls.map_err(value_error)?) })
    }

    fn reload(
        &self,
        root_certificates: Option<&[u8]>,
        private_key: Option<&[u8]>,
        certificate_chain: Option<&[u8]>,
    ) -> PyResult<()> {
        let identity = identity(private_key, certificate_chain)?;
        self.tls.reload(root_certificates, identity).map_err(value_error)
    }
}

#[pyfunction]
pub(crate) fn certificate_lifetime_s(chain: &[u8]) -> PyResult<(i64, i64)> {
    tls::lifetime_s(chain).map_err(value_error)
}

pub(crate) fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Names of certificates; an empty list would let nobody in.
pub(crate) fn names(texts: Vec<String>) -> PyResult<Vec<NamePattern>> {
    if texts.is_empty() {
        return Err(value_error("the list of names is empty: nobody would be let in"));
    }
    texts.iter().map(|text| NamePattern::parse(text).map_err(value_error)).collect()
}

fn only_pair(pairs: &[(Vec<u8>, Vec<u8>)]) -> PyResult<PemPair<'_>> {
    let [(private_key, chain)] = pairs else {
        let count = pairs.len();
        return Err(value_error(format!(
            "give one (private key, certificate chain) pair, not {count}"
        )));
    };
    Ok(PemPair { private_key, chain })
}

fn identity<'a>(
    private_key: Option<&'a [u8]>,
    chain: Option<&'a [u8]>,
) -> PyResult<Option<PemPair<'a>>> {
    match (private_key, chain) {
        (Some(private_key), Some(chain)) => Ok(Some(PemPair { private_key, chain })),
        (None, None) => Ok(None),
        _ => Err(value_error("give both private_key and certificate_chain, or neither")),
    }
}
