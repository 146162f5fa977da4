//! The idle connections of one front on one I/O thread, and each connection's view of that.
//! Connections that have not sent anything yet are included.
//!
//! Each thread has its share of the memory for idle connections, because they are spread evenly.
//! So none of this needs a lock or an atomic, and a call on an idle connection costs two list
//! operations.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use h2::Reason;
use h2::server::Connection;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Front;
use crate::guard::idle_connections::{IdleConnections, Place, Word};

/// The memory that an idle connection keeps: its share of the process's memory, as measured by
/// `benchmarks/hostile` with ten thousand of them.
const SILENT_BYTES: u64 = 3 << 10;
const HTTP1_BYTES: u64 = 6 << 10;

/// h2 has buffers of 16 and 8 KiB, and tables.
const HTTP2_BYTES: u64 = 34 << 10;

/// What TLS adds: its session, and a record of each direction.
const TLS_BYTES: u64 = 9 << 10;

/// The protocol of a connection, which determines the memory that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Not known yet.
    Unknown,
    Http1,
    Http2,
}

impl Speech {
    fn bytes(self, is_tls: bool) -> u64 {
        let bytes = match self {
            Speech::Unknown => SILENT_BYTES,
            Speech::Http1 => HTTP1_BYTES,
            Speech::Http2 => HTTP2_BYTES,
        };
        if is_tls { bytes + TLS_BYTES } else { bytes }
    }
}

thread_local! {
    /// The fronts that have connections on this thread.
    static ROOMS: RefCell<Vec<Weak<Room>>> = const { RefCell::new(Vec::new()) };
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Room {
    front: Arc<Front>,
    idle: RefCell<IdleConnections>,
}

/// One connection's part in it.
#[derive(Debug)]
pub struct IdleTracker {
    room: Rc<Room>,
    bytes: u64,
    /// The additional bytes of a partly received item.
    partial_bytes: u64,
    place: Option<Place>,
    heard: Option<Word>,
}

// === impl Room ===

impl Room {
    /// The room of this thread.
    pub(super) fn of(front: &Arc<Front>) -> Rc<Self> {
        ROOMS.with_borrow_mut(|rooms| {
            let mut known = rooms.iter().filter_map(Weak::upgrade);
            if let Some(room) = known.find(|room| Arc::ptr_eq(&room.front, front)) {
                return room;
            }
            rooms.retain(|room| room.strong_count() > 0);
            let idle = RefCell::new(IdleConnections::new(front.idle_bytes_max));
            let room = Rc::new(Self { front: Arc::clone(front), idle });
            rooms.push(Rc::downgrade(&room));
            room
        })
    }

    /// Closes an idle connection, to make room for a new one. False: none is idle.
    pub(super) fn make_room(&self) -> bool {
        let told = self.idle.borrow_mut().make_room();
        if told.iter().all(Option::is_none) {
            return false;
        }
        self.front.counters.displaced.count();
        told.into_iter().flatten().for_each(|(_, waker)| waker.wake());
        true
    }

    fn add(&self, bytes: u64, cx: &Context<'_>) -> Place {
        let place = self.idle.borrow_mut().add(bytes, cx.waker().clone());
        self.tell();
        place
    }

    fn grow(&self, place: Place, bytes: u64) {
        self.idle.borrow_mut().grow(place, bytes);
        self.tell();
    }

    /// Closes the connections for which memory is short.
    fn tell(&self) {
        let mut idle = self.idle.borrow_mut();
        while let Some((word, waker)) = idle.tell_next() {
            if word == Word::Go {
                self.front.counters.idle_closed.count();
            }
            waker.wake();
        }
    }
}

// === impl IdleTracker ===

impl IdleTracker {
    pub(super) fn new(room: Rc<Room>, speech: Speech, is_tls: bool) -> Self {
        Self { room, bytes: speech.bytes(is_tls), partial_bytes: 0, place: None, heard: None }
    }

    /// Sets how many bytes of an incomplete item, such as a head, have been received. Call it
    /// before `look`.
    pub(super) fn keep(&mut self, received_bytes: u64) {
        // Buffers grow by doubling.
        let kept = if received_bytes == 0 { 0 } else { received_bytes.next_power_of_two() };
        if let Some(place) = self.place.filter(|_| kept > self.partial_bytes) {
            self.room.grow(place, kept - self.partial_bytes);
            self.partial_bytes = kept;
        } else if self.place.is_none() {
            self.partial_bytes = kept;
        }
    }

    /// Call it when the connection has nothing left to do. `is_idle`: it waits for a request of
    /// its client. Returns the word given to it, once.
    pub fn look(&mut self, is_idle: bool, cx: &Context<'_>) -> Option<Word> {
        let room = &self.room;
        match (self.place, is_idle) {
            (None, false) => None,
            (None, true) => {
                // A task keeps its waker, so this one remains valid.
                self.place = Some(room.add(self.bytes + self.partial_bytes, cx));
                None
            }
            (Some(_), false) => {
                self.leave();
                None
            }
            (Some(place), true) => {
                let word = room.idle.borrow().word(place);
                let is_news = word > std::mem::replace(&mut self.heard, word);
                word.filter(|_| is_news)
            }
        }
    }

    /// The client has sent a request. Call this for requests answered immediately, too: they leave
    /// no trace for the next look at the connection.
    pub fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.room.idle.borrow_mut().remove(place);
            self.heard = None;
        }
    }

    /// Awaits a step of a client that has sent no request yet, and counts the bytes that
    /// `partial_bytes` returns; `None`: it must close before that.
    pub async fn during<T>(
        mut self,
        partial_bytes: impl Fn() -> u64,
        step: impl Future<Output = T>,
    ) -> Option<T> {
        let told = poll_fn(|cx| {
            self.keep(partial_bytes());
            self.look(true, cx).map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            biased;
            outcome = step => Some(outcome),
            _ = told => None,
        }
    }
}

impl Drop for IdleTracker {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Makes an HTTP/2 connection follow its word. Returns whether it can be dropped now; otherwise it
/// must be polled to send the word.
pub fn is_over<S, B>(connection: &mut Connection<S, B>, word: Word, cx: &mut Context<'_>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    match word {
        // Requests are accepted until the client has agreed, so none is lost.
        Word::Go => connection.graceful_shutdown(),
        Word::End => {
            // A request that arrives at this moment is reported to its client as not processed.
            connection.abrupt_shutdown(Reason::NO_ERROR);
            // Bytes for which the socket has no room now are dropped.
            let _as_far_as_there_is_room = connection.poll_closed(cx);
        }
    }
    word == Word::End
}
