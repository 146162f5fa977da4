//! Limits how much an unproven peer may send: enough for a proof, then little.
//!
//! Frames are not rate-limited at a port for members, since members send no useless ones. Without
//! this limit, anyone who can reach the port could send the most expensive frames and delay the
//! thread's other connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use router_io::MayBeUnix;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::probation::Probation;

/// Twice what our routers need for preface, settings and both requests of the handshake.
const AT_ONCE_BYTES: usize = 2048;

/// The rate after that. For 256 peers together it allows some hundred thousand frames of nine bytes
/// a second, which cost a fifth of a core. The limit ends with a call that carries the token.
const BYTES_PER_SECOND: usize = 4096;

/// The least that is worth a turn of the loop.
const PORTION_BYTES: usize = 512;

/// A stream that is read slowly while its peer is on probation.
pub(super) struct Slowed<S> {
    stream: S,
    /// `None`: the server has no token to prove.
    probation: Option<Arc<Probation>>,
    allowance: Allowance,
    pause: Option<Pin<Box<Sleep>>>,
}

/// Bytes that may be read.
#[derive(Debug)]
struct Allowance {
    left_bytes: usize,
    since: Instant,
}

// === impl Allowance ===

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left_bytes: AT_ONCE_BYTES, since: now }
    }

    /// How much may be read now, or how long to wait for a portion.
    fn at(&mut self, now: Instant) -> Result<usize, Duration> {
        if self.left_bytes == 0 {
            let earned = now.saturating_duration_since(self.since).as_secs_f64();
            let earned_bytes = (earned * BYTES_PER_SECOND as f64) as usize;
            if earned_bytes < PORTION_BYTES {
                let missing_bytes = PORTION_BYTES - earned_bytes;
                return Err(Duration::from_secs_f64(
                    missing_bytes as f64 / BYTES_PER_SECOND as f64,
                ));
            }
            self.left_bytes = earned_bytes.min(AT_ONCE_BYTES);
            self.since = now;
        }
        Ok(self.left_bytes)
    }

    fn take(&mut self, bytes: usize, now: Instant) {
        self.left_bytes -= bytes;
        if self.left_bytes == 0 {
            self.since = now;
        }
    }
}

// === impl Slowed ===

impl<S> Slowed<S> {
    pub(super) fn new(stream: S, probation: Option<Arc<Probation>>) -> Self {
        Self { stream, probation, allowance: Allowance::new(Instant::now()), pause: None }
    }
}

/// Strangers come over TCP.
impl<S> MayBeUnix for Slowed<S> {}

impl<S: AsyncRead + Unpin> AsyncRead for Slowed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let is_known = this.probation.as_ref().is_none_or(|probation| probation.is_over());
        if is_known {
            this.probation = None;
            this.pause = None;
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let allowed_bytes = loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
            }
            match this.allowance.at(Instant::now()) {
                Ok(bytes) => break bytes,
                Err(wait) => this.pause = Some(Box::pin(sleep(wait))),
            }
        };
        let part_bytes = allowed_bytes.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(part_bytes));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let read_bytes = part.filled().len();
        buffer.advance(read_bytes);
        this.allowance.take(read_bytes, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Slowed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_comes_at_once_and_a_flood_slowly() {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(now);
        let mut read_bytes = 0;
        let end = now + Duration::from_secs(10);
        while now < end {
            match allowance.at(now) {
                Ok(bytes) => {
                    allowance.take(bytes, now);
                    read_bytes += bytes;
                }
                Err(wait) => now += wait + Duration::from_micros(1),
            }
        }
        let expected_bytes = AT_ONCE_BYTES + 10 * BYTES_PER_SECOND;
        assert!(read_bytes.abs_diff(expected_bytes) <= 2 * PORTION_BYTES, "{read_bytes}");
    }

    #[test]
    fn who_was_silent_has_no_more_than_who_comes() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        allowance.take(AT_ONCE_BYTES, start);
        assert!(allowance.at(start).is_err());
        assert_eq!(Ok(AT_ONCE_BYTES), allowance.at(start + Duration::from_secs(60)));
    }
}
