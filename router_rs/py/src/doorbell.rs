//! The sleep/arm handshake of the ring: a producer rings only for a consumer that sleeps.
//!
//! Producer: publish, then `ring`. Consumer: find nothing, then `arm`, and sleep only if `arm`
//! returns true. Each side writes first and reads the other's word after; the SeqCst fences on both
//! sides forbid that both read the old word (the store-buffer pattern: x86 hides a missing fence
//! often enough, aarch64 does not). `tests::` under the feature `loom` explores every interleaving
//! of exactly this pair.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Doorbell {
    /// The consumer sleeps, or is about to.
    is_armed: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { is_armed: AtomicBool::new(false) }
    }

    /// After publishing: whether the producer must wake the consumer. Only one of several producers
    /// gets true.
    pub(crate) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed.load(Ordering::Relaxed) && self.is_armed.swap(false, Ordering::AcqRel)
    }

    /// The consumer sleeps, or is about to.
    pub(crate) fn is_armed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed.load(Ordering::Relaxed)
    }

    /// Before sleeping: whether the consumer may. `false`: something was published meanwhile.
    pub(crate) fn arm(&self, is_empty: impl FnOnce() -> bool) -> bool {
        self.is_armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if is_empty() {
            return true;
        }
        // If a producer took the bell first, its wake-up finds an awake consumer, which does no
        // harm.
        self.is_armed.swap(false, Ordering::AcqRel);
        false
    }
}

#[cfg(all(test, feature = "loom"))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// A queue reduced to what the handshake sees of it: how much was published, with no more
    /// ordering than a queue gives.
    #[derive(Default)]
    struct Model {
        published: AtomicUsize,
        wakeups: AtomicUsize,
    }

    #[test]
    fn nothing_published_is_slept_through() {
        for producers in 1..=2 {
            let mut builder = loom::model::Builder::new();
            // With one producer, all interleavings are explored. With two, up to three preemptions
            // are (CHESS, OSDI 2008: nearly all races need two); without a bound it takes minutes.
            builder.preemption_bound = (producers > 1).then_some(3);
            builder.check(move || {
                let bell = Arc::new(Doorbell::new());
                let model = Arc::new(Model::default());
                let threads: Vec<_> = (0..producers)
                    .map(|_| {
                        let (bell, model) = (bell.clone(), model.clone());
                        thread::spawn(move || {
                            model.published.fetch_add(1, Ordering::Release);
                            if bell.ring() {
                                model.wakeups.fetch_add(1, Ordering::Release);
                            }
                        })
                    })
                    .collect();
                let seen = model.published.load(Ordering::Acquire);
                let sleeps = bell.arm(|| model.published.load(Ordering::Acquire) == seen);
                for thread in threads {
                    thread.join().unwrap();
                }
                let missed = model.published.load(Ordering::Acquire) > seen;
                if sleeps && missed {
                    assert_ne!(0, model.wakeups.load(Ordering::Acquire), "a wake-up was lost");
                }
                assert!(model.wakeups.load(Ordering::Acquire) <= 1, "one wake-up is enough");
            });
        }
    }
}
