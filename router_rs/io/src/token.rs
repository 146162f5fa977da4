//! Numbers that identify the calls and connections of a process.

use std::sync::atomic::{AtomicU64, Ordering};

/// For all of a process: one endpoint serves several servers and channels.
static TOKENS: AtomicU64 = AtomicU64::new(1);

/// A number that nothing else of this process has.
pub fn next_token() -> u64 {
    TOKENS.fetch_add(1, Ordering::Relaxed)
}
