//! Notices a replica that has a whole request and sends nothing for it.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use router_call::Failure;
use router_io::Alarm;
use router_protocol::grpc::{Code, Status};

use crate::ending::Ending;

/// How long one attempt has received nothing while it was the replica's turn.
#[derive(Debug)]
pub(crate) struct Silence {
    /// `None`: it may be silent indefinitely.
    limit: Option<Duration>,
    since: Instant,
    /// Set for a time no later than the limit; moved on if it fires early.
    alarm: Option<Alarm>,
}

impl Silence {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now(), alarm: None }
    }

    /// Ready with the end of the call when the replica has been silent for too long.
    ///
    /// `is_its_turn`: the request is sent, and everything that came of the answer is passed on.
    pub(crate) fn poll(
        &mut self,
        is_its_turn: bool,
        has_spoken: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Ending> {
        let Some(limit) = self.limit else { return Poll::Pending };
        if has_spoken || !is_its_turn {
            self.since = Instant::now();
        }
        if !is_its_turn {
            // The event that makes it the replica's turn polls this again.
            return Poll::Pending;
        }
        loop {
            let due = self.since + limit;
            let alarm = self.alarm.get_or_insert_with(|| Alarm::at(due));
            ready!(alarm.poll(cx));
            self.alarm = None;
            if Instant::now() >= due {
                let text = format!("the replica has sent nothing for {} s", limit.as_secs_f64());
                let status = Status::new(Code::Unavailable, text);
                return Poll::Ready(Ending::Failed(Failure::new(status, false)));
            }
        }
    }
}
