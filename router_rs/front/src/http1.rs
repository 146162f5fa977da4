//! The task of one HTTP/1.1 (or 1.0) connection: hyper handles the protocol, this code handles
//! timeouts and drains.
//!
//! hyper keeps its buffers between requests, 16 KiB and more. A connection that has been idle for a
//! second has none: it is idle, as a socket and a timer only, until another byte arrives.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;
use router_io::on_buffers_freed;
use router_io::phase::{Phase, Phases};
use router_protocol::grpc::{HttpFailure, is_grpc_content_type};
use tokio::io::AsyncWrite;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::admit::{admit_plain, answer_here, manner};
use crate::client_stream::ClientStream;
use crate::connection::ConnectionState;
use crate::ends::http1_end::{Answer, Busy, pair};
use crate::ends::http1_socket::Http1Socket;
use crate::ends::plain::{Kind, PlainEnd};
use crate::guard::awake::{Awake, IDLE_AFTER};
use crate::guard::penalty_box::Offence;
use crate::heads::plain_head::check_codings;
use crate::heads::websocket;
use crate::idle::{IdleTracker, Speech};
use crate::limits::FrontLimits;
use crate::linger::Linger;
use crate::own_call::OwnCall;
use crate::unreadable;

/// hyper buffers no more than this for reading or writing, in addition to the piece that it has
/// just taken. Its own bound is six times as much, its minimum is 8 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// Serves the connection, and its WebSocket if it becomes one, until it ends.
pub async fn serve(
    state: Rc<ConnectionState>,
    stream: ClientStream,
    phase: watch::Receiver<Phase>,
) {
    let (held, mut released) = oneshot::channel();
    state.hold(held);
    let own_call = state.take_calls();
    Driver::new(Rc::clone(&state), stream, phase.clone(), Rc::clone(&own_call)).await;
    own_call.leave();
    drop(own_call);
    // Calls may outlive the connection: WebSockets, and those that continue without their client.
    // They must be notified of the end.
    let calls = Rc::downgrade(&state);
    drop(state);
    let mut phase = phase;
    tokio::select! {
        _ = &mut released => {}
        _ = phase.wait_for(|phase| *phase == Phase::Stopped) => {
            if let Some(state) = calls.upgrade() {
                state.stop();
            }
        }
    }
}

fn settings(limits: &FrontLimits) -> Builder {
    let header_bytes_max = limits.header_bytes_max as usize;
    let mut builder = Builder::new();
    builder
        .max_header_size(header_bytes_max)
        .max_buf_size(BUFFER_BYTES.max(header_bytes_max))
        // hyper has one timeout for both the head and the wait before it; we have two.
        .header_read_timeout(None)
        // A full close and a half-close look alike until something is sent. Leaving a replica at
        // work for no client is worse than ending a request whose client half-closes early, which
        // few do.
        .half_close(false);
    builder
}

/// The service that hyper calls for each request.
struct Door {
    state: Rc<ConnectionState>,
    /// How many there were.
    served: Rc<Cell<u64>>,
    /// Shared by the answers in progress.
    busy: Busy,
}

impl Service<Request<Incoming>> for Door {
    type Response = http::Response<crate::ends::http1_end::Http1Body>;
    type Error = crate::ends::http1_end::Broken;
    type Future = Answer;

    fn call(&self, mut request: Request<Incoming>) -> Answer {
        self.served.set(self.served.get() + 1);
        self.state.on_request();
        self.state.front.counters.calls.count();
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let is_head = parts.method == Method::HEAD;
        let (mut end, answer) = pair(body, is_head, &self.state, Rc::clone(&self.busy));
        if websocket::names_websocket(&parts.headers) {
            end.close(); // Unless it becomes one: `head_lines` has let pass what follows.
        }
        if let Err(failure) = check_codings(&parts.headers) {
            end.close();
            let manner = manner(&self.state, &parts, Kind::Plain);
            answer_here(&self.state, PlainEnd::new(end, &self.state, manner), &failure);
        } else if is_grpc_content_type(parts.headers.get(CONTENT_TYPE)) {
            let manner = manner(&self.state, &parts, Kind::Plain);
            let failure = HttpFailure::new(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "gRPC needs HTTP/2: use prior knowledge, or h2 in ALPN",
            );
            answer_here(&self.state, PlainEnd::new(end, &self.state, manner), &failure);
        } else if websocket::is_upgrade(&parts) {
            let socket = Http1Socket::new(end, upgrade, &parts, &self.state);
            admit_plain(&self.state, parts, socket, Kind::WebSocket);
        } else {
            admit_plain(&self.state, parts, end, Kind::Plain);
        }
        answer
    }
}

/// Polls hyper's connection, the front's phase and the clock.
struct Driver {
    speaker: Speaker,
    own_call: Rc<OwnCall>,
    state: Rc<ConnectionState>,
    phases: Phases,
    current: Phase,
    patience: Patience,
    idle_tracker: IdleTracker,
}

/// The owner of the connection.
enum Speaker {
    Hyper(Box<UpgradeableConnection<ClientStream, Door>>),
    /// None, until bytes arrive.
    Idle(ClientStream, Door),
    /// Us, for the last time: the rest of our answer.
    Refusing(ClientStream, Bytes),
    /// The client alone; nothing reads.
    Lingering(Linger),
    /// It is over.
    Nobody,
}

impl Driver {
    fn new(
        state: Rc<ConnectionState>,
        stream: ClientStream,
        phase: watch::Receiver<Phase>,
        own_call: Rc<OwnCall>,
    ) -> Self {
        let (served, busy) = (Rc::default(), Busy::default());
        let patience = Patience::new(&state, &served, &busy);
        let door = Door { state: Rc::clone(&state), served, busy };
        let speaker = Speaker::speak(stream, door);
        let idle_tracker = state.idle_tracker(Speech::Http1);
        let (phases, current) = (Phases::new(phase), Phase::Serving);
        Self { speaker, own_call, state, phases, current, patience, idle_tracker }
    }

    /// Whether others may have its place: it has no request, or no complete one.
    fn is_idle(&self) -> bool {
        matches!(self.speaker, Speaker::Idle(..)) || self.patience.awaited == Awaited::Head
    }

    fn enter(&mut self, phase: Phase) {
        if self.current == Phase::Serving {
            match &mut self.speaker {
                // Requests in progress are answered with `connection: close`.
                Speaker::Hyper(connection) => Pin::new(&mut **connection).graceful_shutdown(),
                Speaker::Idle(..) | Speaker::Lingering(_) => self.speaker = Speaker::Nobody,
                Speaker::Refusing(..) | Speaker::Nobody => {}
            }
            self.state.is_draining.set(true);
        }
        if phase == Phase::Stopped {
            self.state.stop();
        }
        self.current = phase;
    }

    /// Ready at the end of the connection.
    fn poll_call_and_speaker(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.is_attentive.set(true);
        self.own_call.poll(cx);
        self.state.is_attentive.set(false);
        let served = self.patience.served.get();
        if self.poll_speaker(cx).is_ready() {
            return Poll::Ready(());
        }
        if served != self.patience.served.get() {
            // A call has begun, which only this task polls.
            self.own_call.poll(cx);
        }
        Poll::Pending
    }

    fn poll_speaker(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Speaker::Idle(stream, _) = &mut self.speaker {
            if !ready!(stream.poll_begun(cx)) {
                return Poll::Ready(());
            }
            self.speaker = match std::mem::replace(&mut self.speaker, Speaker::Nobody) {
                Speaker::Idle(stream, door) => Speaker::speak(stream, door),
                other => other,
            };
        }
        if let Speaker::Hyper(connection) = &mut self.speaker {
            match ready!(Pin::new(&mut **connection).poll(cx)) {
                Ok(()) => self.linger(),
                Err(error) => self.on_error(&error),
            }
        }
        if let Speaker::Refusing(stream, answer) = &mut self.speaker {
            ready!(poll_last_words(stream, answer, cx));
            self.linger();
        }
        match &mut self.speaker {
            Speaker::Lingering(linger) => linger.poll(cx),
            _ => Poll::Ready(()),
        }
    }

    /// Everything is sent; the client may not have read it yet.
    fn linger(&mut self) {
        let stream = match std::mem::replace(&mut self.speaker, Speaker::Nobody) {
            Speaker::Hyper(connection) => connection.into_parts().map(|parts| parts.io),
            Speaker::Refusing(stream, _) => Some(stream),
            _ => None,
        };
        if let Some(stream) = stream {
            self.speaker = Speaker::Lingering(Linger::new(stream));
        }
    }

    /// hyper gives up; we send the reason, if it was a request that it could not read.
    fn on_error(&mut self, error: &hyper::Error) {
        if error.is_parse_too_large() {
            self.state.front.counters.header_bytes_exceeded.count();
        }
        if error.is_parse() {
            self.state.on_offence(Offence::Malformed);
        }
        let Speaker::Hyper(connection) = std::mem::replace(&mut self.speaker, Speaker::Nobody)
        else {
            return;
        };
        let Some(mut stream) = connection.into_parts().map(|parts| parts.io) else { return };
        if let Some(unread) = stream.take_unread() {
            let answer = unreadable::answer(unread, error, &self.state);
            self.speaker = Speaker::Refusing(stream, answer);
        }
    }

    /// Takes the connection from hyper, if everything that it had to write has been written.
    fn go_idle(&mut self) {
        if self.current != Phase::Serving {
            return;
        }
        if !self.state.gauge.is_flushed() {
            self.patience.stay_awake();
            return;
        }
        self.speaker = match std::mem::replace(&mut self.speaker, Speaker::Nobody) {
            Speaker::Hyper(connection) => match connection.into_parts() {
                // An empty line between requests may remain.
                Some(parts) if parts.read_buf.trim_ascii().is_empty() => {
                    self.state.front.counters.rests.count();
                    on_buffers_freed();
                    Speaker::Idle(parts.io, parts.service)
                }
                // The beginning of a request that came with the one before it.
                Some(mut parts) => {
                    parts.io.read_again(parts.read_buf);
                    Speaker::speak(parts.io, parts.service)
                }
                None => Speaker::Nobody,
            },
            other => other,
        };
    }
}

/// Ready when the client has got everything, or is gone.
fn poll_last_words(
    stream: &mut ClientStream,
    answer: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<()> {
    while answer.has_remaining() {
        match ready!(AsyncWrite::poll_write(Pin::new(stream), cx, answer)) {
            Ok(length) if length > 0 => answer.advance(length),
            _ => return Poll::Ready(()),
        }
    }
    // An error means that the client is gone.
    AsyncWrite::poll_shutdown(Pin::new(stream), cx).map(drop)
}

impl Speaker {
    fn speak(stream: ClientStream, door: Door) -> Self {
        let builder = settings(door.state.front.limits());
        Self::Hyper(Box::new(builder.serve_connection(stream, door).with_upgrades()))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        while let Poll::Ready(phase) = this.phases.poll_next(cx) {
            this.enter(phase);
        }
        this.state.gauge.begin_turn();
        loop {
            if this.poll_call_and_speaker(cx).is_ready() {
                return Poll::Ready(());
            }
            if matches!(this.speaker, Speaker::Lingering(_)) {
                // It has its own timeouts.
                this.idle_tracker.keep(0);
                return this.idle_tracker.look(true, cx).map_or(Poll::Pending, |_| Poll::Ready(()));
            }
            this.patience.look(&this.state);
            this.idle_tracker.keep(this.patience.head_bytes());
            if this.idle_tracker.look(this.is_idle(), cx).is_some() {
                // All complete requests of this connection have been answered.
                return Poll::Ready(());
            }
            match ready!(this.patience.poll(&this.state, cx)) {
                // Dropping the connection closes it.
                Due::End => return Poll::Ready(()),
                // The new owner of the connection must be polled next.
                Due::Idle => this.go_idle(),
            }
        }
    }
}

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The client has been idle for a while.
    Idle,
    /// It has taken too long.
    End,
}

/// The event that a connection waits for, which determines its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The first byte of another request.
    Request,
    /// The rest of a head.
    Head,
    /// An answer of ours: calls have limits of their own.
    Nothing,
}

/// The time limits between requests and inside heads.
struct Patience {
    served: Rc<Cell<u64>>,
    busy: Busy,
    awaited: Awaited,
    seen_served: u64,
    seen_bytes: u64,
    /// The bytes received when the awaited head began.
    head_from: u64,
    until: Instant,
    /// When a connection that waits for a request becomes idle.
    idle_at: Option<Instant>,
    awake: Awake,
    /// Set to the earliest deadline. It is checked when it fires, and not moved for each request.
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(state: &ConnectionState, served: &Rc<Cell<u64>>, busy: &Busy) -> Self {
        let until = after(state.front.limits().header_timeout);
        Self {
            served: Rc::clone(served),
            busy: Rc::clone(busy),
            awaited: Awaited::Head,
            seen_served: 0,
            seen_bytes: 0,
            head_from: 0,
            until,
            idle_at: None,
            awake: Awake::default(),
            timer: Box::pin(sleep_until(until)),
        }
    }

    /// The bytes received of an incomplete head.
    fn head_bytes(&self) -> u64 {
        if self.awaited == Awaited::Head { self.seen_bytes - self.head_from } else { 0 }
    }

    /// It could not become idle yet, and will try again.
    fn stay_awake(&mut self) {
        self.awake.begin();
        self.idle_at = Some(after(IDLE_AFTER));
    }

    /// Ready when something is due, as far as was known at the last look.
    fn poll(&mut self, state: &ConnectionState, cx: &mut Context<'_>) -> Poll<Due> {
        if self.awaited == Awaited::Nothing {
            return Poll::Pending;
        }
        let due = self.idle_at.map_or(self.until, |at| at.min(self.until));
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.until <= now {
                let counters = &state.front.counters;
                match self.awaited {
                    Awaited::Request => counters.keep_alive_timeouts.count(),
                    Awaited::Head | Awaited::Nothing => counters.header_timeouts.count(),
                }
                return Poll::Ready(Due::End);
            }
            if due <= now {
                self.idle_at = None;
                self.awake.end();
                return Poll::Ready(Due::Idle);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    /// Notes what has changed since the last look.
    fn look(&mut self, state: &ConnectionState) {
        let limits = state.front.limits();
        // References held by us, by the door, and by answers.
        if Rc::strong_count(&self.busy) > 2 {
            self.awaited = Awaited::Nothing;
            self.awake.end();
            return;
        }
        let (served, bytes) = (self.served.get(), state.gauge.received_bytes());
        if self.awaited == Awaited::Nothing || served != self.seen_served {
            self.awaited = Awaited::Request;
            self.until = after(limits.keep_alive_timeout);
            self.idle_at = Some(after(self.awake.begin()));
        } else if self.awaited == Awaited::Request && bytes != self.seen_bytes {
            self.awaited = Awaited::Head;
            self.head_from = self.seen_bytes;
            self.until = after(limits.header_timeout);
            self.idle_at = None;
            self.awake.end();
        }
        (self.seen_served, self.seen_bytes) = (served, bytes);
    }
}

/// A time that far away. A limit beyond what the clock can count has no effect.
fn after(limit: Duration) -> Instant {
    const AS_GOOD_AS_NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + limit.min(AS_GOOD_AS_NEVER)
}
