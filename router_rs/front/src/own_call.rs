//! The call of a connection that has one at a time, driven by the connection's own task.
//!
//! A separate task would be created, queued and woken for each call, on the same thread and by the
//! same events as the connection's.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::Context;

pub(super) type CallFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Belongs to the connection's task; code that begins calls has a weak pointer to it.
#[derive(Default)]
pub(super) struct OwnCall {
    call: RefCell<Option<CallFuture>>,
}

impl std::fmt::Debug for OwnCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OwnCall").finish_non_exhaustive()
    }
}

impl OwnCall {
    /// The client sends a request before the end of its last call, of which it has read all that it
    /// wants: that call continues in a task.
    pub(super) fn begin(&self, call: CallFuture) {
        if let Some(before) = self.call.replace(Some(call)) {
            tokio::task::spawn_local(before);
        }
    }

    /// Polls the call, if there is one.
    pub(super) fn poll(&self, cx: &mut Context<'_>) {
        // Taken out while it is polled: if it panics it is dropped, and releases everything.
        let Some(mut call) = self.call.take() else { return };
        if call.as_mut().poll(cx).is_pending() {
            self.call.replace(Some(call));
        }
    }

    /// The connection has ended: its call continues in a task, which notices that its client is
    /// gone, or does not depend on it.
    pub(super) fn leave(&self) {
        if let Some(call) = self.call.take() {
            tokio::task::spawn_local(call);
        }
    }
}
