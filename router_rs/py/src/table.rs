//! `RoutingTable` and `Ingress`: the mesh's view, and the listener in front of it.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use router_net::dispatch::{
    self, ARENA_BYTES_DEFAULT, Added, DeploymentStats, ReplicaLimits, TableConfig,
};
use router_net::ingress::{Ingress as NetIngress, IngressConfig};

use crate::access::AccessPolicy;
use crate::convert;
use crate::limits::IngressLimits;
use crate::measures;
use crate::ranker::Ranker;
use crate::records::CallRecords;
use crate::runtime::{self, ensure_not_forked};
use crate::tls::{ClientTls, ServerTls};

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct DeploymentRoute {
    route: dispatch::DeploymentRoute,
}

#[pymethods]
impl DeploymentRoute {
    #[new]
    #[pyo3(signature = (
        view, *, methods = BTreeMap::new(), options = BTreeMap::new(), ranker = None,
    ))]
    fn new(
        view: PyBackedBytes,
        methods: BTreeMap<String, Vec<String>>,
        options: BTreeMap<String, f64>,
        ranker: Option<&Ranker>,
    ) -> PyResult<Self> {
        let added = Added { methods, options, ranker: ranker.map(Ranker::share) };
        let route = dispatch::DeploymentRoute::read(Bytes::from_owner(view), added);
        Ok(Self { route: route.map_err(PyValueError::new_err)? })
    }
}

/// Checks the path before all prefixes, which must be a valid prefix itself.
fn check_root_path(root_path: &str) -> PyResult<()> {
    if root_path.is_empty() {
        return Ok(());
    }
    dispatch::check_prefix("root_path", root_path).map_err(PyValueError::new_err)
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct RoutingTable {
    pub(crate) table: Arc<dispatch::RoutingTable>,
    version: Mutex<u64>,
}

#[pymethods]
impl RoutingTable {
    #[new]
    #[pyo3(signature = (
        *, node, zone, token, seed, tls = None, connect_timeout_s = 2.0, idle_timeout_s = None,
        records = None, shared_memory_bytes = ARENA_BYTES_DEFAULT,
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        node: String,
        zone: String,
        token: Vec<u8>,
        seed: u64,
        tls: Option<&ClientTls>,
        connect_timeout_s: f64,
        idle_timeout_s: Option<f64>,
        records: Option<&CallRecords>,
        shared_memory_bytes: usize,
    ) -> PyResult<Self> {
        let silence = idle_timeout_s.map(|value| convert::duration("idle_timeout_s", value));
        let limits = ReplicaLimits {
            connect: convert::duration("connect_timeout_s", connect_timeout_s)?,
            silence: silence.transpose()?,
            arena_bytes: Some(shared_memory_bytes).filter(|bytes| *bytes > 0),
        };
        let tls = tls.map(|tls| Arc::clone(&tls.tls));
        let config = TableConfig { node, zone, token, seed, tls, limits };
        let records = records.map(|records| Arc::clone(&records.records));
        let table = dispatch::RoutingTable::recorded(config, records);
        Ok(Self { table, version: Mutex::new(0) })
    }

    fn apply(
        &self,
        py: Python<'_>,
        version: u64,
        deployments: Vec<PyRef<'_, DeploymentRoute>>,
    ) -> PyResult<()> {
        let routes = deployments.iter().map(|deployment| deployment.route.clone()).collect();
        py.detach(|| {
            let mut current = self.version.lock();
            if version <= *current {
                return Err(PyValueError::new_err(format!(
                    "version {version} cannot follow version {current}: versions only grow"
                )));
            }
            *current = version;
            self.table.apply(routes);
            Ok(())
        })
    }

    fn replicas(&self, target: &str) -> PyResult<Vec<(String, String, Vec<String>)>> {
        let (application, deployment) = target.split_once('/').ok_or_else(|| {
            let text = format!("{target:?} names no deployment, write application/Deployment");
            PyValueError::new_err(text)
        })?;
        let replicas = self.table.replicas(application, deployment).into_iter();
        Ok(replicas.map(|replica| (replica.replica_id, replica.node, replica.models)).collect())
    }

    fn unanswered(&self) -> BTreeMap<String, u64> {
        let counted = self.table.unanswered().into_iter();
        let named =
            |(application, deployment, count)| (format!("{application}/{deployment}"), count);
        counted.map(named).collect()
    }

    fn measures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for measures in py.detach(|| self.table.measures()) {
            let name = format!("{}/{}", measures.application, measures.deployment);
            all.set_item(name, measures::of_deployment(py, &measures)?)?;
        }
        Ok(all)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for stats in self.table.stats() {
            let name = format!("{}/{}", stats.application, stats.deployment);
            all.set_item(name, stats_to_python(py, &stats)?)?;
        }
        Ok(all)
    }
}

fn stats_to_python<'py>(py: Python<'py>, stats: &DeploymentStats) -> PyResult<Bound<'py, PyDict>> {
    let in_flight = PyDict::new(py);
    for replica in &stats.router.replicas {
        let known = stats.replica_ids.iter().find(|(id, _)| *id == replica.id);
        if let Some((_, name)) = known {
            in_flight.set_item(name, replica.in_flight)?;
        }
    }
    let dict = measures::counts(py, stats.router.counts())?;
    dict.set_item("in_flight_total", stats.router.in_flight)?;
    dict.set_item("in_flight", in_flight)?;
    dict.set_item("descriptor_problems", &stats.descriptor_problems)?;
    Ok(dict)
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Ingress {
    ingress: NetIngress,
}

#[pymethods]
impl Ingress {
    #[new]
    #[pyo3(signature = (
        table, *, addresses, io_threads, tls, limits = None, root_path = String::new(), access = None,
        trusted_proxies = Vec::new(), proxy_protocol = false,
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        table: &RoutingTable,
        addresses: Vec<String>,
        io_threads: usize,
        tls: Option<&ServerTls>,
        limits: Option<&IngressLimits>,
        root_path: String,
        access: Option<&AccessPolicy>,
        trusted_proxies: Vec<String>,
        proxy_protocol: bool,
    ) -> PyResult<Self> {
        let tls = tls.map(|tls| Arc::clone(&tls.tls));
        let access = access.map(|access| Arc::clone(&access.access));
        let limits = limits.map(|limits| limits.limits.clone()).unwrap_or_default();
        check_root_path(&root_path)?;
        let request_timeout = limits.request_timeout;
        let limits = limits.limits;
        let proxies = convert::proxies(&trusted_proxies, proxy_protocol)?;
        let config =
            IngressConfig { addresses, io_threads, tls, limits, root_path, access, proxies };
        let ingress = NetIngress::new(table.table.clone(), config);
        ingress.set_request_timeout(request_timeout);
        Ok(Self { ingress })
    }

    fn set_request_timeout(&self, timeout_s: Option<f64>) -> PyResult<()> {
        let timeout = timeout_s.map(|value| convert::duration("timeout_s", value)).transpose()?;
        self.ingress.set_request_timeout(timeout);
        Ok(())
    }

    fn set_healthy(&self, is_healthy: bool) {
        self.ingress.set_healthy(is_healthy);
    }

    #[pyo3(signature = (held = Vec::new()))]
    fn start(&self, held: Vec<RawFd>) -> PyResult<Vec<String>> {
        ensure_not_forked()?;
        // SAFETY: the caller has detached them from what owned them.
        let owned = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
        let bound = self.ingress.start(held.into_iter().map(owned).collect())?;
        for listener in &bound {
            runtime::remember_listener(listener.descriptor, listener.address.clone());
        }
        Ok(bound.iter().map(router_net::io::Bound::name).collect())
    }

    fn drain(&self) {
        self.ingress.drain();
    }

    fn stop(&self) {
        self.ingress.stop();
    }

    fn in_flight(&self) -> u64 {
        self.ingress.in_flight()
    }

    fn doors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let doors = PyDict::new(py);
        for (door, counts) in self.ingress.doors() {
            doors.set_item(door, measures::counts(py, counts)?)?;
        }
        Ok(doors)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.ingress.stats() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}
