//! Tracks which of the client's bytes are consumed, once the other side has accepted ours.

use std::collections::VecDeque;

/// Maps accepted gRPC bytes back to the client's bytes that they were made of.
///
/// Invariant: released <= read. The client's window is returned early for bytes that are held here
/// (part of a message that must be complete, which has its own limit), and otherwise as the other
/// side accepts the result.
#[derive(Debug, Default)]
pub(super) struct Credit {
    marks: VecDeque<Mark>,
}

/// A piece for the other side; both in bytes.
#[derive(Debug)]
struct Mark {
    made: usize,
    read: usize,
    accepted: usize,
    released: usize,
}

impl Credit {
    /// `read_bytes` of the client became `made_bytes` (more than 0) for the other side.
    pub(super) fn made(&mut self, read_bytes: usize, made_bytes: usize) {
        self.marks.push_back(Mark { made: made_bytes, read: read_bytes, accepted: 0, released: 0 });
    }

    /// The other side has accepted this many more bytes; returns how many of the client's they
    /// were.
    pub(super) fn accepted(&mut self, mut bytes: usize) -> usize {
        let mut released = 0;
        while let Some(mark) = self.marks.front_mut() {
            let taken = bytes.min(mark.made - mark.accepted);
            bytes -= taken;
            mark.accepted += taken;
            released += mark.release();
            if mark.accepted < mark.made {
                break;
            }
            self.marks.pop_front();
        }
        released
    }
}

impl Mark {
    fn release(&mut self) -> usize {
        // As 128 bits: both factors may be near 4 GiB.
        let due = self.read as u128 * self.accepted as u128 / self.made as u128;
        let due = due as usize;
        let released = due - self.released;
        self.released = due;
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_a_piece_release_in_proportion() {
        let mut credit = Credit::default();
        credit.made(40, 30);
        assert_eq!(13, credit.accepted(10));
        assert_eq!(25, credit.accepted(19));
        assert_eq!(2, credit.accepted(1));
    }

    proptest! {
        #[test]
        fn everything_is_released_once_everything_is_accepted(
            pieces in prop::collection::vec((0_usize..5000, 1_usize..5000), 0..20),
            steps in prop::collection::vec(1_usize..3000, 1..20),
        ) {
            let mut credit = Credit::default();
            let (mut read, mut made) = (0, 0);
            for (read_bytes, made_bytes) in pieces {
                credit.made(read_bytes, made_bytes);
                read += read_bytes;
                made += made_bytes;
            }
            let mut released = 0;
            for step in steps.into_iter().cycle() {
                let step = step.min(made);
                released += credit.accepted(step);
                made -= step;
                prop_assert!(released <= read);
                if made == 0 {
                    break;
                }
            }
            prop_assert_eq!(read, released);
        }
    }
}
