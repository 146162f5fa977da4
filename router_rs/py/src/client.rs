//! `Channel` and `ClientCall`: the native client as Python sees it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use router_net::client::{self, ChannelConfig, NewCall, NewChoice};
use router_net::dispatch::Placement;
use router_net::grpc::content_type;
use router_net::link::{Command, Mailbox};
use router_net::names;

use crate::convert::{
    self, encoding, encodings, limit_bytes, metadata_from_python, metadata_to_python,
};
use crate::endpoint::Endpoint;
use crate::payload;
use crate::reservation::Reservation;
use crate::ring::Ring;
use crate::routing::CallOptions;
use crate::runtime;
use crate::table::RoutingTable;
use crate::tls::ClientTls;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Channel {
    channel: client::Channel,
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (
        target, *, tls = None, table = None, authority = None, user_agent = String::new(),
        max_receive_message_bytes = 4 << 20, max_send_message_bytes = -1, default_compression = 0,
        enabled_compressions = None, keepalive_time_s = None, keepalive_timeout_s = 20.0,
        reconnect_backoff_initial_s = 1.0, reconnect_backoff_max_s = 120.0,
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        target: &str,
        tls: Option<&ClientTls>,
        table: Option<&RoutingTable>,
        authority: Option<String>,
        user_agent: String,
        max_receive_message_bytes: i64,
        max_send_message_bytes: i64,
        default_compression: i32,
        enabled_compressions: Option<Vec<i32>>,
        keepalive_time_s: Option<f64>,
        keepalive_timeout_s: f64,
        reconnect_backoff_initial_s: f64,
        reconnect_backoff_max_s: f64,
    ) -> PyResult<Self> {
        let config = ChannelConfig {
            authority,
            user_agent,
            receive_bytes_max: limit_bytes(max_receive_message_bytes),
            send_bytes_max: limit_bytes(max_send_message_bytes),
            default_encoding: encoding(default_compression)?,
            encodings: encodings(enabled_compressions.as_deref()),
            tls: tls.map(|tls| Arc::clone(&tls.tls)),
            keepalive: convert::keepalive(keepalive_time_s, keepalive_timeout_s)?,
            reconnect: convert::reconnect(reconnect_backoff_initial_s, reconnect_backoff_max_s)?,
        };
        let threads = runtime::threads()?;
        let channel = match table {
            None => client::Channel::to_address(target, config, threads),
            Some(table) => {
                client::Channel::to_deployment(target, table.table.clone(), config, threads)
            }
        };
        Ok(Self { channel: channel.map_err(|error| PyValueError::new_err(error.to_string()))? })
    }

    #[pyo3(signature = (
        endpoint, path, metadata, timeout_s, message, compression, wait_for_ready,
        response_streaming, *, subtype = "", framed = false, model_id = "",
        replica_id = "", reservation = None, options = None,
    ))]
    #[allow(clippy::too_many_arguments)] // one call from Python instead of several
    fn start_call(
        &self,
        endpoint: &Endpoint,
        path: String,
        metadata: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        message: Option<&Bound<'_, PyAny>>,
        compression: i32,
        wait_for_ready: bool,
        response_streaming: bool,
        subtype: &str,
        framed: bool,
        model_id: &str,
        replica_id: &str,
        reservation: Option<&Reservation>,
        options: Option<&CallOptions>,
    ) -> PyResult<ClientCall> {
        let placement = self.placement(replica_id, reservation)?;
        let ring = &endpoint.ring;
        let mut metadata = metadata_from_python(metadata)?;
        if framed {
            metadata.insert(names::FRAMING, HeaderValue::from_static("1"));
        }
        if !model_id.is_empty() {
            metadata.insert(names::MODEL_ID, model_id_value(model_id)?);
        }
        if let Some(session) = options.and_then(|options| options.session.as_ref()) {
            metadata.insert(names::SESSION_ID, session.clone());
        }
        if let Some(keys) = options.and_then(|options| options.cache_header.as_ref()) {
            metadata.insert(names::CACHE_KEYS, keys.clone());
        }
        let new = NewCall {
            path,
            metadata,
            content_type: content_type(subtype).map_err(PyValueError::new_err)?,
            timeout: timeout_s.map(convert::timeout),
            message: message.map(|message| payload::from_python(message, ring)).transpose()?,
            encoding: if compression < 0 { None } else { Some(encoding(compression)?) },
            wait_for_ready,
            placement,
            options: options.map_or_else(Default::default, |options| options.options),
            is_response_streaming: response_streaming,
        };
        let ring = ring.clone();
        let call = self.channel.start(ring.clone(), new);
        let is_first = ring.note(self.channel.thread().clone());
        // The loop may not reach its flush for a long time: user code holds it.
        self.channel.thread().look_soon();
        Ok(ClientCall { call, ring, is_first })
    }

    /// `path` will matter when methods have limits of their own.
    #[pyo3(signature = (endpoint, path, timeout_s, model_id, options = None))]
    #[allow(unused_variables)]
    fn choose(
        &self,
        endpoint: &Endpoint,
        path: &str,
        timeout_s: Option<f64>,
        model_id: String,
        options: Option<&CallOptions>,
    ) -> PyResult<(u64, bool)> {
        self.ensure_table()?;
        let ring = endpoint.ring.clone();
        let new = NewChoice {
            timeout: timeout_s.map(convert::timeout),
            model: model_id,
            session: options.map_or_else(String::new, CallOptions::session),
            cache_keys: options.map_or_else(Vec::new, |options| options.cache_keys.clone()),
            options: options.map_or_else(Default::default, |options| options.options),
        };
        let token = self.channel.choose(ring.clone(), new);
        Ok((token, ring.note(self.channel.thread().clone())))
    }

    fn state(&self, try_to_connect: bool) -> u8 {
        self.channel.state(try_to_connect) as u8
    }

    fn watch_state(&self, endpoint: &Endpoint, last_state: u8) -> u64 {
        self.channel.watch_state(endpoint.ring.clone(), last_state)
    }

    fn close(&self) {
        self.channel.close();
    }
}

fn model_id_value(model_id: &str) -> PyResult<HeaderValue> {
    HeaderValue::from_str(model_id)
        .map_err(|_| PyValueError::new_err(format!("model_id {model_id:?} has control characters")))
}

impl Channel {
    fn placement(
        &self,
        replica_id: &str,
        reservation: Option<&Reservation>,
    ) -> PyResult<Placement> {
        let placement = match (replica_id.is_empty(), reservation) {
            (true, None) => return Ok(Placement::Any),
            (false, None) => Placement::Replica(replica_id.to_owned()),
            (true, Some(reservation)) => Placement::Reserved(reservation.place.clone()),
            (false, Some(_)) => {
                let text = "replica_id and reservation both say where to go, give one of them";
                return Err(PyValueError::new_err(text));
            }
        };
        self.ensure_table().map(|()| placement)
    }

    fn ensure_table(&self) -> PyResult<()> {
        if self.channel.is_to_deployment() {
            return Ok(());
        }
        let text = "the channel leads to an address: replicas can be chosen only with a table";
        Err(PyValueError::new_err(text))
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct ClientCall {
    call: Arc<client::ClientCall>,
    ring: Arc<Ring>,
    is_first: bool,
}

impl ClientCall {
    fn queue(&self, command: Command) -> bool {
        self.ring.queue(self.call.clone(), command)
    }
}

#[pymethods]
impl ClientCall {
    #[getter]
    fn token(&self) -> u64 {
        self.call.link().token
    }

    #[getter]
    fn started(&self) -> bool {
        self.is_first
    }

    fn peer(&self) -> &str {
        self.call.peer()
    }

    fn write(&self, message: &Bound<'_, PyAny>, compression: i32) -> PyResult<bool> {
        let payload = payload::from_python(message, &self.ring)?;
        self.call.link().begin_write(payload.len());
        let may_compress = compression != convert::IDENTITY;
        let piece = Command::Message { payload, may_compress };
        Ok(self.ring.queue_piece(self.call.clone(), piece))
    }

    fn writable(&self) -> bool {
        self.call.link().is_writable()
    }

    fn half_close(&self) -> bool {
        self.queue(Command::HalfClose)
    }

    fn taken(&self, size: usize) -> bool {
        self.call.link().take(size) && self.queue(Command::Resume)
    }

    fn cancel(&self, _code: u32, _details: &str) -> bool {
        self.queue(Command::Cancel)
    }

    fn time_remaining(&self) -> Option<f64> {
        let deadline = self.call.link().deadline?;
        Some(deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    fn initial_metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let block = self.call.initial_metadata();
        block.map(|block| metadata_to_python(py, block, true)).transpose()
    }

    fn subtype(&self) -> Option<Cow<'_, str>> {
        self.call.subtype()
    }

    fn code(&self) -> Option<u8> {
        self.call.status().map(|status| status.code.number())
    }

    fn details(&self) -> Option<&str> {
        self.call.status().map(|status| status.message.as_str())
    }

    fn debug_error_string(&self) -> PyResult<String> {
        let status = self.call.status();
        let status = status.ok_or_else(|| PyRuntimeError::new_err("the call is not over"))?;
        Ok(format!("{:?} from {}: {}", status.code, self.call.peer(), status.message))
    }

    fn retry_after_s(&self) -> Option<f64> {
        self.call.status()?.pushback.map(|delay| delay.as_secs_f64())
    }

    fn trailing_metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let block = self.call.trailing_metadata();
        block.map(|block| metadata_to_python(py, block, true)).transpose()
    }
}
