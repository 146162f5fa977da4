//! `CallOptions`: what one call wants of the router.

use http::HeaderValue;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use router_core::{Locality, cache_key};
use router_net::cache_keys::{KEYS_MAX, header};
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
    /// The cache entries that the call would like to find.
    pub(crate) cache_keys: Vec<u64>,
    /// The header for them, `None` for none.
    pub(crate) cache_header: Option<HeaderValue>,
}

#[pymethods]
impl CallOptions {
    #[new]
    #[pyo3(signature = (
        *, session_id = "", priority = 0, caller = 0, idempotent = false, locality = None,
        cost = None,
        cache_keys = Vec::new(),
    ))]
    fn new(
        session_id: &str,
        priority: i8,
        caller: u64,
        idempotent: bool,
        locality: Option<(bool, bool)>,
        cost: Option<f64>,
        cache_keys: Vec<Bound<'_, PyAny>>,
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
            tells_start: false, // the head of a gRPC answer says it
            cost: cost.map(|cost| convert::cost("cost", cost)).transpose()?,
        };
        let cache_keys = hashed_keys(&cache_keys)?;
        if cache_keys.len() > KEYS_MAX {
            let count = cache_keys.len();
            let text =
                format!("cache_keys has {count} keys; give at most {KEYS_MAX}, the first ones");
            return Err(PyValueError::new_err(text));
        }
        Ok(Self {
            options,
            session: Some(session).filter(|session| !session.is_empty()),
            cache_header: (!cache_keys.is_empty()).then(|| header(&cache_keys)),
            cache_keys,
        })
    }
}

/// The hashes of keys of cache entries: `bytes`, `str` as UTF-8, `int` as its decimal digits.
pub(crate) fn hashed_keys(keys: &[Bound<'_, PyAny>]) -> PyResult<Vec<u64>> {
    keys.iter().map(hashed_key).collect()
}

/// See [`hashed_keys`].
pub(crate) fn hashed_key(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    let hash = if let Ok(text) = key.cast::<PyString>() {
        cache_key(text.to_str()?.as_bytes())
    } else if let Ok(bytes) = key.cast::<PyBytes>() {
        cache_key(bytes.as_bytes())
    } else if key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
        cache_key(key.str()?.to_str()?.as_bytes())
    } else {
        let text = format!("a cache key is {}; use bytes, str or int", key.repr()?.to_str()?);
        return Err(PyTypeError::new_err(text));
    };
    Ok(hash)
}

impl CallOptions {
    /// The session's text.
    pub(crate) fn session(&self) -> String {
        let text = self.session.as_ref().and_then(|session| session.to_str().ok());
        text.unwrap_or_default().to_owned()
    }
}
