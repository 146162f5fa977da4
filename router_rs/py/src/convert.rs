//! Conversions between Python's types and those of `router_net`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use router_core::{Cost, Nanos};
use router_net::client::ReconnectBackoff;
use router_net::grpc::metadata::{self, Value};
use router_net::grpc::{Encoding, Encodings};
use router_net::ingress::{NoNetwork, Proxies};
use router_net::server::Keepalive;

/// The user's metadata of a header block, see the stub's `Metadata`.
pub(crate) fn metadata_to_python<'py>(
    py: Python<'py>,
    block: &HeaderMap,
    shows_mesh: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut pairs = Vec::with_capacity(block.len());
    metadata::for_each(block, shows_mesh, |key, value| {
        let value = match value {
            Value::Text(text) => PyString::new(py, &text).into_any(),
            Value::Binary(bytes) => PyBytes::new(py, &bytes).into_any(),
        };
        pairs.push((PyString::new(py, key), value));
    });
    PyTuple::new(py, pairs)
}

/// A header block of pairs from Python; any iterable of pairs will do.
pub(crate) fn metadata_from_python(pairs: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let mut block = HeaderMap::new();
    for pair in pairs.try_iter()? {
        let (key, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
        let value = if let Ok(bytes) = value.cast::<PyBytes>() {
            if metadata::is_binary(&key) {
                Value::Binary(bytes.as_bytes().to_vec())
            } else {
                Value::Text(String::from_utf8_lossy(bytes.as_bytes()).into_owned())
            }
        } else if let Ok(text) = value.cast::<PyString>() {
            Value::Text(text.to_string())
        } else {
            let kind = value.get_type().name()?;
            let text = format!("metadata {key:?} has a value of type {kind}, use str or bytes");
            return Err(PyTypeError::new_err(text));
        };
        metadata::append(&mut block, &key, &value).map_err(PyValueError::new_err)?;
    }
    Ok(block)
}

pub(crate) const IDENTITY: i32 = 0;
/// The numbers of `grpc.Compression`.
pub(crate) const DEFLATE: i32 = 1;
pub(crate) const GZIP: i32 = 2;

/// A compression constant of the stub.
pub(crate) fn encoding(number: i32) -> PyResult<Encoding> {
    match number {
        IDENTITY => Ok(Encoding::Identity),
        GZIP => Ok(Encoding::Gzip),
        DEFLATE => Ok(Encoding::Deflate),
        _ => Err(PyValueError::new_err(format!(
            "compression {number} is unknown, use IDENTITY, GZIP or DEFLATE"
        ))),
    }
}

/// The encodings that an end accepts; `None`: all.
pub(crate) fn encodings(enabled: Option<&[i32]>) -> Encodings {
    let Some(enabled) = enabled else { return Encodings::default() };
    Encodings { gzip: enabled.contains(&GZIP), deflate: enabled.contains(&DEFLATE) }
}

/// Proxies by their networks; `has_headers`: they use the PROXY protocol.
pub(crate) fn proxies(networks: &[String], has_headers: bool) -> PyResult<Arc<Proxies>> {
    if has_headers && networks.is_empty() {
        let text = "proxy_protocol needs trusted_proxies: nobody else's header is read";
        return Err(PyValueError::new_err(text));
    }
    let networks = networks.iter().map(|network| network.parse()).collect::<Result<_, NoNetwork>>();
    let networks =
        networks.map_err(|error| PyValueError::new_err(format!("trusted_proxies: {error}")))?;
    Ok(Arc::new(Proxies { networks, has_headers }))
}

/// `-1` stands for "no limit".
pub(crate) fn limit_bytes(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(u32::MAX as usize).min(u32::MAX as usize)
}

/// The value for "never": beyond any process's life, within what a clock can add.
const FAR_S: f64 = 1e9;

/// A time span from Python, in seconds; one beyond what a clock can hold is far away.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!("{name} is {seconds}, use 0 or more seconds");
        return Err(PyValueError::new_err(text));
    }
    Ok(Duration::from_secs_f64(seconds.min(FAR_S)))
}

pub(crate) fn nanos(name: &str, seconds: f64) -> PyResult<Nanos> {
    let nanos = duration(name, seconds)?.as_nanos();
    Ok(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// An amount; above the largest it counts as that.
pub(crate) fn cost(name: &str, amount: f64) -> PyResult<Cost> {
    Cost::new(amount.min(Cost::AMOUNT_MAX))
        .ok_or_else(|| PyValueError::new_err(format!("{name} must be at least 0, not {amount}")))
}

/// A call's timeout; a negative one counts as zero.
pub(crate) fn timeout(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds > 0.0 { seconds.min(FAR_S) } else { 0.0 })
}

/// A period of 0 would ping without pause. Arbitrary, far below any useful value.
const KEEPALIVE_MIN: Duration = Duration::from_millis(10);

/// A wait of 0 would dial without pause. Arbitrary, far below any useful value.
const RECONNECT_MIN: Duration = Duration::from_millis(10);

pub(crate) fn reconnect(initial_s: f64, max_s: f64) -> PyResult<ReconnectBackoff> {
    Ok(ReconnectBackoff {
        initial: duration("reconnect_backoff_initial_s", initial_s)?.max(RECONNECT_MIN),
        max: duration("reconnect_backoff_max_s", max_s)?.max(RECONNECT_MIN),
    })
}

/// `None` without a time: no keepalive.
pub(crate) fn keepalive(time_s: Option<f64>, timeout_s: f64) -> PyResult<Option<Keepalive>> {
    let Some(time_s) = time_s else { return Ok(None) };
    Ok(Some(Keepalive {
        time: duration("keepalive_time_s", time_s)?.max(KEEPALIVE_MIN),
        timeout: duration("keepalive_timeout_s", timeout_s)?,
    }))
}
