//! Counts the listening sockets still open, for those who wait until all are closed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// An I/O thread that does not react for this long is considered gone; arbitrary.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct OpenListeners {
    count: Mutex<usize>,
    changed: Condvar,
}

impl OpenListeners {
    pub(super) fn wait_for_none(&self) {
        let mut count = self.count.lock();
        self.changed.wait_while_for(&mut count, |count| *count > 0, PATIENCE);
    }
}

/// Counts one listener for as long as it lives.
#[derive(Debug)]
pub(super) struct OpenListener {
    listeners: Arc<OpenListeners>,
}

impl OpenListener {
    pub(super) fn new(listeners: &Arc<OpenListeners>) -> Self {
        *listeners.count.lock() += 1;
        Self { listeners: listeners.clone() }
    }
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        *self.listeners.count.lock() -= 1;
        self.listeners.changed.notify_all();
    }
}
