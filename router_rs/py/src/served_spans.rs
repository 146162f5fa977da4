//! `ServedSpans` and the span of a call that a server answers: no code of Python runs for one that
//! nobody looks at, and it is encoded when it is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use router_core::Nanos;
use router_net::dispatch::unix_now;
use router_net::otlp::{self, Answer, Served};
use router_net::server::ServedCall;
use router_net::trace_context::SpanId;

/// Answered calls that wait: 16 000 a second, where they are taken four times a second.
const WAITING_MAX: usize = 4096;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ServedSpans {
    queue: Arc<Queue>,
}

#[pymethods]
impl ServedSpans {
    #[new]
    fn new() -> Self {
        let (waiting, lost) = (ArrayQueue::new(WAITING_MAX), AtomicU64::new(0));
        Self { queue: Arc::new(Queue { waiting, lost }) }
    }

    fn take_spans<'py>(&self, py: Python<'py>, limit: usize) -> Vec<Bound<'py, PyBytes>> {
        // Other threads of Python go on while they are encoded.
        let encoded: Vec<Vec<u8>> = py.detach(|| self.queue.take(limit));
        encoded.iter().map(|span| PyBytes::new(py, span)).collect()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("without_spans", self.queue.lost.load(Ordering::Relaxed))?;
        Ok(dict)
    }
}

#[derive(Debug)]
struct Queue {
    waiting: ArrayQueue<Answered>,
    lost: AtomicU64,
}

impl Queue {
    fn push(&self, answered: Answered) {
        if self.waiting.push(answered).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, limit: usize) -> Vec<Vec<u8>> {
        let taken = std::iter::from_fn(|| self.waiting.pop()).take(limit);
        taken.filter_map(|answered| answered.span.encode(&answered.served_call)).collect()
    }
}

#[derive(Debug)]
struct Answered {
    served_call: Arc<ServedCall>,
    span: Arc<CallSpan>,
}

#[derive(Debug)]
struct End {
    at_unix: Nanos,
    code: u32,
    http_status: u16,
    details: String,
}

impl End {
    fn answer(&self) -> Answer<'_> {
        let Self { at_unix, code, http_status, ref details } = *self;
        Answer { at_unix, code, http_status, details }
    }
}

/// The span of one call.
#[derive(Debug)]
pub(crate) struct CallSpan {
    served: Served,
    queue: Arc<Queue>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open {
        /// What Python has of it. The call is known to it: both are free when the call has ended.
        span: Py<PyAny>,
        http_status: u16,
        /// It was read or added to, so that Python ends it.
        is_taken_over: bool,
    },
    Ended(End),
}

impl CallSpan {
    /// Begins now.
    pub(crate) fn new(spans: &ServedSpans, id: u64, span: Py<PyAny>) -> Self {
        Self {
            served: Served { span: SpanId::of(id), start_unix: unix_now() },
            queue: Arc::clone(&spans.queue),
            state: Mutex::new(State::Open { span, http_status: 0, is_taken_over: false }),
        }
    }

    /// What Python has of it, until it has ended.
    pub(crate) fn open_span(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state.lock() {
            State::Open { span, .. } => Some(span.clone_ref(py)),
            State::Ended(_) => None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state.lock(), State::Open { .. })
    }

    /// False: it has ended.
    pub(crate) fn take_over(&self) -> bool {
        match &mut *self.state.lock() {
            State::Open { is_taken_over, .. } => {
                *is_taken_over = true;
                true
            }
            State::Ended(_) => false,
        }
    }

    /// It as it stands; `None`: the call belongs to no trace.
    pub(crate) fn encode(&self, served_call: &ServedCall) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let answer = match &*state {
            State::Open { .. } => None,
            State::Ended(end) => Some(end.answer()),
        };
        otlp::span_of(served_call, self.served, answer)
    }

    pub(crate) fn note_http_status(&self, status: u16) {
        if let State::Open { http_status, .. } = &mut *self.state.lock() {
            *http_status = status;
        }
    }

    /// Only the first end counts.
    ///
    /// # Errors
    /// What Python raises to end the process; what a processor of the user's raises is logged.
    pub(crate) fn end(
        self: &Arc<Self>,
        py: Python<'_>,
        served_call: &Arc<ServedCall>,
        code: u32,
        details: &str,
    ) -> PyResult<()> {
        let at_unix = unix_now();
        let ended = {
            let mut state = self.state.lock();
            let State::Open { http_status, .. } = *state else { return Ok(()) };
            let end = End { at_unix, code, http_status, details: details.to_owned() };
            std::mem::replace(&mut *state, State::Ended(end))
        };
        let State::Open { span, is_taken_over: true, .. } = ended else {
            let (served_call, span) = (Arc::clone(served_call), Arc::clone(self));
            self.queue.push(Answered { served_call, span });
            return Ok(());
        };
        let encoded = self.encode(served_call).unwrap_or_default();
        let arguments = (at_unix.0, PyBytes::new(py, &encoded));
        match span.call_method1(py, intern!(py, "on_call_end"), arguments) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }
}
