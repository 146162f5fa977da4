//! How many descriptors the process may have open: sockets, files, pipes.

use pyo3::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the kernel gives before it says that there are too many.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one. The usual 1 024 is there for programs that call `select`,
/// which knows no larger numbers, and those are as well off as before: a number is the lowest that is
/// free, so one beyond 1 023 comes up only where the next `open` would have failed. Child processes
/// inherit the limit. Where the system refuses (some have no hard limit, and another bound), the
/// limit stays: whoever listens reads what it is, and takes no more connections than that.
#[pyfunction]
pub(crate) fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _stays_where_refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
