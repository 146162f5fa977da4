//! `RouterSettings` and `CallOptions`: what a deployment, and what one call, wants of the router.

use http::HeaderValue;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_core::{EjectionConfig, Locality, PolicyKind, RetryConfig};
use router_net::dispatch;
use router_net::grpc::{Code, CodeSet};

use crate::convert;

/// Numbers that Python gives to callers are apart from those that the native half gives.
const PYTHON_CALLER: u64 = 1 << 63;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct RouterSettings {
    pub(crate) settings: dispatch::RouterSettings,
}

#[pymethods]
impl RouterSettings {
    #[new]
    #[pyo3(signature = (
        *, policy = "late_binding", prefer_node = false, prefer_zone = false, initial_backoff_s = 0.025,
        backoff_multiplier = 2.0, max_backoff_s = 0.5, slow_start_s = 0.0, retry_attempts_max = 1,
        retry_budget_percent = 20, hedging = false, ejection_fall = 5, ejection_rise = 2,
        ejection_interval_s = 5.0, retry_codes = None, load_bound = 1.25,
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        policy: &str,
        prefer_node: bool,
        prefer_zone: bool,
        initial_backoff_s: f64,
        backoff_multiplier: f64,
        max_backoff_s: f64,
        slow_start_s: f64,
        retry_attempts_max: u8,
        retry_budget_percent: u8,
        hedging: bool,
        ejection_fall: u32,
        ejection_rise: u32,
        ejection_interval_s: f64,
        retry_codes: Option<Vec<u32>>,
        load_bound: f64,
    ) -> PyResult<Self> {
        if !(backoff_multiplier.is_finite() && backoff_multiplier >= 1.0) {
            return Err(PyValueError::new_err("backoff_multiplier must be at least 1"));
        }
        if !(load_bound.is_finite() && load_bound > 1.0) {
            return Err(PyValueError::new_err("load_bound must be above 1"));
        }
        let defaults = dispatch::RouterSettings::default();
        let settings = dispatch::RouterSettings {
            policy: policy_kind(policy)?,
            load_bound,
            locality: Locality { prefer_node, prefer_zone },
            backoff_initial: convert::nanos("initial_backoff_s", initial_backoff_s)?,
            backoff_multiplier,
            backoff_max: convert::nanos("max_backoff_s", max_backoff_s)?,
            slow_start: convert::nanos("slow_start_s", slow_start_s)?,
            retries: RetryConfig {
                attempts_max: retry_attempts_max,
                budget_percent: retry_budget_percent,
            },
            retry_codes: retry_codes.map_or(defaults.retry_codes, |numbers| {
                CodeSet::of(&numbers.into_iter().map(Code::from_number).collect::<Vec<_>>())
            }),
            hedging,
            ejection: EjectionConfig {
                fall: ejection_fall,
                rise: ejection_rise,
                interval: convert::nanos("ejection_interval_s", ejection_interval_s)?,
                ..EjectionConfig::default()
            },
        };
        Ok(Self { settings })
    }
}

fn policy_kind(name: &str) -> PyResult<PolicyKind> {
    Ok(match name {
        "p2c" => PolicyKind::P2c,
        "least" => PolicyKind::Least,
        "round_robin" => PolicyKind::RoundRobin,
        "consistent_hash" => PolicyKind::ConsistentHash,
        "late_binding" => PolicyKind::LateBinding,
        "predicted" => PolicyKind::Predicted,
        other => return Err(PyValueError::new_err(format!("there is no policy {other:?}"))),
    })
}

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
    ))]
    fn new(
        session_id: &str,
        priority: i8,
        caller: u64,
        idempotent: bool,
        locality: Option<(bool, bool)>,
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
