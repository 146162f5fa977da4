//! One HTTP/1.1 request as an end of the exchange, and its answer for hyper.
//!
//! The call and hyper's connection meet in a slot that holds one piece of the answer, or a few
//! small ones so that hyper writes them at once. More is accepted once hyper has taken these, so a
//! client that does not read stalls the replica's stream. Both are on one thread, and mostly in one
//! task.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use router_call::{Caller, Cancelled, Piece};
use router_protocol::content_length;
use router_protocol::grpc::HttpFailure;
use router_protocol::names::WEBSOCKET;
use thiserror::Error;

use crate::connection::ConnectionState;
use crate::ends::chunk_coalescer::ChunkCoalescer;
use crate::ends::plain::Transport;
use crate::guard::penalty_box::Offence;

/// The answer cannot be completed: hyper closes the connection, which is how an HTTP/1.1 client
/// notices.
#[derive(Debug, Error)]
#[error("the answer broke off")]
pub(crate) struct Broken;

#[derive(Debug, Default)]
struct State {
    head: Option<response::Parts>,
    piece: Option<Bytes>,
    /// Small pieces that follow it, and their length.
    more: VecDeque<Bytes>,
    more_bytes: usize,
    /// Nothing follows what is here.
    end: Option<Result<(), Broken>>,
    /// How much hyper takes, if the head says so, and how much it has taken.
    expected_bytes: Option<u64>,
    taken_bytes: u64,
    /// hyper has dropped its half: it has taken everything it wants, or the client is gone.
    is_left: bool,
    is_gone: bool,
    /// The wakers of the call's task and of hyper's.
    call: Option<Waker>,
    connection: Option<Waker>,
}

/// The small pieces accepted before hyper has written: as many as it writes at once.
const PIECES_MAX: usize = 16;
const PIECES_BYTES_MAX: usize = 16 * 1024;

type Slot = Rc<RefCell<State>>;

/// The call's half.
#[derive(Debug)]
pub(crate) struct Http1End {
    body: Incoming,
    coalescer: ChunkCoalescer,
    slot: Slot,
    connection: Rc<ConnectionState>,
    is_head: bool,
    /// This is the last request of the connection.
    closes: bool,
    is_malformed: bool,
}

/// hyper's half, until the head has come.
#[derive(Debug)]
pub(crate) struct Answer {
    slot: Option<Slot>,
    busy: Busy,
}

/// hyper's half, from the head on.
#[derive(Debug)]
pub(crate) struct Http1Body {
    slot: Slot,
    /// The length that the head announces.
    has_length: bool,
    /// hyper has had time to write the data before the abort.
    is_flushed: bool,
    _busy: Busy,
}

/// Keeps a connection from counting as one that waits for its next request.
pub(crate) type Busy = Rc<()>;

/// Creates the two halves of one request; `is_head`: its method is HEAD.
pub(crate) fn pair(
    body: Incoming,
    is_head: bool,
    connection: &Rc<ConnectionState>,
    busy: Busy,
) -> (Http1End, Answer) {
    let slot = Slot::default();
    let coalescer = ChunkCoalescer::default();
    let connection = Rc::clone(connection);
    let (closes, is_malformed) = (false, false);
    let half = Rc::clone(&slot);
    let end = Http1End { body, coalescer, slot: half, connection, is_head, closes, is_malformed };
    (end, Answer { slot: Some(slot), busy })
}

/// How much of a body hyper takes: the length in the head, or nothing where HTTP has no body.
fn expected_bytes(head: &response::Parts, is_head: bool) -> Option<u64> {
    let is_bodiless = is_head
        || head.status.is_informational()
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_bodiless { Some(0) } else { content_length(&head.headers) }
}

/// Whether hyper could not parse a body, as opposed to a body that was cut off.
fn is_malformed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let kind = cause.map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

// === impl State ===

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        let Some(piece) = &self.piece else { return true };
        let held_bytes = piece.len() + self.more_bytes;
        self.more.len() + 1 < PIECES_MAX && held_bytes + bytes <= PIECES_BYTES_MAX
    }

    fn put(&mut self, piece: Bytes) {
        if self.piece.is_none() {
            self.piece = Some(piece);
        } else {
            self.more_bytes += piece.len();
            self.more.push_back(piece);
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let next = self.more.pop_front();
        self.more_bytes -= next.as_ref().map_or(0, Bytes::len);
        std::mem::replace(&mut self.piece, next)
    }
}

// === impl Http1End ===

impl Transport for Http1End {
    fn is_bodiless(&self) -> bool {
        self.body.is_end_stream()
    }

    fn abort(&mut self) {
        self.end(Err(Broken));
    }

    fn malformed(&self) -> Option<HttpFailure> {
        let text = "the chunks of the request's body cannot be read";
        self.is_malformed.then(|| HttpFailure::new(StatusCode::BAD_REQUEST, text))
    }
}

impl Http1End {
    /// Closes the connection after the answer, since it is not certain where this request ends.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }

    fn end(&mut self, end: Result<(), Broken>) {
        let mut state = self.slot.borrow_mut();
        if state.end.is_none() {
            state.end = Some(end);
            self.tell(&mut state);
        }
    }

    /// Wakes hyper: there is something for it.
    fn tell(&self, state: &mut State) {
        if !self.connection.is_attentive.get() {
            wake(&mut state.connection);
        }
    }
}

impl Caller for Http1End {
    fn on_sent(&mut self, _peer: &Arc<str>) {}

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        loop {
            if let Some(bytes) = ready!(self.coalescer.poll(cx)) {
                return Poll::Ready(Ok(Piece { bytes, is_last: false }));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return Poll::Pending;
            };
            let (bytes, is_last) = match frame {
                None => (Bytes::new(), true),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => (bytes, self.body.is_end_stream()),
                    // Trailers are dropped, as over HTTP/2.
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    if is_malformed(&error) {
                        self.connection.on_offence(Offence::Malformed);
                        self.is_malformed = true;
                        self.close();
                    }
                    return Poll::Ready(Err(Cancelled));
                }
            };
            let passed_on = self.coalescer.add(bytes, is_last);
            self.connection.gauge.set_rate_limited(passed_on.is_none());
            if let Some(bytes) = passed_on {
                return Poll::Ready(Ok(Piece { bytes, is_last }));
            }
        }
    }

    /// hyper reads on when it is polled, so it has no flow-control window to return.
    fn accepted(&mut self, _bytes: usize) {}

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        let mut state = self.slot.borrow_mut();
        if state.is_gone {
            return Poll::Ready(Cancelled);
        }
        state.call = Some(cx.waker().clone());
        Poll::Pending
    }

    fn head(&mut self, mut head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        let mut state = self.slot.borrow_mut();
        if state.is_gone {
            return Err(Cancelled);
        }
        if head.status == StatusCode::UPGRADE_REQUIRED {
            // It has to name a protocol (RFC 9110, 15.5.22), and there is one. What an application
            // has written has not come this far: the header is of one hop.
            head.headers.insert(UPGRADE, WEBSOCKET);
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        if self.closes && head.status != StatusCode::SWITCHING_PROTOCOLS {
            head.headers.append(CONNECTION, HeaderValue::from_static("close"));
        }
        if head.status.canonical_reason().is_none() {
            head.extensions.insert(ReasonPhrase::from_static(b"")); // hyper would write "<none>"
        }
        state.expected_bytes = expected_bytes(&head, self.is_head);
        state.head = Some(head);
        if is_last {
            state.end = Some(Ok(()));
        }
        self.tell(&mut state);
        Ok(())
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        let mut state = self.slot.borrow_mut();
        if state.is_gone {
            return Poll::Ready(Err(Cancelled));
        }
        if state.is_left || state.has_room(wanted) {
            return Poll::Ready(Ok(wanted));
        }
        state.call = Some(cx.waker().clone());
        Poll::Pending
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        let mut state = self.slot.borrow_mut();
        if state.is_gone {
            return Err(Cancelled);
        }
        if state.is_left {
            return Ok(()); // more than the head says
        }
        debug_assert!(state.has_room(bytes.len()), "a piece was given without room");
        state.put(bytes);
        self.tell(&mut state);
        Ok(())
    }

    fn trailers(&mut self, _trailers: HeaderMap) -> Result<(), Cancelled> {
        self.end(Ok(()));
        Ok(())
    }
}

impl Drop for Http1End {
    fn drop(&mut self) {
        self.end(Err(Broken));
        // It would wake the connection, whose task this may be.
        self.slot.borrow_mut().call = None;
    }
}

// === hyper's half ===

impl Future for Answer {
    type Output = Result<Response<Http1Body>, Broken>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(slot) = &this.slot else { return Poll::Ready(Err(Broken)) };
        let mut state = slot.borrow_mut();
        let Some(head) = state.head.take() else {
            if state.end.is_some() {
                return Poll::Ready(Err(Broken));
            }
            state.connection = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        let has_length = head.headers.contains_key(CONTENT_LENGTH);
        let slot = this.slot.take().expect("invariant: it was there a moment ago");
        let busy = Rc::clone(&this.busy);
        let body = Http1Body { slot, has_length, is_flushed: false, _busy: busy };
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            leave(slot);
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let mut state = this.slot.borrow_mut();
        if let Some(piece) = state.take() {
            state.taken_bytes += piece.len() as u64;
            if state.piece.is_none() {
                wake(&mut state.call);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &state.end {
            Some(Ok(())) => Poll::Ready(None),
            // hyper forgets unwritten data when a body fails, but writes it while a body is
            // pending. So be pending once before the failure.
            Some(Err(Broken)) if !this.is_flushed => {
                this.is_flushed = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Err(Broken)) => Poll::Ready(Some(Err(Broken))),
            None => {
                state.connection = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.slot.borrow();
        state.piece.is_none() && matches!(state.end, Some(Ok(())))
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.slot.borrow();
        match (&state.piece, &state.end) {
            // The body is complete, so hyper need not send it in chunks.
            (Some(piece), Some(Ok(()))) if !self.has_length && state.more.is_empty() => {
                SizeHint::with_exact(piece.len() as u64)
            }
            _ => SizeHint::default(),
        }
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        leave(&self.slot);
    }
}

fn leave(slot: &Slot) {
    let mut state = slot.borrow_mut();
    // hyper drops a body whose announced length it has sent, without polling for its end. The
    // replica may go on: it has more to do, or its end is still to come.
    let has_all = state.head.is_none() && state.expected_bytes == Some(state.taken_bytes);
    let is_whole = has_all || matches!(state.end, Some(Ok(())));
    state.is_left = true;
    state.is_gone = !is_whole;
    // Frees its memory early.
    state.piece = None;
    state.more = VecDeque::new();
    wake(&mut state.call);
}
