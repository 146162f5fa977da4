//! The connections of one front that rest on one I/O thread, and what each of them knows of it. Also
//! those of which nobody knows yet what they want.
//!
//! A thread has its share of what connections at rest may keep, because they are spread evenly: so
//! none of this needs a lock or an atomic, and a call on a connection that rested costs two steps
//! of a list.

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
use crate::guard::resting::{Place, Resting, Word};

/// What a connection keeps while it rests: its share of the process's memory, as
/// `benchmarks/hostile` has measured it with ten thousand of them.
const SILENT_BYTES: u64 = 3 << 10;
const HTTP1_BYTES: u64 = 6 << 10;

/// h2 has buffers of 16 and 8 KiB, and tables.
const HTTP2_BYTES: u64 = 34 << 10;

/// What TLS adds: its session, and a record of each direction.
const TLS_BYTES: u64 = 9 << 10;

/// The protocol of a connection, which determines the memory that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// It has not said yet.
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
    /// Of the fronts that have connections on this thread.
    static ROOMS: RefCell<Vec<Weak<Room>>> = const { RefCell::new(Vec::new()) };
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Room {
    front: Arc<Front>,
    resting: RefCell<Resting>,
}

/// One connection's part in it.
#[derive(Debug)]
pub struct Rest {
    room: Rc<Room>,
    bytes: u64,
    /// Of something that has come in part, besides.
    partial_bytes: u64,
    place: Option<Place>,
    heard: Option<Word>,
}

// === impl Room ===

impl Room {
    /// That of this thread.
    pub(super) fn of(front: &Arc<Front>) -> Rc<Self> {
        ROOMS.with_borrow_mut(|rooms| {
            let mut known = rooms.iter().filter_map(Weak::upgrade);
            if let Some(room) = known.find(|room| Arc::ptr_eq(&room.front, front)) {
                return room;
            }
            rooms.retain(|room| room.strong_count() > 0);
            let resting = RefCell::new(Resting::new(front.rest_bytes_max));
            let room = Rc::new(Self { front: Arc::clone(front), resting });
            rooms.push(Rc::downgrade(&room));
            room
        })
    }

    /// Somebody who comes needs a place: has one go that rests here. False: none rests.
    pub(super) fn make_room(&self) -> bool {
        let told = self.resting.borrow_mut().make_room();
        if told.iter().all(Option::is_none) {
            return false;
        }
        self.front.counters.displaced.count();
        told.into_iter().flatten().for_each(|(_, waker)| waker.wake());
        true
    }

    fn add(&self, bytes: u64, cx: &Context<'_>) -> Place {
        let place = self.resting.borrow_mut().add(bytes, cx.waker().clone());
        self.tell();
        place
    }

    fn grow(&self, place: Place, bytes: u64) {
        self.resting.borrow_mut().grow(place, bytes);
        self.tell();
    }

    /// Closes the connections for which memory is short.
    fn tell(&self) {
        let mut resting = self.resting.borrow_mut();
        while let Some((word, waker)) = resting.tell_next() {
            if word == Word::Go {
                self.front.counters.idle_closed.count();
            }
            waker.wake();
        }
    }
}

// === impl Rest ===

impl Rest {
    pub(super) fn new(room: Rc<Room>, speech: Speech, is_tls: bool) -> Self {
        Self { room, bytes: speech.bytes(is_tls), partial_bytes: 0, place: None, heard: None }
    }

    /// So much has come of something that is not whole, such as a head. To be called before `look`.
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

    /// To be called when the connection has done what there was to do; `is_resting`: it waits for
    /// its client to ask for something. Returns what it is told, once.
    pub fn look(&mut self, is_resting: bool, cx: &Context<'_>) -> Option<Word> {
        let room = &self.room;
        match (self.place, is_resting) {
            (None, false) => None,
            (None, true) => {
                // A task keeps its waker, so this one stays good.
                self.place = Some(room.add(self.bytes + self.partial_bytes, cx));
                None
            }
            (Some(_), false) => {
                self.leave();
                None
            }
            (Some(place), true) => {
                let word = room.resting.borrow().word(place);
                let is_news = word > std::mem::replace(&mut self.heard, word);
                word.filter(|_| is_news)
            }
        }
    }

    /// The client has sent a request. Call this for requests answered immediately, too: they leave
    /// no trace for the next look at the connection.
    pub fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.room.resting.borrow_mut().remove(place);
            self.heard = None;
        }
    }

    /// Awaits a step of a client that has asked for nothing yet, and keeps as much of what it has
    /// sent as `partial_bytes` says; `None`: it has to go before that.
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

impl Drop for Rest {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Has an HTTP/2 connection do what it was told; whether nothing is left of it but to be dropped.
/// Else it has to be polled, to say so.
pub fn is_over<S, B>(connection: &mut Connection<S, B>, word: Word, cx: &mut Context<'_>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    match word {
        // Its client is heard until it has agreed, so no request of it is lost.
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
