//! The word by which both sides know who may touch a run of blocks: it is in the shared memory, in
//! the place of the run's first block.
//!
//! The sender fills a run, [`Mark::lend`]s it, and names it in a frame. The receiver reads it and
//! [`Mark::give_back`]s it, on whatever thread. The sender fills a run again only once it
//! [`Mark::is_returned`].
//!
//! Two orders matter, and each has one mechanism:
//!
//! - The sender's writes, the lending included, come before the receiver's reads and before it gives
//!   the run back: the frame orders them, which is sent after them and received before.
//! - The receiver's reads come before the sender's next writes: giving back is a release, and the
//!   look at the mark an acquire. Relaxed ones would let the receiver's last reads be carried out
//!   after the sender has begun to write again.
//!
//! `tests::` under the feature `loom` explores every interleaving of this.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU32, Ordering};

/// Fresh memory is zeros.
const RETURNED: u32 = 0;
const LENT: u32 = 1;

/// The mark of the run that begins with one block.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Mark(AtomicU32);

impl Mark {
    /// The receiver has the run from here on; call it before the frame is sent.
    pub(crate) fn lend(&self) {
        // The frame orders it. Nobody else writes the word while the run is not lent.
        self.0.store(LENT, Ordering::Relaxed);
    }

    /// Nobody at the receiver reads the run any more.
    pub(crate) fn give_back(&self) {
        self.0.store(RETURNED, Ordering::Release);
    }

    /// Whether the sender may write to the run. What follows comes after the receiver's last read.
    pub(crate) fn is_returned(&self) -> bool {
        self.0.load(Ordering::Acquire) == RETURNED
    }
}

#[cfg(all(test, feature = "loom"))]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, mpsc};
    use loom::thread;

    use super::*;
    use crate::space::{BLOCKS, Space};

    /// The memory has room for two runs. A third lending needs one of them a second time.
    const RUN_BLOCKS: usize = BLOCKS / 2;
    const LENDINGS: u32 = 3;

    #[derive(Default)]
    struct Memory {
        marks: [Mark; 2],
        runs: [UnsafeCell<u32>; 2],
    }

    // SAFETY: what the test is about; loom reports two threads that are in one cell at once.
    unsafe impl Sync for Memory {}

    /// The run that is lent, and what is in it; `None` at the end: loom's channel reports no end.
    type Frame = Option<(usize, u32)>;

    /// Takes runs in the order of their frames, and reads each before it gives it back.
    fn receive(memory: &Memory, frames: &mpsc::Receiver<Frame>) {
        while let Ok(Some((run, content))) = frames.recv() {
            memory.runs[run].with(|found| {
                // SAFETY: as above.
                assert_eq!(content, unsafe { *found }, "the sender has written over a lent run");
            });
            memory.marks[run].give_back();
        }
    }

    #[test]
    fn no_run_is_written_while_the_receiver_may_read_it() {
        loom::model(|| {
            let memory = Arc::new(Memory::default());
            let (frames, received) = mpsc::channel();
            let receiver = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || receive(&memory, &received))
            };
            let is_returned = |first: usize| memory.marks[first / RUN_BLOCKS].is_returned();
            let mut space = Space::default();
            for content in 1..=LENDINGS {
                // Without a free run the piece goes over the socket.
                let Some(first) = space.take(RUN_BLOCKS, is_returned) else { continue };
                let run = first / RUN_BLOCKS;
                // SAFETY: as above.
                memory.runs[run].with_mut(|target| unsafe { *target = content });
                memory.marks[run].lend();
                frames.send(Some((run, content))).expect("the receiver reads on");
            }
            frames.send(None).expect("the receiver reads on");
            receiver.join().expect("it has found nothing wrong");
            space.reclaim(is_returned);
            assert_eq!(0, space.lent(), "all runs are free again");
        });
    }
}
