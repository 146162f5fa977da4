//! The process's I/O threads, and what a fork has to know of them.
//!
//! Threads are a property of the process: this is the one place that holds them. They start at
//! the first server or channel, never at import.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use router_net::io::IoThreads;
use socket2::{SockAddr, SockRef};

struct Runtime {
    pid: u32,
    threads: Arc<IoThreads>,
}

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
/// Listening sockets of this process, with their addresses: a fork must not keep them open.
static LISTENERS: Mutex<Vec<(RawFd, SockAddr)>> = Mutex::new(Vec::new());

/// The threads for the servers and channels of this process. One is enough for the work that one
/// interpreter can handle.
pub(crate) fn threads() -> PyResult<Arc<IoThreads>> {
    let mut runtime = RUNTIME.lock();
    if let Some(runtime) = &*runtime {
        check_owner(runtime.pid)?;
        return Ok(runtime.threads.clone());
    }
    let threads = IoThreads::start("pyserve-io", 1)?;
    *runtime = Some(Runtime { pid: std::process::id(), threads: threads.clone() });
    Ok(threads)
}

fn check_owner(pid: u32) -> PyResult<()> {
    if pid == std::process::id() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "this process is a fork of one that runs pyserve: its network threads did not come along. \
         Start workers with multiprocessing's \"spawn\" method, or call pyserve in the parent",
    ))
}

/// See the stub.
#[pyfunction]
pub(crate) fn forked() -> bool {
    // A thread of the parent may have held the lock at the fork; then it is a fork.
    RUNTIME.try_lock().is_none_or(|runtime| {
        runtime.as_ref().is_some_and(|runtime| runtime.pid != std::process::id())
    })
}

/// Raises in a fork; every entry into the runtime begins with it.
pub(crate) fn ensure_not_forked() -> PyResult<()> {
    match RUNTIME.try_lock() {
        Some(runtime) => runtime.as_ref().map_or(Ok(()), |runtime| check_owner(runtime.pid)),
        None => Ok(()),
    }
}

/// Remembers a listening socket for `listeners`.
pub(crate) fn remember_listener(descriptor: RawFd, address: SockAddr) {
    let mut listeners = LISTENERS.lock();
    listeners.retain(|(known, _)| *known != descriptor);
    listeners.push((descriptor, address));
}

/// The listening sockets that this process still has: their numbers may be in use again.
pub(crate) fn listeners() -> Vec<RawFd> {
    // In a fork, a thread of the parent may have held the lock.
    let Some(listeners) = LISTENERS.try_lock() else { return Vec::new() };
    let is_ours = |(descriptor, address): &(RawFd, SockAddr)| {
        // SAFETY: the number is only asked about; a closed descriptor answers with an error.
        let borrowed = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        let socket = SockRef::from(&borrowed);
        socket.is_listener().unwrap_or(false)
            && socket.local_addr().is_ok_and(|local| local == *address)
    };
    listeners.iter().filter(|each| is_ours(each)).map(|(descriptor, _)| *descriptor).collect()
}
