//! How many descriptors the process may have open: sockets, files, pipes.

use pyo3::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that the kernel allows at most.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one. The usual 1 024 is for programs that call `select`, which
/// cannot handle larger descriptors. The higher limit does not harm them: the kernel hands out the
/// lowest free descriptor, so one beyond 1 023 appears only where the next `open` would have
/// failed. Child processes inherit the limit. If the system refuses (some have no hard limit, and
/// another bound), the limit stays: listeners read its value, and accept no more connections than
/// it allows.
#[pyfunction]
pub(crate) fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _stays_where_refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
