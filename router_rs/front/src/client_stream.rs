//! A connection's bytes as h2 and hyper read them. The bytes read to detect the protocol are
//! replayed first. Reads come in portions, so that one connection cannot keep its thread busy while
//! others wait. Frames that HTTP/2 floods consist of are rate-limited.

mod hyper_io;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use router_io::{MayBeUnix, Stream, poll_others_first};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use crate::counters::ConnectionCount;
use crate::guard::frames::{Frames, Tally};
use crate::guard::rate_limiter::{RateLimiter, Verdict};
use crate::guard::suspicion::Suspicion;
use crate::heads::head_lines::{HeadLines, Unclear};
use crate::hypers_answer::{Unread, status_of_hypers};

/// The most that one turn of a connection's task may read. A flood of calls that are reset at once
/// puts about a thousand of them into it, which cost the thread about as many microseconds.
/// Arbitrary.
const TURN_BYTES: usize = 64 * 1024;

/// The number of HTTP/2 frames after which a turn is over. After a read with that many, the next
/// one takes fewer bytes: about 200 microseconds of PINGs. Arbitrary.
const TURN_FRAMES: usize = 256;
const READ_BYTES_OF_SMALL_FRAMES: usize = 8 * 1024;

/// The points that a piece of an answer earns: two window updates for each frame of 16 KiB, which
/// clients send at most, and more.
const ANSWER_POINTS: u64 = 4;
const BYTES_PER_POINT: usize = 1024;

/// How much is read when an idle connection wakes; more follows. Arbitrary.
const BEGINNING_BYTES: usize = 64;

/// A head usually comes in one read, or in a few; one that takes more is read at intervals.
/// Arbitrary.
const HEAD_READS_MAX: u32 = 8;
const TRICKLE_INTERVAL: Duration = Duration::from_millis(50);

/// Filled as hyper's own buffers are.
const SCRATCH_BYTES: usize = 64 * 1024;

thread_local! {
    /// Only unsafe code can fill hyper's buffers without a copy.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::default();
}

/// Byte counts and flags of a connection, for its task. They are shared with the stream that hyper
/// or h2 owns. hyper requires that stream to be `Send`, though both are on one thread.
#[derive(Debug)]
pub(super) struct Gauge {
    received_bytes: AtomicU64,
    turn_bytes_left: AtomicUsize,
    earned_points: AtomicU64,
    wasted_points: AtomicU64,
    is_too_much: AtomicBool,
    /// The bytes that follow belong to a stream that the client has closed; they are not read.
    has_closed_stream: AtomicBool,
    is_rate_limited: AtomicBool,
    is_flushed: AtomicBool,
    /// Its turns are separated by pauses, for now.
    is_suspect: AtomicBool,
}

impl Gauge {
    /// The first turn has begun.
    pub(super) fn new(is_suspect: bool) -> Arc<Self> {
        Arc::new(Self {
            is_suspect: AtomicBool::new(is_suspect),
            received_bytes: AtomicU64::new(0),
            turn_bytes_left: AtomicUsize::new(TURN_BYTES),
            earned_points: AtomicU64::new(0),
            wasted_points: AtomicU64::new(0),
            is_too_much: AtomicBool::new(false),
            has_closed_stream: AtomicBool::new(false),
            is_rate_limited: AtomicBool::new(false),
            is_flushed: AtomicBool::new(true),
        })
    }

    /// Call it when the connection's task is polled. The turn of a suspect connection begins at the
    /// end of its pause.
    pub(super) fn begin_turn(&self) {
        if !self.is_suspect() {
            self.fill_turn();
        }
    }

    fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    fn fill_turn(&self) {
        self.turn_bytes_left.store(TURN_BYTES, Ordering::Relaxed);
    }

    /// All bytes received so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Records useful work for the client; see `RateLimiter`.
    pub(super) fn earn(&self, points: u64) {
        // One thread writes these, so no read-modify-write is needed.
        let earned = self.earned_points.load(Ordering::Relaxed);
        self.earned_points.store(earned + points, Ordering::Relaxed);
    }

    /// Records useless work for the client, which is charged with its next bytes.
    pub(super) fn waste(&self, points: u64) {
        let wasted = self.wasted_points.load(Ordering::Relaxed);
        self.wasted_points.store(wasted + points, Ordering::Relaxed);
    }

    /// Records a piece of an answer, for which a client may update windows.
    pub(super) fn earn_by_answer(&self, bytes: usize) {
        self.earn(ANSWER_POINTS + (bytes / BYTES_PER_POINT) as u64);
    }

    /// The client floods us, and must be asked to close.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_too_much.load(Ordering::Relaxed)
    }

    /// The client has sent headers on a stream that it had reset before. By then h2 has forgotten
    /// the stream, and would report another kind of error.
    pub(super) fn has_closed_stream(&self) -> bool {
        self.has_closed_stream.load(Ordering::Relaxed)
    }

    /// Input is being read more slowly than it arrives, so much of it may be unread when the client
    /// leaves.
    pub(super) fn set_rate_limited(&self, is_rate_limited: bool) {
        self.is_rate_limited.store(is_rate_limited, Ordering::Relaxed);
    }

    /// Whether everything written has been sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed.load(Ordering::Relaxed)
    }

    fn is_turn_over(&self) -> bool {
        self.turn_bytes_left.load(Ordering::Relaxed) == 0
    }

    fn end_turn(&self) {
        self.turn_bytes_left.store(0, Ordering::Relaxed);
    }

    fn on_read(&self, bytes: usize) {
        self.received_bytes.store(self.received_bytes() + bytes as u64, Ordering::Relaxed);
        let left = self.turn_bytes_left.load(Ordering::Relaxed);
        self.turn_bytes_left.store(left.saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct ClientStream {
    stream: Stream,
    /// Bytes read before the stream got here.
    first: Bytes,
    gauge: Arc<Gauge>,
    /// For HTTP/2 only.
    flood: Option<Box<Flood>>,
    /// For HTTP/1.1 only, as long as hyper reads.
    lines: HeadLines,
    unclear: Option<Unclear>,
    /// hyper has answered a request that it could not read.
    unread: Option<Unread>,
    /// The reads that one head has taken so far.
    head_reads: u32,
    /// Reads are paused until it fires. If the client has gone meanwhile, nothing more is read.
    pause: Option<Pin<Box<Sleep>>>,
    suspicion: Suspicion,
    /// Here, because it lives as long as the socket: longer than hyper's state when the connection
    /// becomes a WebSocket, shorter than calls that go on without their client.
    _count: ConnectionCount,
}

/// Replaces the line feed of an ambiguous line, and all that follows. hyper answers it with 400
/// wherever it is in a head, once the head has an end, and never accepts it between a body's
/// chunks.
const REFUSED: &[u8] = b"\r\0\r\n\r\n";

/// State of the flood detection for one HTTP/2 connection.
#[derive(Debug)]
struct Flood {
    frames: Frames,
    rate_limiter: RateLimiter,
    turn_frames: usize,
    has_small_frames: bool,
}

impl Flood {
    fn new() -> Self {
        Self {
            frames: Frames::new(),
            rate_limiter: RateLimiter::new(Instant::now()),
            turn_frames: 0,
            has_small_frames: false,
        }
    }

    /// Handles received bytes; returns until when nothing more may be read.
    fn on_read(&mut self, tally: Tally, gauge: &Gauge) -> Option<Instant> {
        self.has_small_frames = tally.frames >= TURN_FRAMES;
        self.turn_frames += tally.frames;
        if self.turn_frames >= TURN_FRAMES {
            self.turn_frames = 0;
            gauge.end_turn();
        }
        let wasted = gauge.wasted_points.load(Ordering::Relaxed);
        let (points, idle_points) = (tally.points + wasted, tally.idle_points + wasted);
        if points == 0 {
            return None;
        }
        gauge.wasted_points.store(0, Ordering::Relaxed);
        let earned = gauge.earned_points.swap(0, Ordering::Relaxed);
        match self.rate_limiter.spend(points, idle_points, earned, Instant::now()) {
            Verdict::Fine => None,
            Verdict::Late(until) => Some(until),
            Verdict::TooMuch => {
                gauge.is_too_much.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

impl ClientStream {
    /// `is_http2`: the bytes are its preface and frames.
    pub(super) fn new(
        stream: Stream,
        first: Bytes,
        gauge: &Arc<Gauge>,
        count: ConnectionCount,
        is_http2: bool,
    ) -> Self {
        let flood = is_http2.then(|| Box::new(Flood::new()));
        let lines = HeadLines::default();
        let gauge = Arc::clone(gauge);
        let (head_reads, pause) = (0, None);
        let (unclear, unread) = (None, None);
        Self {
            stream,
            first,
            gauge,
            flood,
            lines,
            unclear,
            unread,
            head_reads,
            pause,
            suspicion: Suspicion::new(),
            _count: count,
        }
    }

    /// hyper's verdict on a request that it could not read, if there is one. It is returned once;
    /// everything written from then on goes to the client.
    pub(super) fn take_unread(&mut self) -> Option<Unread> {
        self.unread.take()
    }

    /// Whether these bytes are hyper's answer to a request that it could not read. Such an answer
    /// is written alone: everything before it has been sent.
    fn keeps(&mut self, bytes: &[u8]) -> bool {
        if !self.gauge.is_flushed() {
            return false;
        }
        let Some(status) = status_of_hypers(bytes) else { return false };
        self.unread = Some(Unread { status, unclear: self.unclear });
        true
    }

    /// Like `Stream::is_reset`.
    pub(super) fn is_reset(&self) -> bool {
        self.stream.is_reset()
    }

    /// Like `AsyncRead::poll_read`, from the stream's own buffers.
    fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_small = self.flood.as_ref().is_some_and(|flood| flood.has_small_frames);
        if !is_small || buffer.remaining() <= READ_BYTES_OF_SMALL_FRAMES {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ_BYTES_OF_SMALL_FRAMES));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let length = part.filled().len();
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }

    /// Ready when bytes can be read, or with false at the end.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut storage = [0; BEGINNING_BYTES];
        let mut buffer = ReadBuf::new(&mut storage);
        let read = ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut buffer));
        self.first = Bytes::copy_from_slice(buffer.filled());
        Poll::Ready(read.is_ok() && !self.first.is_empty())
    }

    /// Reads and discards bytes; 0 at the end.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(SCRATCH_BYTES, 0);
            let mut buffer = ReadBuf::new(scratch);
            ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    /// Between two requests: bytes already read of the second one will be read again.
    pub(super) fn read_again(&mut self, bytes: Bytes) {
        debug_assert!(self.first.is_empty(), "what was read came before what was not");
        self.lines = HeadLines::default();
        self.first = bytes;
    }

    /// Returns how much of it may be passed on.
    fn on_read(&mut self, bytes: &[u8]) -> usize {
        self.gauge.on_read(bytes.len());
        let Some(flood) = &mut self.flood else { return bytes.len() };
        let tally = flood.frames.read(bytes);
        if let Some(until) = flood.on_read(tally, &self.gauge) {
            self.pause = Some(Box::pin(sleep_until(until.into())));
        }
        if tally.closed_at.is_some() {
            self.gauge.has_closed_stream.store(true, Ordering::Relaxed);
        }
        tally.closed_at.unwrap_or(bytes.len())
    }

    /// Counts the bytes read. Pending if none of them is for h2; an empty read is the end.
    fn pass_on(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> Poll<io::Result<()>> {
        let read = buffer.filled().len() - before;
        let passed_on = self.on_read(&buffer.filled()[before..]);
        buffer.set_filled(before + passed_on);
        if passed_on == 0 && read > 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Ready when the next turn may begin, after one that is over.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.gauge.is_suspect() {
            poll_others_first(cx);
            return Poll::Pending;
        }
        let is_suspect = ready!(self.suspicion.poll_pause(cx));
        self.gauge.fill_turn();
        self.gauge.is_suspect.store(is_suspect, Ordering::Relaxed);
        Poll::Ready(())
    }

    /// A client that trickles its head in is read at intervals.
    fn on_head_read(&mut self) {
        self.head_reads = if self.lines.is_in_head() { self.head_reads + 1 } else { 0 };
        if self.head_reads > HEAD_READS_MAX {
            self.pause = Some(Box::pin(sleep_until((Instant::now() + TRICKLE_INTERVAL).into())));
        }
    }
}

/// Descriptors are for members of the mesh only.
impl MayBeUnix for ClientStream {}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if !this.first.is_empty() {
            let length = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..length]);
            this.first.advance(length);
            return this.pass_on(buffer, before);
        }
        if this.gauge.has_closed_stream() {
            return Poll::Pending; // The connection's task says so to the client, and ends.
        }
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
            this.gauge.set_rate_limited(true);
        }
        if this.gauge.is_rate_limited.load(Ordering::Relaxed) {
            this.gauge.set_rate_limited(false);
            // The bytes that it left unread are not wanted.
            if this.stream.has_ended() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        if this.gauge.is_turn_over() {
            ready!(this.poll_turn(cx));
        }
        ready!(this.poll_stream(cx, buffer))?;
        this.pass_on(buffer, before)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.gauge.is_flushed.store(false, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.gauge.is_flushed.store(false, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper and h2 flush when they have written all that they had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.gauge.is_flushed.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
