//! Limits the rate of frames of a WebSocket client that are expensive for the replica but of little
//! use: fragments of a few bytes, and control frames. Messages are not rate-limited, however small:
//! their application takes them one by one, and the client waits for it.

use std::task::{Context, Poll};
use std::time::Instant;

use router_io::Alarm;

use crate::guard::rate_limiter::{RateLimiter, Verdict};
use crate::guard::socket_frames::{Frame, SocketFrames};

/// A fragment smaller than this is tiny.
const TINY_BYTES: u64 = 16;

/// The points per frame: 2 000 frames a second, which take a replica in Python 30 ms.
const TINY_POINTS: u64 = 2;

/// As for HTTP/2: a ping needs an answer, a pong may be awaited.
const CONTROL_POINTS: u64 = 4;

/// The client goes on although it had to wait for a long time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// The rate limiter of one WebSocket.
#[derive(Debug)]
pub(crate) struct SocketRateLimiter {
    frames: SocketFrames,
    rate_limiter: RateLimiter,
    /// Reads are paused until it fires.
    pause: Option<Alarm>,
}

// === impl SocketRateLimiter ===

impl SocketRateLimiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { frames: SocketFrames::default(), rate_limiter: RateLimiter::new(now), pause: None }
    }

    /// Ready when more may be read.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pause) = &mut self.pause else { return Poll::Ready(()) };
        if pause.poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.pause = None;
        Poll::Ready(())
    }

    /// Counts these bytes.
    ///
    /// # Errors
    /// It must be closed.
    pub(crate) fn pass(&mut self, bytes: &[u8], now: Instant) -> Result<(), TooMuch> {
        let mut points = 0;
        self.frames.pass(bytes, |frame| points += points_of(frame));
        if points == 0 {
            return Ok(());
        }
        match self.rate_limiter.spend(points, points, 0, now) {
            Verdict::Fine => Ok(()),
            Verdict::Late(until) => {
                self.pause = Some(Alarm::at(until));
                Ok(())
            }
            Verdict::TooMuch => Err(TooMuch),
        }
    }
}

fn points_of(frame: Frame) -> u64 {
    if frame.is_control() {
        CONTROL_POINTS
    } else if frame.is_fragment() && frame.payload_bytes < TINY_BYTES {
        TINY_POINTS
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many seconds pass until a client that sends without pause has sent this many frames, and
    /// whether it may go on; at most a minute.
    fn flood(frame: &[u8], frames: usize) -> (u64, Result<(), TooMuch>) {
        const BATCH: usize = 1000;
        let begun = Instant::now();
        let mut now = begun;
        let mut rate_limiter = SocketRateLimiter::new(now);
        let piece = frame.repeat(BATCH);
        for _ in 0..frames / BATCH {
            let passed = rate_limiter.pass(&piece, now);
            if passed.is_err() || now > begun + Duration::from_secs(60) {
                return (now.duration_since(begun).as_secs(), passed);
            }
            now += rate_limiter.pause.take().map_or(Duration::ZERO, |_| Duration::from_millis(500));
        }
        (now.duration_since(begun).as_secs(), Ok(()))
    }

    /// The pauses are alarms, which need a runtime.
    fn on_io_thread<T>(test: impl FnOnce() -> T) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async { test() })
    }

    #[test]
    fn floods_of_little_use_are_read_slowly_and_closed_in_the_end() {
        on_io_thread(|| {
            for frame in [
                &b"\x00\x80mask"[..],
                b"\x00\x81maskx",
                b"\x80\x81maskx",
                b"\x01\x80mask",
                b"\x89\x80mask",
                b"\x8a\x80mask",
                b"\x89\x81maskx\x00\x80mask",
            ] {
                let (_, passed) = flood(frame, 1_000_000);
                assert_eq!(Err(TooMuch), passed, "{frame:?}");
                assert_eq!((0, Ok(())), flood(frame, 1000), "{frame:?}");
            }
        });
    }

    #[test]
    fn messages_and_fragments_of_a_sensible_size_are_free() {
        on_io_thread(|| {
            for size in [0, 1, 100] {
                let message = [&[0x82, 0x80 | size as u8][..], b"mask", &vec![0; size]].concat();
                assert_eq!((0, Ok(())), flood(&message, 1_000_000));
            }
            let fragment = [&b"\x00\x90mask"[..], &[0; 16]].concat();
            assert_eq!((0, Ok(())), flood(&fragment, 1_000_000));
        });
    }
}
