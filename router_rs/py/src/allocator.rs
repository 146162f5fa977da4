//! How much freed memory the process keeps for the next message.

use pyo3::prelude::*;

// SAFETY: as mimalloc.h declares it.
unsafe extern "C" {
    /// mimalloc's, which is linked in as the allocator of this library.
    fn mi_collect(force: bool);
}

/// Gives back what this thread has freed; Python's memory is not in there.
pub(crate) fn trim() {
    // SAFETY: it may be called at any time, on any thread; it looks at free memory only.
    unsafe { mi_collect(true) };
}

/// Blocks above this are mapped one by one and given back when freed. glibc starts at 128 KiB and
/// learns up to this value, its highest (`DEFAULT_MMAP_THRESHOLD_MAX`).
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 32 << 20;

/// Freed memory at the top of the heap beyond this goes back to the system: room for a few dozen
/// messages of 1 MiB, each of which Python holds five times (received, parsed, read, built,
/// serialized).
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: i32 = 64 << 20;

/// Tells malloc to keep what large messages leave behind, for the next ones.
///
/// With the defaults each megabyte is mapped, faulted in page by page and unmapped again: a
/// 1 MiB echo took 1 050 us of processor time in Python, and 180 us with this. Does nothing where
/// malloc is not glibc's.
#[pyfunction]
pub(crate) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX)]
    {
        // SAFETY: mallopt takes two integers, locks malloc itself, and answers 0 to what it does
        // not like, which leaves the default in place.
        unsafe { libc::mallopt(parameter, value) };
    }
}
