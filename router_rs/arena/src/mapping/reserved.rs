//! Blocks that are filled from a file, on whatever thread.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::pread;

use super::{Arena, Mapping, Side};

/// Blocks that are being filled away from the arena, which meanwhile counts them as lent. If it is
/// dropped, they are free again.
#[derive(Debug)]
pub struct Reserved {
    mapping: Arc<Mapping>,
    part: Side,
    first: usize,
    bytes: usize,
    filled: usize,
    is_handed_over: bool,
}

impl Arena {
    /// Like [`Arena::lend`], to be filled without the arena.
    pub fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        let first = self.lend(bytes)?.finish() as usize;
        let (mapping, part) = (Arc::clone(&self.mapping), self.side);
        Some(Reserved { mapping, part, first, bytes, filled: 0, is_handed_over: false })
    }
}

// === impl Reserved ===

impl Reserved {
    /// Fills it from `offset` of a file on. Returns how many bytes the file had, fewer than asked for
    /// only at its end.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read(&mut self, file: impl AsFd, offset: u64) -> io::Result<usize> {
        let file = file.as_fd();
        while self.filled < self.bytes {
            let target = self.mapping.at(self.part, self.first, self.filled);
            let left = self.bytes - self.filled;
            let start = target.cast::<MaybeUninit<u8>>().as_ptr();
            // SAFETY: the run has room for `self.bytes`, it is lent to nobody, and nothing else refers
            // to it. A peer that breaks the protocol may write there too: see the crate.
            let target = unsafe { std::slice::from_raw_parts_mut(start, left) };
            match pread(file, target, offset + self.filled as u64) {
                Ok(([], _)) => break,
                Ok((read, _)) => self.filled += read.len(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.filled)
    }

    /// As many as were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands the run over; returns the number of its first block.
    ///
    /// # Panics
    /// It is not full: the receiver would see what was there before.
    pub fn finish(mut self) -> u32 {
        assert_eq!(self.bytes, self.filled, "a run is handed over full");
        self.is_handed_over = true;
        self.first as u32
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.mapping.mark(self.part, self.first).give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::super::ARENA_BYTES_DEFAULT;
    use super::*;
    use crate::BLOCKS;

    const BLOCK_BYTES: usize = ARENA_BYTES_DEFAULT / (2 * BLOCKS);

    fn file(content: &[u8]) -> std::fs::File {
        let made = memfd_create("file", MemfdFlags::CLOEXEC).expect("a memfd");
        let mut file = std::fs::File::from(made);
        file.write_all(content).expect("room");
        file
    }

    fn pair() -> (Arena, Arena) {
        let (client, descriptor) = Arena::create(ARENA_BYTES_DEFAULT).expect("a memfd");
        (client, Arena::open(&descriptor).expect("the arena that was just made"))
    }

    #[test]
    fn a_part_of_a_file_is_read_by_another_thread_and_seen_by_the_other_side() {
        let (client, mut server) = pair();
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at / 251) as u8).collect();
        let (file, mut run) = (file(&content), server.reserve(150_000).expect("room"));
        let read = std::thread::spawn(move || {
            assert_eq!(150_000, run.read(&file, 1000).expect("a file"));
            run
        });
        let run = read.join().expect("it reads");
        let first = run.finish();
        assert_eq!(content[1000..151_000], client.borrow(first, 150_000).expect("a place")[..]);
    }

    #[test]
    fn a_file_that_is_shorter_is_noticed() {
        let (_client, mut server) = pair();
        let mut run = server.reserve(1000).expect("room");
        assert_eq!(600, run.read(file(&[7; 700]), 100).expect("a file"));
    }

    #[test]
    fn a_run_is_in_use_until_it_is_dropped_or_returned() {
        let (client, mut server) = pair();
        let all = BLOCKS * BLOCK_BYTES;
        let run = server.reserve(all).expect("room");
        assert!(server.reserve(1).is_none());
        std::thread::spawn(move || drop(run)).join().expect("it ends");
        let mut run = server.reserve(all).expect("it came back");
        run.read(file(&vec![1; all]), 0).expect("a file");
        let borrowed = client.borrow(run.finish(), all as u32).expect("a place");
        assert!(server.reserve(1).is_none(), "the other side has it");
        drop(borrowed);
        assert!(server.reserve(1).is_some());
    }
}
