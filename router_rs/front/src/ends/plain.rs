//! A plain HTTP client's end of the exchange, over HTTP/1.1 or HTTP/2.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, response};
use router_call::{Caller, Cancelled, ClientEnd, Failure, Piece, Refusal};
use router_io::{Alarm, Peer};
use router_protocol::grpc::{Code, HttpFailure, QUEUE_FULL_DEFAULT, Status};
use router_protocol::names::ANSWERED_BY;
use router_transcode::Grant;

use crate::connection::ConnectionState;
use crate::guard::socket_frames::{RESTART, SocketFrames, TOO_MANY_SMALL_FRAMES};
use crate::guard::socket_rate_limiter::{SocketRateLimiter, TooMuch};
use crate::guard::stall::Stall;
use crate::heads::{request_id, websocket};
use crate::upstream::RouteLookup;

/// The transport of a plain HTTP request and its answer: an end that can be aborted.
pub(crate) trait Transport: Caller {
    /// The request has no body.
    fn is_bodiless(&self) -> bool;

    /// Ends the answer so that the client can see that it is incomplete.
    fn abort(&mut self);

    /// Ends the answer with `last`, which is a few bytes, whether or not there is room for it.
    ///
    /// # Errors
    /// The client is gone.
    fn finish_with(&mut self, last: Bytes) -> Result<(), Cancelled> {
        self.body(last)?;
        self.trailers(HeaderMap::new())
    }

    /// The answer for a request body that is malformed, if it is.
    fn malformed(&self) -> Option<HttpFailure> {
        None
    }

    /// Adds headers that an answer needs and that neither its origin nor the transport's library
    /// provides.
    fn complete_head(&self, _headers: &mut HeaderMap) {}

    /// Like `ClientEnd::poll_finish`.
    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl Kind {
    /// Whether the rest of the body has a deadline. Streams, which may idle, have none.
    fn bounds_waits(self) -> bool {
        matches!(self, Kind::Plain | Kind::Transcoded { is_stream: false })
    }
}

/// How a request is to be handled.
#[derive(Debug)]
pub(crate) struct Manner {
    pub request_id: HeaderValue,
    /// HEAD: an answer has no body.
    pub is_head: bool,
    /// The request continues without its client.
    pub is_detached: bool,
    /// Lets a page of another origin read the mesh's own answers. Those of applications are theirs.
    pub grant: Grant,
    pub kind: Kind,
}

/// How the bodies of a request are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One body in each direction. The client's is bounded, and has a deadline.
    Plain,
    /// gRPC in another protocol: streams of messages, which may idle.
    Transcoded {
        /// The request's body is a stream of messages, which may idle.
        is_stream: bool,
    },
    /// After acceptance, two streams that may idle.
    WebSocket,
}

/// See the module's documentation. The outcome of each request is counted exactly once.
#[derive(Debug)]
pub(crate) struct PlainEnd<T> {
    transport: T,
    connection: Rc<ConnectionState>,
    manner: Manner,
    queue_full: StatusCode,
    /// Sent to clients when the queue is full, instead of our own estimate.
    retry_after: Option<Duration>,
    /// The time by which a WebSocket must be accepted.
    acceptance: Option<Alarm>,
    /// For an accepted WebSocket: the frames from the replica.
    frames: Option<Box<SocketFrames>>,
    /// For a WebSocket: the frames from the client.
    rate_limiter: Option<Box<SocketRateLimiter>>,
    /// How the client keeps the exchange waiting, if it does.
    stall: Stall,
    is_body_awaited: bool,
    /// A piece or room was asked for in vain since the exchange was last idle.
    is_asked: bool,
    received_bytes: u64,
    status: Option<StatusCode>,
    is_gone: bool,
    /// We aborted the exchange, and have reported it.
    refused: Option<Refusal>,
}

// === impl PlainEnd ===

impl<T: Transport> PlainEnd<T> {
    pub(crate) fn new(transport: T, connection: &Rc<ConnectionState>, manner: Manner) -> Self {
        let is_socket = manner.kind == Kind::WebSocket;
        Self {
            transport,
            rate_limiter: is_socket.then(|| Box::new(SocketRateLimiter::new(Instant::now()))),
            stall: Stall::new(connection.front.limits().body_timeout),
            connection: Rc::clone(connection),
            manner,
            queue_full: QUEUE_FULL_DEFAULT,
            retry_after: None,
            acceptance: None,
            frames: None,
            is_body_awaited: false,
            is_asked: false,
            received_bytes: 0,
            status: None,
            is_gone: false,
            refused: None,
        }
    }

    /// Sets the answer for a full queue, and when clients are to retry.
    pub(crate) fn set_queue_full(&mut self, status: StatusCode, retry_after: Option<Duration>) {
        self.queue_full = status;
        self.retry_after = retry_after;
    }

    /// A WebSocket must be accepted by then.
    pub(crate) fn set_acceptance(&mut self, until: Option<Instant>) {
        self.acceptance = until.map(Alarm::at);
    }

    pub(crate) fn is_bodiless(&self) -> bool {
        self.transport.is_bodiless()
    }

    /// Sends the whole answer.
    pub(crate) fn answer(&mut self, mut head: response::Parts, body: Bytes) {
        self.complete_head(&mut head);
        self.record(head.status);
        let is_last = body.is_empty() || self.manner.is_head;
        // An error means that the client is gone.
        let _nobody_to_tell = self.transport.head(head, is_last).and_then(|()| {
            if is_last {
                return Ok(());
            }
            self.transport.body(body)?;
            self.transport.trailers(HeaderMap::new())
        });
    }

    /// Reports a failure, or aborts the answer if it has begun.
    pub(crate) fn tell(&mut self, failure: &HttpFailure) {
        if self.status.is_some() {
            // Without a close frame, a WebSocket's client cannot know whether to reconnect.
            let close = match failure.status {
                StatusCode::SERVICE_UNAVAILABLE => Some(RESTART),
                StatusCode::TOO_MANY_REQUESTS => Some(TOO_MANY_SMALL_FRAMES),
                _ => None,
            };
            let last = self.frames.as_ref().and_then(|frames| frames.close(close?));
            let is_told = last.is_some_and(|last| self.transport.finish_with(last).is_ok());
            if !is_told {
                self.transport.abort();
            }
            return;
        }
        let mut head = failure.head(self.connection.front.config.answered_by.clone());
        websocket::add_hints(head.status, &mut head.headers);
        self.manner.grant.write(&mut head.headers);
        self.answer(head, failure.body());
    }

    /// Aborts the exchange because of the client's behaviour.
    fn refuse(&mut self, failure: &HttpFailure) -> Cancelled {
        self.tell(failure);
        let status = Status::new(refusal_code(failure.status), failure.text.clone());
        self.refused = Some(Refusal { status, http: Some(failure.status) });
        Cancelled
    }

    fn complete_head(&self, head: &mut response::Parts) {
        request_id::tell(&mut head.headers, &self.manner.request_id);
        self.transport.complete_head(&mut head.headers);
    }

    fn record(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.connection.front.counters.answered(status);
    }

    fn is_accepted_websocket(&self) -> bool {
        self.manner.kind == Kind::WebSocket && self.status.is_some()
    }

    /// Requests in another protocol have limits of their own.
    pub(crate) fn transcode(&mut self, is_stream: bool) {
        self.manner.kind = Kind::Transcoded { is_stream };
    }

    pub(crate) fn kind(&self) -> Kind {
        self.manner.kind
    }

    pub(crate) fn request_id(&self) -> &HeaderValue {
        &self.manner.request_id
    }

    /// Replaces a failure by `instead` for a request that may outlive its client.
    fn unless_detached<R>(
        &mut self,
        result: Result<R, Cancelled>,
        instead: R,
    ) -> Result<R, Cancelled> {
        self.is_gone |= result.is_err();
        if self.manner.is_detached { result.or(Ok(instead)) } else { result }
    }

    fn check_size(&mut self, piece: &Piece) -> Result<(), Cancelled> {
        self.received_bytes += piece.bytes.len() as u64;
        match self.connection.front.limits().body_bytes_max {
            Some(limit) if self.received_bytes > limit && self.manner.kind == Kind::Plain => {
                self.connection.front.counters.body_bytes_exceeded.count();
                let failure = body_too_large(limit, &self.connection.lookup);
                Err(self.refuse(&failure))
            }
            _ => Ok(()),
        }
    }

    /// Ends a flood of useless frames.
    fn check_frames(&mut self, piece: &Piece) -> Result<(), Cancelled> {
        let Some(rate_limiter) = &mut self.rate_limiter else { return Ok(()) };
        rate_limiter.pass(&piece.bytes, Instant::now()).map_err(|TooMuch| {
            self.connection.front.counters.floods.count();
            let text = "the WebSocket sent too many small frames";
            self.refuse(&HttpFailure::new(StatusCode::TOO_MANY_REQUESTS, text))
        })
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        if !std::mem::take(&mut self.is_asked) {
            // The exchange waits for something else, for example a place at a replica.
            self.stall.on_move(0);
            return Poll::Pending;
        }
        if self.stall.poll(cx).is_pending() {
            return Poll::Pending;
        }
        let front = Rc::clone(&self.connection);
        front.front.counters.body_timeouts.count();
        let seconds = front.front.limits().body_timeout.as_secs_f64();
        let text = if self.is_body_awaited {
            format!("nothing of the request's body came for {seconds} s")
        } else {
            format!("nothing of the answer was taken for {seconds} s")
        };
        Poll::Ready(self.refuse(&HttpFailure::new(StatusCode::REQUEST_TIMEOUT, text)))
    }
}

/// The code of a call whose client was refused with this status. It is the client's fault, unlike
/// what the codes for HTTP statuses of a server say.
fn refusal_code(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        other => Code::from_http(other),
    }
}

/// The answer 413 for a body that is longer than `limit` bytes.
pub(crate) fn body_too_large(limit: u64, lookup: &RouteLookup) -> HttpFailure {
    let variable = lookup.variable("MAX_BODY_BYTES");
    HttpFailure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the request's body is larger than {limit} bytes{variable}"),
    )
}

impl<T: Transport> Caller for PlainEnd<T> {
    fn on_sent(&mut self, peer: &Arc<str>) {
        self.transport.on_sent(peer);
    }

    fn peer(&self, headers: &HeaderMap) -> String {
        Peer::Tcp(self.connection.client(headers).peer).uri()
    }

    /// Clients of applications that stream piece by piece treat a chunk as a message.
    fn keeps_pieces(&self) -> bool {
        self.manner.kind == Kind::Plain
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        if let Some(rate_limiter) = &mut self.rate_limiter {
            ready!(rate_limiter.poll(cx));
        }
        let piece = self.transport.poll_piece(cx);
        if let Some(failure) = self.transport.malformed() {
            return Poll::Ready(Err(self.refuse(&failure)));
        }
        match &piece {
            Poll::Pending if self.manner.kind.bounds_waits() => {
                self.is_body_awaited = true;
                self.is_asked = true;
                self.stall.on_wait();
            }
            Poll::Pending => {}
            Poll::Ready(result) => {
                self.is_body_awaited = false;
                self.is_gone |= result.is_err();
                let bytes = result.as_ref().map_or(0, |piece| piece.bytes.len());
                self.stall.on_move(bytes);
                if let Ok(piece) = result {
                    self.check_size(piece)?;
                    self.check_frames(piece)?;
                }
            }
        }
        piece
    }

    fn accepted(&mut self, bytes: usize) {
        self.transport.accepted(bytes);
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        if !self.is_gone && self.transport.poll_cancelled(cx).is_ready() {
            self.is_gone = true;
        }
        if self.is_gone {
            return if self.manner.is_detached { Poll::Pending } else { Poll::Ready(Cancelled) };
        }
        let is_late = self.acceptance.as_mut().is_some_and(|alarm| alarm.poll(cx).is_ready());
        if is_late && self.status.is_none() {
            let text = "the WebSocket was not accepted in time";
            let failure = HttpFailure::new(StatusCode::REQUEST_TIMEOUT, text);
            return Poll::Ready(self.refuse(&failure));
        }
        self.poll_stall(cx)
    }

    fn is_slow(&self) -> bool {
        self.stall.is_slow() && !self.is_gone
    }

    fn on_give_way(&mut self) {
        self.connection.front.counters.slow_clients.count();
    }

    fn head(&mut self, mut head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        // Answers in another protocol have theirs already.
        if self.manner.kind == Kind::Plain && head.headers.contains_key(ANSWERED_BY) {
            self.manner.grant.write(&mut head.headers);
        }
        self.complete_head(&mut head);
        self.acceptance = None;
        self.stall.on_move(0);
        let status = head.status;
        if self.manner.kind == Kind::WebSocket && status == StatusCode::OK {
            self.frames = Some(Box::default());
        }
        let told = if self.is_gone { Err(Cancelled) } else { self.transport.head(head, is_last) };
        if told.is_ok() {
            self.record(status);
        }
        self.unless_detached(told, ())
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        if self.is_gone {
            return Poll::Ready(self.unless_detached(Err(Cancelled), wanted));
        }
        match self.transport.poll_room(wanted, cx) {
            Poll::Pending => {
                self.is_asked = true;
                self.stall.on_wait();
                Poll::Pending
            }
            Poll::Ready(room) => {
                // While the rest of the body is awaited as well, its time starts again.
                self.stall.on_move(room.unwrap_or(0));
                if self.is_body_awaited {
                    self.stall.on_wait();
                }
                Poll::Ready(self.unless_detached(room, wanted))
            }
        }
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        if self.manner.is_head {
            return Ok(());
        }
        self.connection.gauge.earn_by_answer(bytes.len());
        if let Some(frames) = &mut self.frames {
            frames.pass(&bytes, drop);
        }
        let told = if self.is_gone { Err(Cancelled) } else { self.transport.body(bytes) };
        self.unless_detached(told, ())
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        let told = if self.is_gone { Err(Cancelled) } else { self.transport.trailers(trailers) };
        self.unless_detached(told, ())
    }

    fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref()
    }
}

impl<T: Transport> ClientEnd for PlainEnd<T> {
    fn fail(&mut self, failure: &Failure) {
        let status = &failure.status;
        let mut told = HttpFailure::of(status, self.queue_full);
        told.explanation.clone_from(&failure.explanation);
        if status.code == Code::ResourceExhausted {
            told.retry_after = self.retry_after.or(told.retry_after);
        }
        self.tell(&told);
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_accepted_websocket() { self.transport.poll_finish(cx) } else { Poll::Ready(()) }
    }
}

impl<T> Drop for PlainEnd<T> {
    fn drop(&mut self) {
        // The client never reads this status; it is counted for metrics.
        if self.status.is_none() && !std::thread::panicking() {
            self.connection.front.counters.client_closed.count();
        }
    }
}
