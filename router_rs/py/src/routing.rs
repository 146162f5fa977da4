//! `CallOptions`: what one call wants of the router.

use http::HeaderValue;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_core::Locality;
use router_net::dispatch;

use crate::convert;

/// Numbers that Python gives to callers are apart from those that the native half gives.
const PYTHON_CALLER: u64 = 1 << 63;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct CallOptions {
    pub(crate) options: dispatch::CallOptions,
    /// The header to send, `None` for none.
    pub(crate) session: Option<HeaderValue>,
}

#[pymethods]
impl CallOptions {
    #[new]
    #[pyo3(signature = (
        *, session_id = "", priority = 0, caller = 0, idempotent = false, locality = None,
        cost = None,
    ))]
    fn new(
        session_id: &str,
        priority: i8,
        caller: u64,
        idempotent: bool,
        locality: Option<(bool, bool)>,
        cost: Option<f64>,
    ) -> PyResult<Self> {
        let session = HeaderValue::from_str(session_id).map_err(|_| {
            PyValueError::new_err(format!("session_id {session_id:?} has control characters"))
        })?;
        let options = dispatch::CallOptions {
            priority,
            caller: if caller == 0 { 0 } else { caller | PYTHON_CALLER },
            locality: locality
                .map(|(prefer_node, prefer_zone)| Locality { prefer_node, prefer_zone }),
            is_idempotent: idempotent,
            cost: cost.map(|cost| convert::cost("cost", cost)).transpose()?,
        };
        Ok(Self { options, session: Some(session).filter(|session| !session.is_empty()) })
    }
}

impl CallOptions {
    /// The session's text.
    pub(crate) fn session(&self) -> String {
        let text = self.session.as_ref().and_then(|session| session.to_str().ok());
        text.unwrap_or_default().to_owned()
    }
}
