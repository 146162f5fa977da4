//! `Server` and `ServerCall`: the native server as Python sees it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use router_net::grpc::{Code, Status, content_type};
use router_net::io::Work;
use router_net::link::{Command, Mailbox};
use router_net::server::{BatchState, Exchange, Method, Server as NetServer, ServerConfig};

use crate::convert::{
    self, encoding, encodings, limit_bytes, metadata_from_python, metadata_to_python,
};
use crate::descriptors;
use crate::endpoint::Endpoint;
use crate::http::{self, HttpHead};
use crate::measures;
use crate::payload;
use crate::ring::Ring;
use crate::runtime;
use crate::served_spans::{CallSpan, ServedSpans};
use crate::tls::ServerTls;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Server {
    server: NetServer,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (
        endpoint, *, max_receive_message_bytes = 4 << 20, max_send_message_bytes = -1,
        max_metadata_bytes = 16384, max_concurrent_calls = -1, max_concurrent_streams = 4096,
        max_idle_streams = 1000, default_compression = 0, enabled_compressions = None,
        keepalive_time_s = None,
        keepalive_timeout_s = 20.0, max_connection_age_s = None, idle_bytes_max = 50_331_648,
        trusted_proxies = Vec::new(), proxy_protocol = false, replica_id = "", token = Vec::new(),
        call_token = Vec::new(),
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        endpoint: &Endpoint,
        max_receive_message_bytes: i64,
        max_send_message_bytes: i64,
        max_metadata_bytes: u32,
        max_concurrent_calls: i64,
        max_concurrent_streams: u32,
        max_idle_streams: u32,
        default_compression: i32,
        enabled_compressions: Option<Vec<i32>>,
        keepalive_time_s: Option<f64>,
        keepalive_timeout_s: f64,
        max_connection_age_s: Option<f64>,
        idle_bytes_max: u64,
        trusted_proxies: Vec<String>,
        proxy_protocol: bool,
        replica_id: &str,
        token: Vec<u8>,
        call_token: Vec<u8>,
    ) -> PyResult<Self> {
        let config = ServerConfig {
            receive_bytes_max: limit_bytes(max_receive_message_bytes),
            send_bytes_max: limit_bytes(max_send_message_bytes),
            metadata_bytes_max: max_metadata_bytes,
            concurrent_calls_max: u32::try_from(max_concurrent_calls).ok(),
            idle_streams_max: max_idle_streams,
            concurrent_streams_max: max_concurrent_streams,
            default_encoding: encoding(default_compression)?,
            encodings: encodings(enabled_compressions.as_deref()),
            keepalive: convert::keepalive(keepalive_time_s, keepalive_timeout_s)?,
            connection_age_max: max_connection_age_s
                .map(|age| convert::duration("max_connection_age_s", age))
                .transpose()?,
            idle_bytes_max,
            descriptors_max: descriptors::limit(),
            proxies: convert::proxies(&trusted_proxies, proxy_protocol)?,
            replica_id: replica_id.to_owned(),
            token,
            call_token,
        };
        let server = NetServer::new(config, endpoint.ring.clone(), runtime::threads()?);
        Ok(Self { server })
    }

    #[pyo3(signature = (
        path, request_streaming, response_streaming, weight, *, subtypes = None,
        max_message_bytes = None, max_receive_message_bytes = None,
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn register(
        &self,
        path: &str,
        request_streaming: bool,
        response_streaming: bool,
        weight: u32,
        subtypes: Option<Vec<String>>,
        max_message_bytes: Option<i64>,
        max_receive_message_bytes: Option<i64>,
    ) -> PyResult<i32> {
        for name in subtypes.iter().flatten() {
            content_type(name).map_err(PyValueError::new_err)?;
        }
        let method = Method {
            index: -1,
            is_request_streaming: request_streaming,
            is_response_streaming: response_streaming,
            weight,
            subtypes: subtypes.map(Into::into),
            message_bytes_max: max_message_bytes.map(limit_bytes),
            receive_bytes_max: max_receive_message_bytes.map(limit_bytes),
        };
        Ok(self.server.register(path, method))
    }

    #[pyo3(signature = (*, weight = 1, whole_body_bytes_max = 65536))]
    fn register_http(&self, weight: u32, whole_body_bytes_max: usize) -> i32 {
        self.server.register_http(weight, whole_body_bytes_max)
    }

    fn register_turned_away(&self) -> i32 {
        self.server.register_turned_away()
    }

    fn register_descriptors(&self, files: Vec<Vec<u8>>) -> Vec<String> {
        let files: Vec<Bytes> = files.into_iter().map(Bytes::from).collect();
        self.server.register_descriptors(&files)
    }

    #[pyo3(signature = (address, tls, reuse_port, *, doors = false, in_mesh = false))]
    fn listen_tcp(
        &self,
        address: &str,
        tls: Option<&ServerTls>,
        reuse_port: bool,
        doors: bool,
        in_mesh: bool,
    ) -> PyResult<u16> {
        let tls = tls.map(|tls| Arc::clone(&tls.tls));
        let bound = match (in_mesh, doors) {
            (true, _) => self.server.listen_tcp(address, tls, reuse_port)?,
            (false, true) => self.server.listen_with_door(address, tls, reuse_port)?,
            (false, false) => self.server.listen_grpc(address, tls, reuse_port)?,
        };
        let port = bound.port();
        runtime::remember_listener(bound.descriptor, bound.address);
        Ok(port)
    }

    fn listen_unix(&self, path: &str) -> PyResult<()> {
        let bound = self.server.listen_unix(Path::new(path))?;
        runtime::remember_listener(bound.descriptor, bound.address);
        Ok(())
    }

    fn start(&self) -> PyResult<()> {
        runtime::ensure_not_forked()?;
        self.server.start();
        Ok(())
    }

    fn set_healthy(&self, is_healthy: bool) {
        self.server.set_healthy(is_healthy);
    }

    fn drain(&self, py: Python<'_>) {
        py.detach(|| self.server.drain());
    }

    fn finish(&self) -> bool {
        self.server.finish()
    }

    fn stop(&self) {
        self.server.stop();
    }

    fn in_flight(&self) -> u32 {
        self.server.in_flight()
    }

    fn set_max_concurrent_calls(&self, limit: i64) {
        self.server.set_concurrent_calls_max(u32::try_from(limit).ok());
    }

    fn set_models(&self, model_ids: Vec<String>) {
        self.server.set_models(model_ids);
    }

    #[pyo3(signature = (*, size_max, running, busy_s, window_s, step_fixed_s, step_per_call_s))]
    fn set_batch(
        &self,
        size_max: u32,
        running: u32,
        busy_s: Option<f64>,
        window_s: Option<f64>,
        step_fixed_s: f64,
        step_per_call_s: f64,
    ) -> PyResult<()> {
        let now = Instant::now();
        let until = |name, left: Option<f64>| match left {
            Some(left) => convert::duration(name, left).map(|left| Some(now + left)),
            None => Ok(None),
        };
        self.server.set_batch(Some(BatchState {
            size_max,
            running,
            busy_until: until("busy_s", busy_s)?,
            window_until: until("window_s", window_s)?,
            step_fixed: convert::nanos("step_fixed_s", step_fixed_s)?,
            step_per_call: convert::nanos("step_per_call_s", step_per_call_s)?,
        }));
        Ok(())
    }

    fn clear_batch(&self) {
        self.server.set_batch(None);
    }

    fn measures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (method, measures) in self.server.measures() {
            all.set_item(method, measures::of_method(py, &measures)?)?;
        }
        Ok(all)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.server.stats() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ServerCall {
    exchange: Arc<Exchange>,
    ring: Arc<Ring>,
    /// Of a sampled call, from its begin.
    span: OnceLock<Arc<CallSpan>>,
}

impl ServerCall {
    pub(crate) fn new(exchange: Arc<Exchange>, ring: Arc<Ring>) -> Self {
        Self { exchange, ring, span: OnceLock::new() }
    }

    fn end_span(&self, py: Python<'_>, code: Code, details: &str) -> PyResult<()> {
        let Some(span) = self.span.get() else { return Ok(()) };
        span.end(py, &self.exchange, code.number().into(), details)
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
        self.ring.queue(self.exchange.clone(), command)
    }

    /// An answer of the wrong kind is a mistake of this package.
    fn check_http(&self) -> PyResult<()> {
        if self.exchange.is_http {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this is a gRPC call, answer it with reply or finish"))
    }
}

#[pymethods]
impl ServerCall {
    #[getter]
    fn token(&self) -> u64 {
        self.exchange.link().token
    }

    #[getter]
    fn method(&self) -> i32 {
        self.exchange.method
    }

    #[getter]
    fn path(&self) -> &str {
        self.exchange.path()
    }

    #[getter]
    fn host(&self) -> &str {
        self.exchange.host()
    }

    #[getter]
    fn peer(&self) -> String {
        self.exchange.connection.peer.uri()
    }

    #[getter]
    fn subtype(&self) -> Cow<'_, str> {
        self.exchange.subtype()
    }

    #[getter]
    fn trusted(&self) -> bool {
        self.exchange.connection.is_trusted()
    }

    #[getter]
    fn framed(&self) -> bool {
        self.exchange.is_framed()
    }

    #[getter]
    fn model_id(&self) -> Cow<'_, str> {
        self.exchange.model_id()
    }

    #[getter]
    fn traceparent(&self) -> &str {
        self.exchange.traceparent()
    }

    fn trace_headers(&self) -> (&str, Cow<'_, str>, Cow<'_, str>) {
        let exchange = &self.exchange;
        (exchange.traceparent(), exchange.tracestate(), exchange.baggage())
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
        let encoded = self.begun_span()?.encode(&self.exchange);
        let encoded = encoded.ok_or_else(|| PyValueError::new_err("the call belongs to no trace"));
        Ok(PyBytes::new(py, &encoded?))
    }

    #[getter]
    fn is_asked(&self) -> bool {
        self.exchange.is_asked()
    }

    fn elapsed(&self) -> f64 {
        self.exchange.elapsed().as_secs_f64()
    }

    fn set_response_subtype(&self, subtype: &str) -> PyResult<()> {
        let value = content_type(subtype).map_err(PyValueError::new_err)?;
        // It goes with the answer, whose command wakes the thread: Python need not be told.
        let thread = self.exchange.link().thread();
        thread.queue(Work::Deliver(self.exchange.clone(), Command::ContentType(value)));
        Ok(())
    }

    fn http_head(&self) -> PyResult<HttpHead> {
        self.check_http()?;
        Ok(HttpHead::new(self.exchange.clone()))
    }

    fn http_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.check_http()?;
        http::fields(py, &self.exchange)
    }

    fn respond(
        &self,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.check_http()?;
        let status = http::status_from_python(&self.exchange, status)?;
        let headers = http::headers_from_python(headers)?;
        let py = body.py();
        let body = payload::from_python(body, &self.ring)?;
        http::check_length(&self.exchange, status, &headers, body.len())?;
        let must_flush = self.queue(Command::Respond { status, headers, body });
        self.note_http_status(status.as_u16());
        self.end_span(py, Code::Ok, "")?;
        Ok(must_flush)
    }

    fn start_response(&self, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check_http()?;
        let status = http::status_from_python(&self.exchange, status)?;
        let headers = http::headers_from_python(headers)?;
        self.note_http_status(status.as_u16());
        Ok(self.queue(Command::StartResponse { status, headers }))
    }

    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let shows_mesh = self.exchange.connection.shows_mesh_headers();
        metadata_to_python(py, &self.exchange.head.headers, shows_mesh)
    }

    fn auth_context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::auth_context::auth_context(py, &self.exchange.connection)
    }

    fn time_remaining(&self) -> Option<f64> {
        let deadline = self.exchange.link().deadline?;
        Some(deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    fn is_active(&self) -> bool {
        !self.exchange.link().is_ended()
    }

    fn reply(&self, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        let payload = payload::from_python(message, &self.ring)?;
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
        self.exchange.link().begin_write(payload.len());
        let may_compress = compression != convert::IDENTITY;
        Ok(self.queue(Command::Message { payload, may_compress }))
    }

    fn writable(&self) -> bool {
        self.exchange.link().is_writable()
    }

    fn taken(&self, size: usize) -> bool {
        self.exchange.link().take(size) && self.queue(Command::Resume)
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
        let must_flush = self.queue(Command::Finish { status, metadata, message });
        self.end_span(trailing_metadata.py(), code, &said)?;
        Ok(must_flush)
    }

    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        let is_late = self.time_remaining() == Some(0.0);
        let code = if is_late { Code::DeadlineExceeded } else { Code::Cancelled };
        let must_flush = self.queue(Command::Release);
        self.end_span(py, code, "")?;
        Ok(must_flush)
    }
}
