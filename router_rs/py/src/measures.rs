//! Times and counts as dictionaries, for metrics.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use router_core::{Histogram, Nanos, ReleaseCause};
use router_net::dispatch::DeploymentMeasures;
use router_net::server::MethodMeasures;

/// See `RoutingTable.measures`.
pub(crate) fn of_deployment<'py>(
    py: Python<'py>,
    measures: &DeploymentMeasures,
) -> PyResult<Bound<'py, PyDict>> {
    let DeploymentMeasures { router, ends, replica_ids, .. } = measures;
    let dict = PyDict::new(py);
    dict.set_item("codes", counts(py, ends.codes.iter().copied())?)?;
    dict.set_item("http", counts(py, ends.http.iter().copied())?)?;
    dict.set_item("left", ends.left)?;
    dict.set_item("refused", counts(py, ends.refused.iter().copied())?)?;
    dict.set_item("request_bytes", ends.request_bytes)?;
    dict.set_item("response_bytes", ends.response_bytes)?;
    let releases = ReleaseCause::ALL.map(ReleaseCause::word).into_iter().zip(router.releases);
    dict.set_item("releases", counts(py, releases)?)?;
    let tiers = ["node", "zone", "any"].into_iter().zip(router.sent_by_tier);
    dict.set_item("sent_by_tier", counts(py, tiers)?)?;
    dict.set_item("kept_wrongly_s", seconds(router.kept_wrongly))?;
    let (sent, failed, attempts) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    for replica in &router.replicas {
        // Those that have left the table have no name.
        if let Some((_, name)) = replica_ids.iter().find(|(id, _)| *id == replica.id) {
            sent.set_item(name, replica.sent)?;
            failed.set_item(name, replica.failed)?;
            attempts.set_item(name, histogram(py, &replica.attempts)?)?;
        }
    }
    dict.set_item("sent", sent)?;
    dict.set_item("failed", failed)?;
    dict.set_item("attempts", attempts)?;
    for (name, times) in [
        ("latency_ok", &router.answered),
        ("latency_failed", &router.failed),
        ("parked_wait", &router.waits),
        ("prediction_early", &router.early),
        ("prediction_late", &router.late),
    ] {
        dict.set_item(name, histogram(py, times)?)?;
    }
    Ok(dict)
}

/// See `Server.measures`.
pub(crate) fn of_method<'py>(
    py: Python<'py>,
    measures: &MethodMeasures,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let codes = (0_u8..).zip(measures.codes).filter(|(_, count)| *count > 0);
    dict.set_item("codes", counts(py, codes)?)?;
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(measures.http);
    dict.set_item("http", counts(py, classes)?)?;
    dict.set_item("left", measures.left)?;
    dict.set_item("latency", histogram(py, &measures.latency)?)?;
    dict.set_item("request_bytes", measures.request_bytes)?;
    dict.set_item("response_bytes", measures.response_bytes)?;
    Ok(dict)
}

pub(crate) fn counts<'py, K: IntoPyObject<'py>>(
    py: Python<'py>,
    counts: impl IntoIterator<Item = (K, u64)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in counts {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}

fn histogram<'py>(py: Python<'py>, times: &Histogram) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("buckets", Histogram::BOUNDS.map(seconds).to_vec())?;
    dict.set_item("counts", times.counts().to_vec())?;
    dict.set_item("sum", seconds(times.sum()))?;
    Ok(dict)
}

fn seconds(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e9
}
