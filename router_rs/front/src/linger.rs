//! The end of an HTTP/1.1 connection whose client may still be sending: it is read on for a while.
//!
//! Unread bytes at the close of a socket make the system reset the connection. A client that is
//! sending a body then never reads the answer that refused it (RFC 9112, 9.6).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::client_stream::ClientStream;

/// How long a client may send unwanted bytes, and how long it may send nothing. It has our answer
/// and our end of the stream by then. Arbitrary; half a minute is nginx's `lingering_time`.
const SENDING_MAX: Duration = Duration::from_secs(30);
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// A connection on which everything has been written.
pub(super) struct Linger {
    stream: ClientStream,
    until: Instant,
    silence: Pin<Box<Sleep>>,
}

impl Linger {
    pub(super) fn new(stream: ClientStream) -> Self {
        let now = Instant::now();
        let silence = Box::pin(sleep_until(now + SILENCE_MAX));
        Self { stream, until: now + SENDING_MAX, silence }
    }

    /// Ready when the client has closed its side, or its time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(read) = self.stream.poll_discard(cx) {
            if !matches!(read, Ok(1..)) {
                return Poll::Ready(());
            }
            let silence = Instant::now() + SILENCE_MAX;
            self.silence.as_mut().reset(silence.min(self.until));
        }
        self.silence.as_mut().poll(cx)
    }
}
