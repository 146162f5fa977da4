//! Numbers that identify the calls and connections of a process.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter for the whole process: one endpoint serves several servers and channels.
static TOKENS: AtomicU64 = AtomicU64::new(1);

/// A number that is unique in this process.
pub fn next_token() -> u64 {
    TOKENS.fetch_add(1, Ordering::Relaxed)
}
