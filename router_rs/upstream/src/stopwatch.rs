//! For the bench `parked`: the time from the end of an answer, read from a replica's socket, to the
//! head of the next call, written to one.
//!
//! Without the feature `stopwatch`, none of it is compiled in.

#[cfg(feature = "stopwatch")]
pub use running::take_laps;

#[cfg(feature = "stopwatch")]
pub(super) use running::Stopwatch;

/// Measures nothing.
#[cfg(not(feature = "stopwatch"))]
#[derive(Debug)]
pub(super) struct Stopwatch;

#[cfg(not(feature = "stopwatch"))]
#[allow(clippy::unused_self)] // as the one that runs
impl Stopwatch {
    pub(super) fn new() -> Self {
        Self
    }

    /// These bytes were read from the socket.
    #[inline]
    pub(super) fn on_read(&mut self, _bytes: &[u8]) {}

    /// The first `written` bytes of these were written to it.
    #[inline]
    pub(super) fn on_written(&mut self, _slices: &[std::io::IoSlice<'_>], _written: usize) {}
}

#[cfg(feature = "stopwatch")]
mod running {
    use std::io::IoSlice;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;

    /// The length of the HTTP/2 preface, which a client writes first.
    const PREFACE_BYTES: usize = 24;
    const FRAME_HEAD_BYTES: usize = 9;

    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;

    /// Of the whole process: a call may leave over another connection than the answer came by.
    static RUNNING: Mutex<Laps> = Mutex::new(Laps { since: None, laps: Vec::new() });

    #[derive(Debug)]
    struct Laps {
        since: Option<Instant>,
        laps: Vec<Duration>,
    }

    /// The laps since the last call; laps that began before it are dropped.
    pub fn take_laps() -> Vec<Duration> {
        let mut running = RUNNING.lock();
        running.since = None;
        std::mem::take(&mut running.laps)
    }

    /// One connection's part in it.
    #[derive(Debug)]
    pub(crate) struct Stopwatch {
        read: FrameHeads,
        written: FrameHeads,
    }

    impl Stopwatch {
        pub(crate) fn new() -> Self {
            let written = FrameHeads { skip: PREFACE_BYTES, ..FrameHeads::default() };
            Self { read: FrameHeads::default(), written }
        }

        pub(crate) fn on_read(&mut self, bytes: &[u8]) {
            let now = Instant::now();
            let is_end =
                |(kind, flags): (u8, u8)| matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if self.read.any(bytes, is_end) {
                RUNNING.lock().since = Some(now);
            }
        }

        pub(crate) fn on_written(&mut self, slices: &[IoSlice<'_>], written: usize) {
            let now = Instant::now();
            let mut left = written;
            let mut has_call = false;
            for slice in slices {
                let part = &slice[..left.min(slice.len())];
                left -= part.len();
                has_call |= self.written.any(part, |(kind, _)| kind == HEADERS);
            }
            if has_call {
                let mut running = RUNNING.lock();
                if let Some(since) = running.since.take() {
                    running.laps.push(now - since);
                }
            }
        }
    }

    /// Finds the heads of frames in the input (RFC 9113, 4.1).
    #[derive(Debug, Default)]
    struct FrameHeads {
        /// Bytes before the next head.
        skip: usize,
        head: Vec<u8>,
    }

    impl FrameHeads {
        /// Whether a frame of this type and these flags has its head here.
        fn any(&mut self, mut bytes: &[u8], wanted: impl Fn((u8, u8)) -> bool) -> bool {
            let mut is_found = false;
            while !bytes.is_empty() {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                let taken = (FRAME_HEAD_BYTES - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if let [high, middle, low, kind, flags, _, _, _, _] = self.head[..] {
                    self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                    self.head.clear();
                    is_found |= wanted((kind, flags));
                }
            }
            is_found
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn heads_are_found_however_the_bytes_come() {
            let frames = b"\0\0\x02\x00\x00\0\0\0\x01ab\0\0\x00\x04\x01\0\0\0\x00\0\0\x01\x01\x05\0\0\0\x03x";
            for size in 1..frames.len() {
                let (mut heads, mut seen) = (FrameHeads::default(), Vec::new());
                for piece in frames.chunks(size) {
                    let all = std::cell::RefCell::new(&mut seen);
                    heads.any(piece, |head| {
                        all.borrow_mut().push(head);
                        false
                    });
                }
                assert_eq!(vec![(0, 0), (4, 1), (1, 5)], seen, "in pieces of {size}");
            }
        }
    }
}
