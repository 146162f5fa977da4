//! Joins the tiny pieces of an HTTP/1.1 body, and limits their rate: a chunk of one byte costs this
//! thread as much as one of thousands, and costs the replica more.
//!
//! Some tiny pieces are passed on as they come. If a body continues with them, they are passed on
//! in batches, each up to 50 ms late, until larger pieces come or very few.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use router_io::Alarm;

/// A piece below this is tiny.
const TINY_BYTES: usize = 16;

/// How many are passed on as they come, and the size of a batch. Arbitrary.
const FREE_PIECES: usize = 256;
const BATCH_PIECES: usize = 256;

/// The time from the first piece of a full batch to the next batch: 51 200 pieces a second, which
/// take the thread about 50 ms. Arbitrary: a body of a megabyte in single bytes still arrives
/// within half a minute.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// How long a batch waits for more. Fifty bodies of 200 pieces a second each cost a replica in
/// Python a fifth of a core if each piece is a message, and a hundredth with batches.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// With at most this many in that time it was not a flood.
const CALM_PIECES: usize = 2;

/// The tiny pieces of one body.
#[derive(Debug, Default)]
pub(crate) struct ChunkCoalescer {
    passed: usize,
    /// The batch, and its number of pieces.
    joined: BytesMut,
    pieces: usize,
    /// When it began, and when it is passed on.
    alarm: Option<(Instant, Alarm)>,
}

// === impl ChunkCoalescer ===

impl ChunkCoalescer {
    /// Ready when another piece may be read, or with a batch to pass on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some((_, alarm)) = &mut self.alarm else { return Poll::Ready(None) };
        if alarm.poll(cx).is_ready() {
            self.alarm = None;
            if self.pieces <= CALM_PIECES {
                self.passed = 0;
            }
            self.pieces = 0;
            return Poll::Ready(Some(self.joined.split().freeze()));
        }
        if self.pieces < BATCH_PIECES { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Returns what to pass on at once, if anything: the piece, and those before it.
    pub(crate) fn add(&mut self, piece: Bytes, is_last: bool) -> Option<Bytes> {
        if piece.len() >= TINY_BYTES || is_last {
            return Some(self.flush(piece));
        }
        if self.passed < FREE_PIECES {
            self.passed += 1;
            return Some(piece);
        }
        let begun = self.alarm.as_ref().map_or_else(Instant::now, |(begun, _)| *begun);
        self.joined.extend_from_slice(&piece);
        self.pieces += 1;
        if self.pieces == 1 {
            self.alarm = Some((begun, Alarm::at(begun + WAIT_MAX)));
        } else if self.pieces == BATCH_PIECES {
            self.alarm = Some((begun, Alarm::at(begun + BATCH_INTERVAL)));
        }
        None
    }

    fn flush(&mut self, piece: Bytes) -> Bytes {
        self.alarm = None;
        (self.passed, self.pieces) = (0, 0);
        if self.joined.is_empty() {
            return piece;
        }
        self.joined.extend_from_slice(&piece);
        self.joined.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Bytes = Bytes::from_static(b"x");

    fn after_free_pieces() -> ChunkCoalescer {
        let mut coalescer = ChunkCoalescer::default();
        for _ in 0..FREE_PIECES {
            assert_eq!(Some(TINY), coalescer.add(TINY, false));
        }
        coalescer
    }

    /// Ready or not, on a thread with alarms.
    fn on_io_thread(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn a_few_tiny_pieces_are_passed_on_as_they_come() {
        after_free_pieces();
    }

    #[test]
    fn a_flood_becomes_a_batch_now_and_then() {
        on_io_thread(async {
            let mut coalescer = after_free_pieces();
            for _ in 0..3 {
                for _ in 0..BATCH_PIECES {
                    let is_open =
                        std::future::poll_fn(|cx| Poll::Ready(coalescer.poll(cx).is_ready())).await;
                    assert!(is_open, "the batch has room");
                    assert_eq!(None, coalescer.add(TINY, false));
                }
                let batch = std::future::poll_fn(|cx| coalescer.poll(cx)).await;
                assert_eq!(Some(BATCH_PIECES), batch.map(|batch| batch.len()));
            }
        });
    }

    #[test]
    fn what_is_no_flood_waits_for_more_and_a_little_of_it_is_free_again() {
        for (count, is_free) in [(CALM_PIECES, true), (CALM_PIECES + 1, false)] {
            on_io_thread(async move {
                let begun = tokio::time::Instant::now();
                let mut coalescer = after_free_pieces();
                for _ in 0..count {
                    assert_eq!(None, coalescer.add(TINY, false));
                }
                let batch = std::future::poll_fn(|cx| match coalescer.poll(cx) {
                    Poll::Ready(Some(batch)) => Poll::Ready(batch),
                    // Another piece may come, and none does.
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                });
                assert_eq!(count, batch.await.len());
                assert!(begun.elapsed() >= WAIT_MAX);
                assert_eq!(is_free, coalescer.add(TINY, false).is_some(), "after {count}");
            });
        }
    }

    #[test]
    fn an_end_or_a_real_piece_takes_along_what_came_before_it() {
        on_io_thread(async {
            for (piece, is_last) in [(Bytes::from_static(&[b'y'; TINY_BYTES]), false), (TINY, true)]
            {
                let mut coalescer = after_free_pieces();
                assert_eq!(None, coalescer.add(TINY, false));
                let whole = coalescer.add(piece.clone(), is_last).expect("it is passed on");
                assert_eq!([&TINY[..], &piece[..]].concat(), whole);
                assert_eq!(Some(TINY), coalescer.add(TINY, false), "it may be free again");
            }
        });
    }
}
