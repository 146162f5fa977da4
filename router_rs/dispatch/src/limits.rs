//! Events that may end a call from outside, besides its caller.

use std::task::{Context, Poll};
use std::time::Instant;

use router_io::Alarm;
use router_protocol::grpc::{Code, Status};

/// See the module's documentation.
#[derive(Debug)]
pub struct Limits<'a> {
    pub(super) deadline: Option<Instant>,
    /// Armed when the call has to wait for the first time.
    alarm: Option<Alarm>,
    stop: &'a dyn Stop,
}

/// Notifies calls that they must end now.
pub trait Stop: std::fmt::Debug {
    /// Ready with the answer; otherwise the task will be woken.
    fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<Status>;
}

impl<'a> Limits<'a> {
    pub fn new(deadline: Option<Instant>, stop: &'a dyn Stop) -> Self {
        Self { deadline, alarm: None, stop }
    }

    pub(super) fn is_past(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Poll::Ready(status) = self.stop.poll_stop(cx) {
            return Poll::Ready(status);
        }
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Alarm::at(deadline));
        alarm.poll(cx).map(|()| deadline_exceeded())
    }
}

pub fn deadline_exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "the deadline has passed")
}
