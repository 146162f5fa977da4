//! `Reservation`: a place at a replica, as Python sees it.

use std::sync::Arc;

use pyo3::prelude::*;
use router_net::dispatch;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) place: Arc<dispatch::Reservation>,
}

#[pymethods]
impl Reservation {
    #[getter]
    fn replica_id(&self) -> &str {
        self.place.replica_id()
    }

    #[getter]
    fn node(&self) -> &str {
        self.place.node()
    }

    fn release(&self) {
        self.place.release();
    }
}
