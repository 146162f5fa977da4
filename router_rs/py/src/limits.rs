//! `IngressLimits`: limits for the clients of an ingress.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_net::grpc::SizeLimit;
use router_net::ingress::IngressLimits as NetLimits;

use crate::{convert, descriptors};

/// The resolution of timers.
const PERIOD_MIN: Duration = Duration::from_millis(1);

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct IngressLimits {
    pub(crate) limits: Limits,
}

/// The limits, and what can be changed later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) limits: NetLimits,
    pub(crate) request_timeout: Option<Duration>,
}

#[pymethods]
impl IngressLimits {
    #[new]
    #[pyo3(signature = (
        *, connections_max = 20000, idle_bytes_max = 50_331_648, streams_max = 1024,
        header_bytes_max = 16384, body_bytes_max = None, message_bytes_max = 4_194_304,
        refuses_unknown_fields = false, header_timeout_s = 10.0,
        idle_timeout_s = 3600.0, body_timeout_s = 60.0, keep_alive_timeout_s = 90.0,
        request_timeout_s = None, cors_origins = vec!["*".to_owned()],
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        connections_max: u64,
        idle_bytes_max: u64,
        streams_max: u32,
        header_bytes_max: u32,
        body_bytes_max: Option<u64>,
        message_bytes_max: usize,
        refuses_unknown_fields: bool,
        header_timeout_s: f64,
        idle_timeout_s: f64,
        body_timeout_s: f64,
        keep_alive_timeout_s: f64,
        request_timeout_s: Option<f64>,
        cors_origins: Vec<String>,
    ) -> PyResult<Self> {
        for (name, value) in [
            ("connections_max", connections_max),
            ("streams_max", u64::from(streams_max)),
            ("header_bytes_max", u64::from(header_bytes_max)),
        ] {
            if value == 0 {
                return Err(PyValueError::new_err(format!("{name} must be at least 1")));
            }
        }
        let limits = NetLimits {
            connections_max,
            descriptors_max: descriptors::limit(),
            idle_bytes_max,
            streams_max,
            header_bytes_max,
            body_bytes_max,
            message_size: SizeLimit {
                bytes_max: message_bytes_max,
                ..NetLimits::default().message_size
            },
            refuses_unknown_fields,
            header_timeout: period("header_timeout_s", header_timeout_s)?,
            idle_timeout: period("idle_timeout_s", idle_timeout_s)?,
            body_timeout: period("body_timeout_s", body_timeout_s)?,
            keep_alive_timeout: period("keep_alive_timeout_s", keep_alive_timeout_s)?,
            cors_origins,
        };
        let request_timeout = request_timeout_s
            .map(|value| convert::duration("request_timeout_s", value))
            .transpose()?;
        Ok(Self { limits: Limits { limits, request_timeout } })
    }
}

/// A zero timeout would end everything before it begins.
fn period(name: &str, seconds: f64) -> PyResult<Duration> {
    let period = convert::duration(name, seconds)?;
    if period < PERIOD_MIN {
        return Err(PyValueError::new_err(format!(
            "{name} is {seconds}, use 0.001 or more seconds"
        )));
    }
    Ok(period)
}
