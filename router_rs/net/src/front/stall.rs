//! Notices a client that lets an exchange wait for too long.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::io::Alarm;

/// Runs from the moment when the exchange begins to wait for its client until either side moves.
#[derive(Debug)]
pub(super) struct Stall {
    limit: Duration,
    alarm: Option<Alarm>,
}

impl Stall {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, alarm: None }
    }

    /// The exchange waits for the client.
    pub(super) fn on_wait(&mut self) {
        // Far beyond what a clock can count means for ever.
        if self.alarm.is_none() {
            self.alarm = Instant::now().checked_add(self.limit).map(Alarm::at);
        }
    }

    /// The client has moved.
    pub(super) fn on_move(&mut self) {
        self.alarm = None;
    }

    /// Ready when it has waited for the whole limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.as_mut().map_or(Poll::Pending, |alarm| alarm.poll(cx))
    }
}
