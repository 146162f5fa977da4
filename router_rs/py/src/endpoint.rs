//! `Endpoint`: the ring as Python sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use router_net::grpc::Message;
use router_net::link::{CancelReason, Event, EventSink};

use crate::payload;
use crate::reservation::Reservation;
use crate::ring::{Ring, Told};
use crate::runtime::ensure_not_forked;
use crate::server_call::ServerCall;

pub(crate) const CALL: i32 = 0;
pub(crate) const MESSAGE: i32 = 1;
pub(crate) const HALF_CLOSE: i32 = 2;
pub(crate) const CANCEL: i32 = 3;
pub(crate) const WRITABLE: i32 = 4;
pub(crate) const INITIAL_METADATA: i32 = 5;
pub(crate) const DONE: i32 = 6;
pub(crate) const STATE: i32 = 7;
pub(crate) const CHOSEN: i32 = 8;
pub(crate) const TRACED_CALL: i32 = 9;

pub(crate) const CANCEL_CLIENT: i32 = 0;
pub(crate) const CANCEL_DEADLINE: i32 = 1;
pub(crate) const CANCEL_SHUTDOWN: i32 = 2;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) ring: Arc<Ring>,
}

#[pymethods]
impl Endpoint {
    #[new]
    fn new() -> PyResult<Self> {
        ensure_not_forked()?;
        Ok(Self { ring: Arc::new(Ring::new()?) })
    }

    fn fileno(&self) -> i32 {
        self.ring.descriptor()
    }

    fn drain<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        self.ring.begin_turn();
        let mut events = Vec::with_capacity(limit.min(64));
        while events.len() < limit {
            let Some((token, told)) = self.ring.pop() else { break };
            events.push(to_python(py, &self.ring, token, told)?);
        }
        self.ring.observe(events.len() as u64);
        PyList::new(py, events)
    }

    fn arm(&self) -> bool {
        self.ring.arm()
    }

    fn flush(&self) {
        self.ring.flush();
    }

    fn probe(&self, token: u64) {
        // Done on every call's path: it shows that the loop turns, and that it is still woken.
        self.ring.push(token, Event::Writable);
    }

    fn tell_traced(&self) {
        self.ring.tell_traced();
    }

    fn close(&self) {
        self.ring.close();
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = &self.ring.stats;
        let counters = [
            ("events", &stats.events),
            ("commands", &stats.commands),
            ("flushes", &stats.flushes),
            ("queue_length_max", &stats.queue_length_max),
        ];
        let dict = PyDict::new(py);
        dict.set_item("wakeups", self.ring.wakeups())?;
        for (name, counter) in counters {
            dict.set_item(name, counter.load(Ordering::Relaxed))?;
        }
        Ok(dict)
    }
}

/// The tuple `(kind, token, subject, payload)` of an event.
fn to_python<'py>(
    py: Python<'py>,
    ring: &Arc<Ring>,
    token: u64,
    told: Told,
) -> PyResult<Bound<'py, PyTuple>> {
    let (kind, subject, payload) = match told {
        Told::Call { served_call, message } => {
            let is_traced = ring.tells_traced() && !served_call.traceparent().is_empty();
            let kind = if is_traced { TRACED_CALL } else { CALL };
            let call = Bound::new(py, ServerCall::new(served_call, ring.clone()))?;
            (kind, call.into_any(), whole(py, message)?)
        }
        Told::Event(event) => read_event(py, event)?,
    };
    let (kind, token) = (kind.into_pyobject(py)?.into_any(), token.into_pyobject(py)?.into_any());
    PyTuple::new(py, [kind, token, subject, payload])
}

/// The kind, subject and payload of an event.
fn read_event(py: Python<'_>, event: Event) -> PyResult<(i32, Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let none = || py.None().into_bound(py);
    let number = |number: i32| number.into_pyobject(py).map(Bound::into_any);
    Ok(match event {
        Event::Message(message) => (MESSAGE, none(), payload::to_python(py, message)?.into_any()),
        Event::HalfClose => (HALF_CLOSE, none(), none()),
        Event::Cancel(reason) => (CANCEL, number(cancel_number(reason))?, none()),
        Event::Writable => (WRITABLE, none(), none()),
        Event::InitialMetadata => (INITIAL_METADATA, none(), none()),
        Event::Done(message) => (DONE, none(), whole(py, message)?),
        Event::Chosen(Ok(place)) => {
            (CHOSEN, Bound::new(py, Reservation { place })?.into_any(), none())
        }
        Event::Chosen(Err(status)) => {
            let details = status.message.into_pyobject(py)?.into_any();
            (DONE, number(i32::from(status.code.number()))?, details)
        }
        Event::State(state) => (STATE, number(i32::from(state))?, none()),
    })
}

/// A message, or `None` where the call has none.
fn whole(py: Python<'_>, message: Option<Message>) -> PyResult<Bound<'_, PyAny>> {
    match message {
        Some(message) => payload::to_python(py, message).map(Bound::into_any),
        None => Ok(py.None().into_bound(py)),
    }
}

fn cancel_number(reason: CancelReason) -> i32 {
    match reason {
        CancelReason::Client => CANCEL_CLIENT,
        CancelReason::Deadline => CANCEL_DEADLINE,
        CancelReason::Shutdown => CANCEL_SHUTDOWN,
    }
}
