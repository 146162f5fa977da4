//! A stream of the wire's frames, for the driver of either end.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf;
use router_io::{Alarm, ChunkedStream};
use router_wire::{Decoder, Frame, Malformed, Outgoing, Session};
use tokio::io::{AsyncRead, AsyncWrite};

/// The most that is read in one turn, so that others have theirs.
const READS_PER_TURN_MAX: usize = 32;

/// How long nothing large has been sent before the memory for it goes back to the system. Arbitrary:
/// the first write to a page again costs a microsecond.
const REST_TIME: Duration = Duration::from_secs(1);

/// When the memory that a connection shares goes back to the system.
#[derive(Debug, Default)]
pub struct MemoryRest {
    alarm: Option<Alarm>,
}

#[derive(Debug)]
pub struct FrameStream<S> {
    stream: ChunkedStream<S>,
    decoder: Decoder,
    signs_of_life: u64,
    /// Some bytes could not be written.
    is_blocked: bool,
}

impl MemoryRest {
    /// Gives the memory back when it is due; part of each turn of a driver.
    pub fn poll(&mut self, session: &mut Session, cx: &mut Context<'_>) {
        while session.has_memory() {
            let alarm = self.alarm.get_or_insert_with(|| Alarm::at(Instant::now() + REST_TIME));
            if alarm.poll(cx).is_pending() {
                return;
            }
            self.alarm = None;
            session.rest();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameStream<S> {
    pub fn new(stream: S) -> Self {
        let (stream, decoder) = (ChunkedStream::new(stream), Decoder::default());
        Self { stream, decoder, signs_of_life: 0, is_blocked: false }
    }

    /// Signs of life of the peer: reads that brought bytes, and writes that could not be done
    /// before. A PING is behind all bytes that wait to be written, so on a slow link its answer is
    /// of little use.
    pub fn signs_of_life(&self) -> u64 {
        self.signs_of_life
    }

    /// Passes all frames that have arrived to `take`; ready at the end of the input.
    ///
    /// # Errors
    /// Errors of the stream, and `InvalidData` for a malformed frame, or one that is refused.
    pub fn poll_read(
        &mut self,
        mut take: impl FnMut(Frame) -> Result<(), Malformed>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..READS_PER_TURN_MAX {
            let mut chunk = ready!(self.stream.poll_read(cx))?;
            if chunk.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.signs_of_life += 1;
            while let Some(frame) = self.decoder.decode(&mut chunk).map_err(invalid)? {
                take(frame).map_err(invalid)?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes all of `outgoing`.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn poll_write(
        &mut self,
        outgoing: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let before_bytes = outgoing.remaining();
        let written = self.stream.poll_write(outgoing, cx);
        self.signs_of_life += u64::from(self.is_blocked && outgoing.remaining() < before_bytes);
        self.is_blocked = written.is_pending();
        written
    }

    /// Closes the writing side.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }

    /// Reads on and discards; ready at the end of the input.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !ready!(self.stream.poll_read(cx))?.is_empty() {}
        Poll::Ready(Ok(()))
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed.to_string())
}
