//! Long conversions, which must not run on an I/O thread because others wait for it.
//!
//! Each I/O thread has one other thread that runs them in order of arrival, and that ends when it
//! has been idle for a while. A conversion holds one message, as its call did before, whose size is
//! bounded. Only one waiting message per I/O thread is being converted at a time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use router_protocol::grpc::{Code, Message, Status};
use tokio::task::{JoinHandle, spawn_blocking};

/// A message larger than this takes long to convert: about half a millisecond, for JSON of many
/// small values. The same holds for as many bytes of small messages together.
pub(super) const LONG_BYTES: usize = 16 * 1024;

/// Whether a message takes long to convert. The size of a compressed one is known only after
/// decompression.
pub(super) fn is_long(message: &Message) -> bool {
    message.compressed || message.len() > LONG_BYTES
}

/// A conversion that may run on any thread.
pub(crate) struct Work(Box<dyn FnOnce() -> Result<Message, Status> + Send>);

/// A conversion that runs on another thread, or waits for that.
#[derive(Debug)]
pub(super) struct Working(JoinHandle<Result<Message, Status>>);

// === impl Work ===

impl Work {
    pub(super) fn new(make: impl FnOnce() -> Result<Message, Status> + Send + 'static) -> Self {
        Self(Box::new(make))
    }

    /// Runs it on the current thread.
    ///
    /// # Errors
    /// The error in the message.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn run(self) -> Result<Message, Status> {
        (self.0)()
    }

    /// Runs it on the other thread.
    pub(super) fn start(self) -> Working {
        Working(spawn_blocking(self.0))
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Work")
    }
}

// === impl Working ===

impl Working {
    /// Ready with the result, once.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, Status>> {
        let done = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(done.unwrap_or_else(|error| {
            let text = format!("the message could not be converted: {error}");
            Err(Status::new(Code::Internal, text))
        }))
    }
}

impl Drop for Working {
    /// Cancels the work if it has not begun; otherwise it runs to its end.
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;
    use router_io::BLOCKING_THREADS_MAX;

    fn on_io_thread(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()
            .expect("a runtime")
            .block_on(test);
    }

    fn message(text: &'static str) -> Message {
        Message::from_bytes(text.into())
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        on_io_thread(async {
            let (release, released) = channel::<()>();
            let mut first = Work::new(move || {
                released.recv().expect("it is released");
                Ok(message("first"))
            })
            .start();
            let has_run = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&has_run);
            let unwanted = Work::new(move || {
                flag.store(true, Ordering::SeqCst);
                Ok(message("unwanted"))
            })
            .start();
            let mut last = Work::new(|| Ok(message("last"))).start();
            drop(unwanted);
            release.send(()).expect("it waits");
            for (working, expected) in [(&mut first, "first"), (&mut last, "last")] {
                let made = poll_fn(|cx| working.poll(cx)).await.expect("it is made");
                assert_eq!(expected.as_bytes(), &made.into_bytes()[..]);
            }
            assert!(!has_run.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_panic_fails_one_conversion() {
        on_io_thread(async {
            let mut broken = Work::new(|| panic!("a defect")).start();
            let status = poll_fn(|cx| broken.poll(cx)).await.expect_err("a failure");
            assert_eq!(Code::Internal, status.code);
            let mut next = Work::new(|| Ok(message("next"))).start();
            assert!(poll_fn(|cx| next.poll(cx)).await.is_ok());
        });
    }
}
