//! TLS settings and identities as Python sees them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use router_net::io::tls::{client_config, server_config};
use router_net::server::ConnectionInfo;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ServerTls {
    pub(crate) config: Arc<rustls::ServerConfig>,
}

#[pymethods]
impl ServerTls {
    #[new]
    fn new(
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        root_certificates: Option<&[u8]>,
        require_client_auth: bool,
    ) -> PyResult<Self> {
        let [(key, chain)] = &pairs[..] else {
            let text =
                format!("give one (private key, certificate chain) pair, not {}", pairs.len());
            return Err(PyValueError::new_err(text));
        };
        if require_client_auth && root_certificates.is_none() {
            return Err(PyValueError::new_err(
                "require_client_auth needs root_certificates to check the clients against",
            ));
        }
        let config = server_config(key, chain, root_certificates, require_client_auth)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { config })
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ClientTls {
    pub(crate) tls: router_net::client::ClientTls,
}

#[pymethods]
impl ClientTls {
    #[new]
    #[pyo3(signature = (root_certificates, private_key, certificate_chain, server_name))]
    fn new(
        root_certificates: Option<&[u8]>,
        private_key: Option<&[u8]>,
        certificate_chain: Option<&[u8]>,
        server_name: Option<String>,
    ) -> PyResult<Self> {
        let identity = match (private_key, certificate_chain) {
            (Some(key), Some(chain)) => Some((key, chain)),
            (None, None) => None,
            _ => {
                return Err(PyValueError::new_err(
                    "give both private_key and certificate_chain, or neither",
                ));
            }
        };
        let config = client_config(root_certificates, identity)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { tls: router_net::client::ClientTls { config, server_name } })
    }
}

/// What grpc calls the auth context: who the peer proved to be.
pub(crate) fn auth_context<'py>(
    py: Python<'py>,
    connection: &ConnectionInfo,
) -> PyResult<Bound<'py, PyDict>> {
    let context = PyDict::new(py);
    let set = |name: &str, values: Vec<Vec<u8>>| {
        let values: Vec<_> = values.iter().map(|value| PyBytes::new(py, value)).collect();
        context.set_item(name, PyList::new(py, values)?)
    };
    if connection.is_tls {
        set("transport_security_type", vec![b"ssl".to_vec()])?;
    }
    if let Some(leaf) = connection.certificates.as_ref().and_then(|chain| chain.first()) {
        let identity = router_net::io::identity::of_certificate(leaf);
        set("x509_common_name", identity.common_name.into_iter().collect())?;
        set("x509_subject_alternative_name", identity.alternative_names)?;
        set("x509_pem_cert", vec![identity.pem.into_bytes()])?;
    }
    Ok(context)
}
