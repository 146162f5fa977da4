//! The shared memory: made by one side, mapped by both.

mod reserved;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

pub use self::reserved::Reserved;
use crate::marks::Mark;
use crate::space::{BLOCKS, Space};

/// A page for the marks of both directions, then the two parts.
const MARKS_BYTES: usize = 4096;
/// The blocks of both directions.
const BLOCKS_OF_BOTH: usize = 2 * BLOCKS;
/// Blocks have whole pages.
const UNIT_BYTES: usize = BLOCKS_OF_BOTH * 4096;

/// The blocks of one direction together hold at least as much as one frame names.
pub const ARENA_BYTES_MIN: usize = UNIT_BYTES;
/// Blocks of 64 KiB. Arbitrary: four bodies of 1 MiB may be on their way at once in each direction.
pub const ARENA_BYTES_DEFAULT: usize = 8 << 20;
/// Arbitrary: pieces are far smaller than the blocks of more.
pub const ARENA_BYTES_MAX: usize = 1 << 30;

/// Neither side can change the size: memory that is gone would kill its reader by a signal.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// An end of a connection. Each lends blocks of a part of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// One end's view of the shared memory.
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    side: Side,
    space: Space,
    /// Blocks below this may have memory.
    touched: usize,
    /// Some were lent since [`Arena::rest`] was last called.
    is_used: bool,
}

/// Blocks that are being filled.
#[derive(Debug)]
pub struct Lease<'a> {
    mapping: &'a Mapping,
    part: Side,
    first: usize,
    bytes: usize,
    filled: usize,
}

// === impl Arena ===

impl Arena {
    /// Makes an arena of `bytes`, for both directions together, rounded down to whole pages for each
    /// block; and the descriptor by which the server maps it.
    ///
    /// # Errors
    /// The size is out of bounds, the system has no memfds, or no memory or descriptor left for one.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let blocks_bytes = bytes - bytes % UNIT_BYTES;
        let size = Size::of(MARKS_BYTES + blocks_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("pyserve-arena", flags)?;
        ftruncate(&descriptor, size.mapped_bytes() as u64)?;
        fcntl_add_seals(&descriptor, SEALS)?;
        Ok((Self::map(&descriptor, size, Side::Client)?, descriptor))
    }

    /// Maps what the client has made.
    ///
    /// # Errors
    /// The descriptor is not such memory, or it cannot be mapped.
    pub fn open(descriptor: &OwnedFd) -> io::Result<Self> {
        // The size cannot change any more once the seals are seen.
        let is_sealed = fcntl_get_seals(descriptor)?.contains(SEALS);
        let found_bytes = usize::try_from(fstat(descriptor)?.st_size).ok();
        match found_bytes.and_then(Size::of).filter(|_| is_sealed) {
            Some(size) => Self::map(descriptor, size, Side::Server),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "not an arena")),
        }
    }

    fn map(descriptor: &impl AsFd, size: Size, side: Side) -> io::Result<Self> {
        let (mapping, space) = (Arc::new(Mapping::new(descriptor, size)?), Space::default());
        Ok(Self { mapping, side, space, touched: 0, is_used: false })
    }

    /// Room for `bytes` that the other side will read; `None` if so much is not free.
    pub fn lend(&mut self, bytes: usize) -> Option<Lease<'_>> {
        let Self { mapping, side, space, touched, is_used } = self;
        let blocks = bytes.div_ceil(mapping.size.block_bytes);
        let first = space.take(blocks, |first| mapping.is_returned(*side, first))?;
        *touched = (*touched).max(first + blocks);
        *is_used = true;
        Some(Lease { mapping, part: *side, first, bytes, filled: 0 })
    }

    /// Whether this side's part may have memory.
    pub fn has_memory(&self) -> bool {
        self.touched > 0
    }

    /// Gives the memory of this side's part back to the system, if nothing was lent since the last
    /// call and all of it was returned. Call it from time to time while it [`Arena::has_memory`].
    pub fn rest(&mut self) {
        let Self { mapping, side, space, touched, is_used } = self;
        space.reclaim(|first| mapping.is_returned(*side, first));
        if !std::mem::take(is_used) && space.lent() == 0 {
            mapping.discard(*side, *touched);
            *touched = 0;
        }
    }

    /// The bytes that the other side has lent; `None` for a place outside of the arena.
    ///
    /// They are returned when the last reference is dropped, on whatever thread. See the crate about
    /// what may happen to them.
    pub fn borrow(&self, first: u32, bytes: u32) -> Option<Bytes> {
        let part = match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        let (first, bytes) = (first as usize, bytes as usize);
        let room = |first| (BLOCKS - first) * self.mapping.size.block_bytes;
        if first >= BLOCKS || bytes == 0 || bytes > room(first) {
            return None;
        }
        let mapping = Arc::clone(&self.mapping);
        Some(Bytes::from_owner(Borrowed { mapping, part, first, bytes }))
    }
}

// === impl Lease ===

impl Lease<'_> {
    /// Appends a copy of `bytes`, no more in all than was asked for.
    pub fn put(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        assert!(end <= self.bytes, "a lease is as long as announced");
        let target = self.mapping.at(self.part, self.first, self.filled);
        // SAFETY: the run has room for `self.bytes`, it is lent to nobody, and the source is in other
        // memory or in the other part.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
        self.filled = end;
    }

    /// Hands the run over; returns the number of its first block. If a lease is dropped instead, its
    /// blocks are free again.
    pub fn finish(self) -> u32 {
        self.mapping.mark(self.part, self.first).lend();
        self.first as u32
    }
}

/// A run that the other side has lent. As long as it is there, the blocks are not used again.
#[derive(Debug)]
struct Borrowed {
    mapping: Arc<Mapping>,
    part: Side,
    first: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        let start = self.mapping.at(self.part, self.first, 0);
        // SAFETY: `borrow` has checked the place, and the mapping lives as long as `self`. A peer that
        // breaks the protocol may change the bytes meanwhile: see the crate.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.bytes) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.mapping.mark(self.part, self.first).give_back();
    }
}

// === impl Mapping ===

struct Mapping {
    start: NonNull<u8>,
    size: Size,
}

/// The size of an arena, by that of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    block_bytes: usize,
}

impl Size {
    /// The size of an arena for which `mapped_bytes` are mapped; `None` if none has as many.
    fn of(mapped_bytes: usize) -> Option<Self> {
        let bytes = mapped_bytes.checked_sub(MARKS_BYTES)?;
        let is_one =
            bytes % UNIT_BYTES == 0 && (ARENA_BYTES_MIN..=ARENA_BYTES_MAX).contains(&bytes);
        is_one.then_some(Self { block_bytes: bytes / BLOCKS_OF_BOTH })
    }

    /// One direction.
    fn part_bytes(self) -> usize {
        BLOCKS * self.block_bytes
    }

    fn mapped_bytes(self) -> usize {
        MARKS_BYTES + 2 * self.part_bytes()
    }
}

// SAFETY: the memory belongs to no thread. Marks are atomics; which of both processes may touch a
// block is known from its mark.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(descriptor: &impl AsFd, size: Size) -> io::Result<Self> {
        let bytes = size.mapped_bytes();
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(anywhere, bytes, protection, flags, descriptor, 0)? };
        // SAFETY: just this mapping. Forked children of user code must not have it: they would keep
        // its memory.
        let _is_only_a_wish = unsafe { madvise(start, bytes, Advice::LinuxDontFork) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }

    fn is_returned(&self, part: Side, first: usize) -> bool {
        self.mark(part, first).is_returned()
    }

    /// Frees the pages of the first `blocks` of a part, which are zeros then.
    fn discard(&self, part: Side, blocks: usize) {
        let start = self.at(part, 0, 0).as_ptr().cast();
        let bytes = blocks * self.size.block_bytes;
        // SAFETY: whole pages of the mapping, which nobody refers to: no run is lent.
        let _memory_that_stays = unsafe { madvise(start, bytes, Advice::LinuxRemove) };
    }

    fn mark(&self, part: Side, first: usize) -> &Mark {
        let index = if part == Side::Client { first } else { BLOCKS + first };
        debug_assert!(first < BLOCKS, "there are no other blocks");
        // SAFETY: the first page of the mapping has room for all marks, and is only used by them: they
        // are atomics, for which all values are valid.
        unsafe { self.start.cast::<Mark>().add(index).as_ref() }
    }

    /// The address of a byte in a run. `first` and `offset` are within the part.
    fn at(&self, part: Side, first: usize, offset: usize) -> NonNull<u8> {
        let part_bytes = self.size.part_bytes();
        let part_start = if part == Side::Client { 0 } else { part_bytes };
        let within = first * self.size.block_bytes + offset;
        debug_assert!(within <= part_bytes, "runs are within their part");
        // SAFETY: inside of the mapping, or right behind it.
        unsafe { self.start.add(MARKS_BYTES + part_start + within) }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mapping").finish_non_exhaustive()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (start, bytes) = (self.start.as_ptr().cast(), self.size.mapped_bytes());
        // SAFETY: mapped in `new`, and nobody refers to it any more.
        let _nothing_could_be_done = unsafe { munmap(start, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    /// Blocks of 64 KiB, the default.
    const BYTES: usize = ARENA_BYTES_DEFAULT;
    const BLOCK_BYTES: usize = 64 << 10;

    fn pair() -> (Arena, Arena) {
        let (client, descriptor) = Arena::create(BYTES).expect("a memfd");
        (client, Arena::open(&descriptor).expect("the arena that was just made"))
    }

    fn lend(arena: &mut Arena, bytes: &[u8]) -> Option<u32> {
        let mut lease = arena.lend(bytes.len())?;
        bytes.chunks(1000).for_each(|chunk| lease.put(chunk));
        Some(lease.finish())
    }

    fn content(seed: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 + seed) as u8).collect()
    }

    #[test]
    fn what_one_side_lends_the_other_reads() {
        let (mut client, mut server) = pair();
        let (up, down) = (content(1, 200_000), content(2, 70_000));
        let at = lend(&mut client, &up).expect("room");
        let back = lend(&mut server, &down).expect("room");
        assert_eq!(up, server.borrow(at, up.len() as u32).expect("a place"));
        assert_eq!(down, client.borrow(back, down.len() as u32).expect("a place"));
    }

    #[test]
    fn blocks_are_used_again_when_the_last_reference_is_dropped() {
        let (mut client, server) = pair();
        let all = content(3, BLOCKS * BLOCK_BYTES);
        let at = lend(&mut client, &all).expect("room");
        let borrowed = server.borrow(at, all.len() as u32).expect("a place");
        let half = borrowed.slice(100..200);
        drop(borrowed);
        assert_eq!(None, lend(&mut client, b"more"));
        assert_eq!(half, all[100..200]);
        std::thread::spawn(move || drop(half)).join().expect("it ends");
        assert_eq!(Some(0), lend(&mut client, b"more"));
    }

    #[test]
    fn a_lease_that_is_dropped_gives_its_blocks_back() {
        let (mut client, _server) = pair();
        assert!(client.lend(BLOCKS * BLOCK_BYTES).is_some());
        assert!(client.lend(BLOCKS * BLOCK_BYTES).is_some());
    }

    #[test]
    fn blocks_that_are_given_back_twice_are_not_lost() {
        let (mut client, server) = pair();
        let at = lend(&mut client, b"first").expect("room");
        let [one, other] = [(); 2].map(|()| server.borrow(at, 5).expect("a place"));
        drop(one);
        assert_eq!(Some(at), lend(&mut client, b"other"));
        // Only the liar itself would read what comes next over what it has not read.
        drop(other);
        assert_eq!(Some(at), lend(&mut client, b"third"));
        assert_eq!(b"third"[..], server.borrow(at, 5).expect("a place"));
        assert!(client.lend(BLOCKS * BLOCK_BYTES).is_some());
    }

    #[test]
    fn marks_that_a_peer_writes_cost_it_the_memory_and_nothing_else() {
        let (mut client, server) = pair();
        let marks = || (0..BLOCKS).map(|first| server.mapping.mark(Side::Client, first));
        marks().for_each(Mark::lend);
        let at = lend(&mut client, b"whatever is marked").expect("nothing was lent so far");
        assert_eq!(b"whatever is marked"[..], server.borrow(at, 18).expect("a place"));
        // A block that is marked as lent comes back when its mark is cleared.
        marks().for_each(Mark::lend);
        assert!(client.lend(BLOCK_BYTES).is_some());
        assert!(client.lend(BLOCKS * BLOCK_BYTES).is_none());
        marks().for_each(Mark::give_back);
        assert!(client.lend(BLOCKS * BLOCK_BYTES).is_some());
    }

    #[test]
    fn memory_goes_back_to_the_system_while_nothing_is_lent() {
        let (mut client, descriptor) = Arena::create(BYTES).expect("a memfd");
        let server = Arena::open(&descriptor).expect("the arena that was just made");
        let allocated = || fstat(&descriptor).expect("open").st_blocks * 512;
        let at = lend(&mut client, &content(4, 1 << 20)).expect("room");
        let borrowed = server.borrow(at, 1 << 20).expect("a place");
        assert!(client.has_memory() && allocated() >= 1 << 20);
        for _ in 0..2 {
            client.rest();
        }
        assert_eq!(content(4, 1 << 20), borrowed, "it is in use");
        drop(borrowed);
        client.rest();
        assert!(!client.has_memory() && allocated() <= 8192, "{} bytes", allocated());
        assert!(lend(&mut client, b"again").is_some());
        client.rest();
        assert!(client.has_memory(), "it was used a moment ago");
    }

    #[test]
    fn places_outside_are_refused() {
        let (client, _server) = pair();
        for (first, bytes) in [(64, 1), (u32::MAX, 1), (0, 0), (63, 65_537), (0, u32::MAX)] {
            assert!(client.borrow(first, bytes).is_none(), "{first}, {bytes}");
        }
        assert!(client.borrow(63, 65_536).is_some());
    }

    #[test]
    fn memory_of_another_size_or_unsealed_is_refused() {
        let memory = |bytes: usize, seals| {
            let memory = memfd_create("memory", MemfdFlags::ALLOW_SEALING).expect("a memfd");
            ftruncate(&memory, bytes as u64).expect("room");
            fcntl_add_seals(&memory, seals).expect("it has none");
            Arena::open(&memory)
        };
        assert!(memory(MARKS_BYTES + BYTES, SEALS).is_ok());
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
            assert!(memory(MARKS_BYTES + BYTES, seals).is_err(), "{seals:?}");
        }
        let (least, most) = (MARKS_BYTES + ARENA_BYTES_MIN, MARKS_BYTES + ARENA_BYTES_MAX);
        for bytes in [0, MARKS_BYTES, least - 4096, least + 4096, most + UNIT_BYTES] {
            assert!(memory(bytes, SEALS).is_err(), "{bytes}");
        }
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        assert!(Arena::open(&OwnedFd::from(socket)).is_err());
    }

    #[test]
    fn a_server_takes_the_size_that_a_client_has_chosen() {
        for bytes in [ARENA_BYTES_MIN, 1 << 20, 3 << 20, ARENA_BYTES_MAX] {
            let (mut client, descriptor) = Arena::create(bytes + 1).expect("a memfd");
            let server = Arena::open(&descriptor).expect("the arena that was just made");
            let piece = content(5, 256 << 10);
            let at = lend(&mut client, &piece).expect("room for a frame");
            assert_eq!(piece, server.borrow(at, piece.len() as u32).expect("a place"));
            assert!(client.lend(bytes / 2 + 1).is_none(), "a direction has half of {bytes}");
        }
        for bytes in [0, ARENA_BYTES_MIN - 1, ARENA_BYTES_MAX + UNIT_BYTES] {
            assert!(Arena::create(bytes).is_err(), "{bytes}");
        }
    }
}
