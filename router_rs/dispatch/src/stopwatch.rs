//! For the bench `loaded`: how long calls take for their decision, including the wait for the lock.
//!
//! Without the feature `stopwatch`, none of it is compiled in.

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

    /// How many measurements of a thread are added to the others at once: the lock must not become
    /// another one that the threads wait for.
    const KEPT: usize = 1024;

    /// Those of all threads, except the ones that each thread still buffers.
    static ALL: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

    thread_local! {
        static OWN: RefCell<Vec<Duration>> = RefCell::new(Vec::with_capacity(KEPT));
    }

    /// The measurements since the last call, except for up to a thousand of each thread.
    pub fn take_decisions() -> Vec<Duration> {
        std::mem::take(&mut ALL.lock())
    }

    /// A measurement in progress.
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
