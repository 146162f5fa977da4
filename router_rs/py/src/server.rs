//! `Server`: the native server as Python sees it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use router_net::grpc::content_type;
use router_net::server::{BatchState, CostState, Method, Server as NetServer, ServerConfig};

use crate::convert::{self, encoding, encodings, limit_bytes};
use crate::descriptors;
use crate::endpoint::Endpoint;
use crate::measures;
use crate::routing::{hashed_key, hashed_keys};
use crate::runtime;
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
        keepalive_timeout_s = 20.0, max_connection_age_s = None, max_connection_grace_s = None,
        max_connection_idle_s = None, idle_bytes_max = 50_331_648,
        trusted_proxies = Vec::new(), proxy_protocol = false, replica_id = "", token = Vec::new(),
        call_token = Vec::new(), maps_shared_memory = true,
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
        max_connection_grace_s: Option<f64>,
        max_connection_idle_s: Option<f64>,
        idle_bytes_max: u64,
        trusted_proxies: Vec<String>,
        proxy_protocol: bool,
        replica_id: &str,
        token: Vec<u8>,
        call_token: Vec<u8>,
        maps_shared_memory: bool,
    ) -> PyResult<Self> {
        let limit = |name, seconds: Option<f64>| {
            seconds.map(|seconds| convert::duration(name, seconds)).transpose()
        };
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
            connection_age_max: limit("max_connection_age_s", max_connection_age_s)?,
            connection_grace: limit("max_connection_grace_s", max_connection_grace_s)?,
            connection_idle_max: limit("max_connection_idle_s", max_connection_idle_s)?,
            idle_bytes_max,
            descriptors_max: descriptors::limit(),
            proxies: convert::proxies(&trusted_proxies, proxy_protocol)?,
            replica_id: replica_id.to_owned(),
            token,
            call_token,
            maps_arenas: maps_shared_memory,
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

    #[pyo3(signature = (*, weight = 1, whole_body_bytes_max = 1_048_576))]
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

    fn set_cache_keys_max(&self, keys_max: usize) {
        self.server.caches().set_keys_max(keys_max);
    }

    #[pyo3(signature = (keys, parent = None))]
    fn store_cache(
        &self,
        keys: Vec<Bound<'_, PyAny>>,
        parent: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let parent = parent.as_ref().map(hashed_key).transpose()?;
        self.server.caches().store(&hashed_keys(&keys)?, parent);
        Ok(())
    }

    fn remove_cache(&self, keys: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.server.caches().remove(&hashed_keys(&keys)?);
        Ok(())
    }

    fn clear_cache(&self) {
        self.server.caches().clear();
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

    #[allow(clippy::too_many_arguments)] // keywords, each with its name
    #[pyo3(signature = (*, budget, running, waiting, calls, places, step_s, wait_s))]
    fn set_costs(
        &self,
        budget: f64,
        running: f64,
        waiting: f64,
        calls: u32,
        places: u32,
        step_s: f64,
        wait_s: f64,
    ) -> PyResult<()> {
        self.server.set_costs(CostState {
            budget: convert::cost("budget", budget)?,
            running: convert::cost("running", running)?,
            waiting: convert::cost("waiting", waiting)?,
            calls,
            places,
            step: convert::nanos("step_s", step_s)?,
            wait: convert::nanos("wait_s", wait_s)?,
        });
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
