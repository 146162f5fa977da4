//! Returns memory to the system when many connections have freed their buffers.
//!
//! An allocator keeps freed memory until more is requested, and an idle thread requests none: ten
//! thousand connections that came and then rested left 100 MiB behind.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::sleep;

/// The number of connections that makes it worthwhile. Arbitrary: their buffers are a few
/// megabytes.
const FREED_MIN: u32 = 256;

/// The delay before it: many more may follow, and it costs next to nothing where connections come
/// and go all the time.
const DELAY: Duration = Duration::from_secs(2);

static TRIM: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// Connections that have freed their buffers since the last time.
    static FREED: Cell<u32> = const { Cell::new(0) };
}

/// Sets the function that returns memory freed by the calling thread. Only the first call counts:
/// there is one allocator.
pub fn set_trim(trim: fn()) {
    let _there_is_one = TRIM.set(trim);
}

/// A connection of this I/O thread has freed its buffers, or is about to.
pub fn on_buffers_freed() {
    let Some(trim) = TRIM.get() else { return };
    let freed = FREED.get() + 1;
    FREED.set(freed);
    if freed == FREED_MIN {
        tokio::task::spawn_local(async {
            sleep(DELAY).await;
            FREED.set(0);
            trim();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static TRIMMED: AtomicU32 = AtomicU32::new(0);

    fn count() {
        TRIMMED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn many_that_free_their_buffers_have_them_given_back_once() {
        set_trim(count);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            for (connections, trimmed) in [(FREED_MIN - 1, 0), (1, 1), (FREED_MIN * 3, 2), (1, 2)] {
                (0..connections).for_each(|_| on_buffers_freed());
                sleep(2 * DELAY).await;
                assert_eq!(trimmed, TRIMMED.load(Ordering::Relaxed));
            }
        });
    }
}
