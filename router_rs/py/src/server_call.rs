//! `ServerCall`: a call of the native server as Python sees it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::http::{HeaderMap, HeaderValue, StatusCode};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use router_net::FilePart;
use router_net::grpc::{Code, Message, Status, content_type};
use router_net::link::{Command, Mailbox, post};
use router_net::names;
use router_net::server::{FILE_EXTRA_BYTES, ServedCall};

use crate::convert::{self, encoding, metadata_from_python, metadata_to_python};
use crate::files::OpenFile;
use crate::http::{self, HttpHead};
use crate::payload;
use crate::ring::Ring;
use crate::served_spans::{CallSpan, ServedSpans};

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ServerCall {
    served_call: Arc<ServedCall>,
    ring: Arc<Ring>,
    /// The loop's turn in which it came.
    turn: u64,
    /// Python has answered it, or let go of it.
    is_over: AtomicBool,
    /// Of a sampled call, from its begin.
    span: OnceLock<Arc<CallSpan>>,
}

impl ServerCall {
    pub(crate) fn new(served_call: Arc<ServedCall>, ring: Arc<Ring>) -> Self {
        ring.count_call(true);
        let (turn, is_over) = (ring.turn(), AtomicBool::new(false));
        Self { served_call, ring, turn, is_over, span: OnceLock::new() }
    }

    fn end_span(&self, py: Python<'_>, code: Code, details: &str) -> PyResult<()> {
        let Some(span) = self.span.get() else { return Ok(()) };
        span.end(py, &self.served_call, code.number().into(), details)
    }

    fn note_http_status(&self, status: u16) {
        if let Some(span) = self.span.get() {
            span.note_http_status(status);
        }
    }

    fn begun_span(&self) -> PyResult<&CallSpan> {
        let span = self.span.get().ok_or_else(|| PyRuntimeError::new_err("it has no span"));
        span.map(Arc::as_ref)
    }

    fn queue(&self, command: Command) -> bool {
        self.ring.queue(self.served_call.clone(), command)
    }

    /// The answer is about to be whole: says so if the loop did nothing else since the call came.
    fn note_work(&self) {
        if let Some(worked) = self.ring.worked_alone(self.turn) {
            self.served_call.note_alone(worked);
        }
        self.note_over();
    }

    fn note_over(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.ring.count_call(false);
        }
    }

    /// An answer of the wrong kind is a mistake of this package.
    fn check_http(&self) -> PyResult<()> {
        if self.served_call.is_http {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this is a gRPC call, answer it with reply or finish"))
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.note_over();
    }
}

#[pymethods]
impl ServerCall {
    fn note_cost(&self, cost: f64) -> PyResult<()> {
        self.served_call.note_cost(convert::cost("cost", cost)?);
        Ok(())
    }

    #[getter]
    fn token(&self) -> u64 {
        self.served_call.link().token
    }

    #[getter]
    fn method(&self) -> i32 {
        self.served_call.method
    }

    #[getter]
    fn path(&self) -> &str {
        self.served_call.path()
    }

    #[getter]
    fn host(&self) -> &str {
        self.served_call.host()
    }

    #[getter]
    fn peer(&self) -> String {
        self.served_call.connection.peer.uri()
    }

    #[getter]
    fn subtype(&self) -> Cow<'_, str> {
        self.served_call.subtype()
    }

    #[getter]
    fn trusted(&self) -> bool {
        self.served_call.connection.is_trusted()
    }

    #[getter]
    fn framed(&self) -> bool {
        self.served_call.is_framed()
    }

    #[getter]
    fn model_id(&self) -> Cow<'_, str> {
        self.served_call.model_id()
    }

    #[getter]
    fn traceparent(&self) -> &str {
        self.served_call.traceparent()
    }

    fn trace_headers(&self) -> (&str, Cow<'_, str>, Cow<'_, str>) {
        let served_call = &self.served_call;
        (served_call.traceparent(), served_call.tracestate(), served_call.baggage())
    }

    fn begin_span(&self, spans: &ServedSpans, span_id: u64, span: Py<PyAny>) -> PyResult<()> {
        let span = Arc::new(CallSpan::new(spans, span_id, span));
        self.span.set(span).map_err(|_| PyRuntimeError::new_err("the call has a span"))
    }

    #[getter]
    fn span(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.span.get()?.open_span(py)
    }

    #[getter]
    fn has_open_span(&self) -> bool {
        self.span.get().is_some_and(|span| span.is_open())
    }

    fn take_over_span(&self) -> PyResult<bool> {
        Ok(self.begun_span()?.take_over())
    }

    fn encode_span<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let encoded = self.begun_span()?.encode(&self.served_call);
        let encoded = encoded.ok_or_else(|| PyValueError::new_err("the call belongs to no trace"));
        Ok(PyBytes::new(py, &encoded?))
    }

    #[getter]
    fn is_asked(&self) -> bool {
        self.served_call.is_asked()
    }

    fn elapsed(&self) -> f64 {
        self.served_call.elapsed().as_secs_f64()
    }

    fn set_response_subtype(&self, subtype: &str) -> PyResult<()> {
        let value = content_type(subtype).map_err(PyValueError::new_err)?;
        // It goes with the answer, whose command wakes the thread: Python need not be told.
        post(self.served_call.clone(), Command::ContentType(value));
        Ok(())
    }

    fn http_head(&self) -> PyResult<HttpHead> {
        self.check_http()?;
        Ok(HttpHead::new(self.served_call.clone()))
    }

    fn http_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.check_http()?;
        http::fields(py, &self.served_call)
    }

    fn respond(
        &self,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.check_http()?;
        let status = http::status_from_python(&self.served_call, status)?;
        let headers = http::headers_from_python(headers)?;
        let py = body.py();
        let body = payload::from_python(body, &self.ring)?;
        http::check_length(&self.served_call, status, &headers, body.len())?;
        self.note_work();
        let must_flush = self.queue(Command::Respond { status, headers, body });
        self.note_http_status(status.as_u16());
        self.end_span(py, Code::Ok, "")?;
        Ok(must_flush)
    }

    fn refuse(&self, py: Python<'_>) -> PyResult<bool> {
        self.check_http()?;
        let mut headers = HeaderMap::new();
        if self.served_call.connection.is_trusted() {
            headers.insert(names::REFUSED, HeaderValue::from_static("1"));
        }
        self.note_work();
        let (status, body) = (StatusCode::SERVICE_UNAVAILABLE, Message::default());
        let must_flush = self.queue(Command::Respond { status, headers, body });
        self.note_http_status(status.as_u16());
        self.end_span(py, Code::Unavailable, "")?;
        Ok(must_flush)
    }

    fn tell_start(&self) -> bool {
        self.served_call.tells_start() && self.queue(Command::TellStart)
    }

    fn start_response(&self, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check_http()?;
        let status = http::status_from_python(&self.served_call, status)?;
        let headers = http::headers_from_python(headers)?;
        self.note_http_status(status.as_u16());
        Ok(self.queue(Command::StartResponse { status, headers }))
    }

    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let shows_mesh = self.served_call.connection.shows_mesh_headers();
        metadata_to_python(py, &self.served_call.head.headers, shows_mesh)
    }

    fn auth_context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::auth_context::auth_context(py, &self.served_call.connection)
    }

    fn time_remaining(&self) -> Option<f64> {
        let deadline = self.served_call.link().deadline?;
        Some(deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    fn is_active(&self) -> bool {
        !self.served_call.link().is_ended()
    }

    fn reply(&self, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        let payload = payload::from_python(message, &self.ring)?;
        self.note_work();
        let must_flush = self.queue(Command::Reply(payload));
        self.end_span(message.py(), Code::Ok, "")?;
        Ok(must_flush)
    }

    fn send_initial_metadata(
        &self,
        metadata: &Bound<'_, PyAny>,
        compression: i32,
    ) -> PyResult<bool> {
        let block = metadata_from_python(metadata)?;
        Ok(self.queue(Command::InitialMetadata(block, encoding(compression)?)))
    }

    fn write(&self, message: &Bound<'_, PyAny>, compression: i32) -> PyResult<bool> {
        let payload = payload::from_python(message, &self.ring)?;
        self.served_call.link().begin_write(payload.len());
        let may_compress = compression != convert::IDENTITY;
        let piece = Command::Message { payload, may_compress };
        Ok(self.ring.queue_piece(self.served_call.clone(), piece))
    }

    fn send_file(&self, file: &OpenFile, offset: u64, length: u64) -> PyResult<bool> {
        self.check_http()?;
        let part = FilePart::new(file.take()?, offset, length);
        self.served_call.link().begin_write(part.left() + FILE_EXTRA_BYTES);
        Ok(self.queue(Command::File(part)))
    }

    #[getter]
    fn file_error(&self) -> Option<String> {
        self.served_call.file_error().map(ToString::to_string)
    }

    fn writable(&self) -> bool {
        self.served_call.link().is_writable()
    }

    fn taken(&self, size: usize) -> bool {
        self.served_call.link().take(size) && self.queue(Command::Resume)
    }

    #[pyo3(signature = (code, details, trailing_metadata, message))]
    fn finish(
        &self,
        code: u32,
        details: String,
        trailing_metadata: &Bound<'_, PyAny>,
        message: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let metadata = metadata_from_python(trailing_metadata)?;
        let message =
            message.map(|message| payload::from_python(message, &self.ring)).transpose()?;
        let code = Code::from_number(code);
        let said = self.span.get().map(|_| details.clone()).unwrap_or_default();
        let status = Status::new(code, details);
        self.note_work();
        let must_flush = self.queue(Command::Finish { status, metadata, message });
        self.end_span(trailing_metadata.py(), code, &said)?;
        Ok(must_flush)
    }

    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        let is_late = self.time_remaining() == Some(0.0);
        let code = if is_late { Code::DeadlineExceeded } else { Code::Cancelled };
        self.note_over();
        let must_flush = self.queue(Command::Release);
        self.end_span(py, code, "")?;
        Ok(must_flush)
    }
}
