//! `CallRecords` and `CallRecord`: finished calls that are worth keeping.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use router_core::Nanos;
use router_net::dispatch::{self, RecordStats};
use router_net::otlp;
use router_net::trace_context::SpanId;

use crate::record_fields::Fields;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct CallRecords {
    pub(crate) records: Arc<dispatch::CallRecords>,
}

#[pymethods]
impl CallRecords {
    #[new]
    #[pyo3(signature = (*, sampling_ratio = Some(0.0), slowest = 1000, samples_root = true))]
    fn new(sampling_ratio: Option<f64>, slowest: usize, samples_root: bool) -> PyResult<Self> {
        let ratio = check_ratio(sampling_ratio)?;
        let records = dispatch::CallRecords::new(ratio, slowest, samples_root);
        Ok(Self { records: Arc::new(records) })
    }

    fn set_sampling_ratio(&self, ratio: Option<f64>) -> PyResult<()> {
        self.records.set_sampling_ratio(check_ratio(ratio)?);
        Ok(())
    }

    fn set_keep_all(&self, on: bool) {
        self.records.set_keeps_all(on);
    }

    fn take(&self, py: Python<'_>, limit: usize) -> Vec<CallRecord> {
        let taken = py.detach(|| self.records.take(limit));
        taken.into_iter().map(|record| CallRecord { record }).collect()
    }

    fn take_spans<'py>(&self, py: Python<'py>, limit: usize) -> Vec<Bound<'py, PyBytes>> {
        // Other Python threads run while they are encoded.
        let encoded: Vec<Vec<u8>> = py.detach(|| {
            let taken = self.records.take_unsent(limit);
            taken.iter().flat_map(|record| otlp::spans_of(record)).collect()
        });
        encoded.iter().map(|span| PyBytes::new(py, span)).collect()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let RecordStats { recorded, dropped, waiting, without_spans } = self.records.stats();
        let dict = PyDict::new(py);
        for (name, count) in [
            ("recorded", recorded),
            ("dropped", dropped),
            ("waiting", waiting),
            ("without_spans", without_spans),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }
}

fn check_ratio(ratio: Option<f64>) -> PyResult<Option<f64>> {
    match ratio {
        Some(ratio) if !(0.0..=1.0).contains(&ratio) => {
            let text = format!("sampling_ratio is {ratio}, use a number from 0 to 1, or None");
            Err(PyValueError::new_err(text))
        }
        ratio => Ok(ratio),
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct CallRecord {
    record: Arc<dispatch::CallRecord>,
}

type Attempt<'py> = (String, Bound<'py, PyBytes>, u64, i64, u64, &'static str, &'static str);

#[pymethods]
impl CallRecord {
    #[staticmethod]
    fn of(fields: Fields) -> PyResult<Self> {
        Ok(Self { record: Arc::new(fields.into_record()?) })
    }

    fn encode_spans<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        otlp::spans_of(&self.record).iter().map(|span| PyBytes::new(py, span)).collect()
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.record.request_id
    }

    #[getter]
    fn kept_for(&self) -> &'static str {
        self.record.kept_for.word()
    }

    #[getter]
    fn trace_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes(py, self.record.trace.map(|trace| trace.trace.to_bytes()))
    }

    #[getter]
    fn span_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes(py, self.record.trace.and_then(|trace| Some(trace.span?.to_bytes())))
    }

    #[getter]
    fn parent_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes(py, self.record.trace.and_then(|trace| Some(trace.parent?.to_bytes())))
    }

    #[getter]
    fn tracestate(&self) -> &str {
        &self.record.tracestate
    }

    #[getter]
    fn is_sampled(&self) -> bool {
        self.record.is_sampled
    }

    #[getter]
    fn door(&self) -> &'static str {
        self.record.door
    }

    #[getter]
    fn method(&self) -> &str {
        &self.record.method
    }

    #[getter]
    fn path(&self) -> &str {
        &self.record.path
    }

    #[getter]
    fn application(&self) -> &str {
        &self.record.application
    }

    #[getter]
    fn deployment(&self) -> &str {
        &self.record.deployment
    }

    #[getter]
    fn peer(&self) -> &str {
        &self.record.peer
    }

    #[getter]
    fn model_id(&self) -> &str {
        &self.record.model_id
    }

    #[getter]
    fn start_unix_ns(&self) -> u64 {
        self.record.start_unix.0
    }

    #[getter]
    fn duration_ns(&self) -> u64 {
        self.record.duration.0
    }

    #[getter]
    fn parked_ns(&self) -> u64 {
        self.record.parked.0
    }

    #[getter]
    fn first_byte_ns(&self) -> i64 {
        or_never(self.record.first_byte)
    }

    #[getter]
    fn code(&self) -> u8 {
        self.record.code
    }

    #[getter]
    fn http_status(&self) -> u16 {
        self.record.http_status
    }

    #[getter]
    fn refused(&self) -> &'static str {
        self.record.refused
    }

    #[getter]
    fn answered_by(&self) -> &'static str {
        self.record.answered_by
    }

    #[getter]
    fn reason(&self) -> &str {
        &self.record.reason
    }

    #[getter]
    fn request_bytes(&self) -> u64 {
        self.record.request_bytes
    }

    #[getter]
    fn response_bytes(&self) -> u64 {
        self.record.response_bytes
    }

    #[getter]
    fn explanation(&self) -> &str {
        &self.record.explanation
    }

    #[getter]
    fn attempts<'py>(&self, py: Python<'py>) -> Vec<Attempt<'py>> {
        let attempts = self.record.attempts.iter();
        attempts
            .map(|attempt| {
                let span = bytes(py, attempt.span.map(SpanId::to_bytes));
                let (id, head) = (attempt.replica_id.clone(), or_never(attempt.head));
                (id, span, attempt.start.0, head, attempt.end.0, attempt.why, attempt.outcome)
            })
            .collect()
    }

    fn __repr__(&self) -> String {
        let dispatch::CallRecord { request_id, kept_for, method, duration, .. } = &*self.record;
        let kept_for = kept_for.word();
        format!("<CallRecord {request_id} {method}, {kept_for}, {duration}>")
    }
}

fn bytes<const N: usize>(py: Python<'_>, id: Option<[u8; N]>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, id.as_ref().map_or(&[], |id| &id[..]))
}

fn or_never(at: Option<Nanos>) -> i64 {
    at.map_or(-1, |at| i64::try_from(at.0).unwrap_or(i64::MAX))
}
