//! For the bench `loaded`: how long calls take for their decision, the wait for the lock included.
//!
//! Without the feature `stopwatch` there is nothing of it in the program.

#[cfg(feature = "stopwatch")]
pub use running::take_decisions;

#[cfg(feature = "stopwatch")]
pub(super) use running::Decision;

/// Measures nothing.
#[cfg(not(feature = "stopwatch"))]
pub(super) struct Decision;

#[cfg(not(feature = "stopwatch"))]
#[allow(clippy::unused_self)] // as the one that runs
impl Decision {
    #[inline]
    pub(super) fn begin() -> Self {
        Self
    }

    #[inline]
    pub(super) fn end(self) {}
}

#[cfg(feature = "stopwatch")]
mod running {
    use std::cell::RefCell;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;

    /// So many of a thread are put to the others at once: their lock is not to be one more that the
    /// threads wait for.
    const KEPT: usize = 1024;

    /// Those of all threads, but for what each of them keeps.
    static ALL: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

    thread_local! {
        static OWN: RefCell<Vec<Duration>> = RefCell::new(Vec::with_capacity(KEPT));
    }

    /// What was measured since the last time, but for the last thousand of each thread.
    pub fn take_decisions() -> Vec<Duration> {
        std::mem::take(&mut ALL.lock())
    }

    /// One that is being made.
    pub(crate) struct Decision(Instant);

    impl Decision {
        pub(crate) fn begin() -> Self {
            Self(Instant::now())
        }

        pub(crate) fn end(self) {
            let took = self.0.elapsed();
            OWN.with_borrow_mut(|own| {
                own.push(took);
                if own.len() == KEPT {
                    ALL.lock().append(own);
                }
            });
        }
    }
}
