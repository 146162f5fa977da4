//! Files that answers are made of.

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_net::io::RegularFile;

/// See the stub.
#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// `None`: an answer has taken it.
    file: Mutex<Option<RegularFile>>,
    #[pyo3(get)]
    size_bytes: u64,
    #[pyo3(get)]
    modified_ns: i64,
}

/// See the stub.
#[pyfunction]
pub(crate) fn open_file(py: Python<'_>, path: PathBuf) -> PyResult<OpenFile> {
    let file = py.detach(|| RegularFile::open(&path))?;
    let (size_bytes, modified_ns) = (file.bytes, file.modified_ns);
    Ok(OpenFile { file: Mutex::new(Some(file)), size_bytes, modified_ns })
}

impl OpenFile {
    /// # Errors
    /// `ValueError` if it was taken before.
    pub(crate) fn take(&self) -> PyResult<RegularFile> {
        self.file.lock().take().ok_or_else(|| PyValueError::new_err("the file was sent or closed"))
    }
}

#[pymethods]
impl OpenFile {
    fn close(&self) {
        drop(self.file.lock().take());
    }
}
