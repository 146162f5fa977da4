//! The task of one HTTP/1.1 (or 1.0) connection: hyper speaks, this watches the time and drains.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use super::admit::{admit_plain, answer_here, manner};
use super::connection::ConnectionState;
use super::http1_end::{Answer, Busy, pair};
use super::http1_socket::Http1Socket;
use super::limits::FrontLimits;
use super::plain::{Kind, PlainEnd};
use super::plain_head::check_codings;
use super::websocket;
use super::wire::Wire;
use crate::grpc::{HttpFailure, is_grpc_content_type};
use crate::phase::{Phase, Phases};

/// hyper keeps no more than this of what is to be read or written, besides the piece that it has
/// just taken. Its own bound is six times as much, its least one is 8 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// Serves the connection, and what becomes of it, until it ends.
pub(crate) async fn serve(state: Rc<ConnectionState>, wire: Wire, phase: watch::Receiver<Phase>) {
    let (held, mut released) = oneshot::channel();
    state.hold(held);
    Driver::new(Rc::clone(&state), wire, phase.clone()).await;
    // Calls may outlive the connection: WebSockets, and those that do not care for their client.
    // They have to learn of the end.
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
        // hyper has one time for the head and for the wait before it; ours are two.
        .header_read_timeout(None)
        // A client that closes and one that only ends its side look alike until something is
        // sent, and leaving a replica at work for nobody is worse than ending a request whose
        // client shuts its side down early, which few do.
        .half_close(false);
    builder
}

/// What hyper calls for each request.
struct Door {
    state: Rc<ConnectionState>,
    /// How many there were.
    served: Rc<Cell<u64>>,
    /// Shared by the answers that are under way.
    busy: Busy,
}

impl Service<Request<Incoming>> for Door {
    type Response = http::Response<super::http1_end::AnswerBody>;
    type Error = super::http1_end::Broken;
    type Future = Answer;

    fn call(&self, mut request: Request<Incoming>) -> Answer {
        self.served.set(self.served.get() + 1);
        self.state.front.counters.calls.count();
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let (mut end, answer) = pair(body, parts.method == Method::HEAD, Rc::clone(&self.busy));
        if let Err(failure) = check_codings(&parts.headers) {
            end.close();
            let manner = manner(&parts, Kind::Plain);
            answer_here(&self.state, PlainEnd::new(end, &self.state, manner), &failure);
        } else if is_grpc_content_type(parts.headers.get(CONTENT_TYPE)) {
            let manner = manner(&parts, Kind::Plain);
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
    connection: Pin<Box<UpgradeableConnection<Wire, Door>>>,
    state: Rc<ConnectionState>,
    phases: Phases,
    current: Phase,
    patience: Patience,
}

impl Driver {
    fn new(state: Rc<ConnectionState>, wire: Wire, phase: watch::Receiver<Phase>) -> Self {
        let (served, busy) = (Rc::default(), Busy::default());
        let patience = Patience::new(&state, &served, &busy);
        let door = Door { state: Rc::clone(&state), served, busy };
        let connection = settings(state.front.limits()).serve_connection(wire, door);
        Self {
            connection: Box::pin(connection.with_upgrades()),
            state,
            phases: Phases::new(phase),
            current: Phase::Serving,
            patience,
        }
    }

    fn enter(&mut self, phase: Phase) {
        if self.current == Phase::Serving {
            // Requests that are under way are answered with `connection: close`.
            self.connection.as_mut().graceful_shutdown();
            self.state.is_draining.set(true);
        }
        if phase == Phase::Stopped {
            self.state.stop();
        }
        self.current = phase;
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
        if let Poll::Ready(end) = this.connection.as_mut().poll(cx) {
            if end.is_err_and(|error| error.is_parse_too_large()) {
                this.state.front.counters.header_bytes_exceeded.count();
            }
            return Poll::Ready(());
        }
        // Dropping the connection closes it.
        this.patience.poll(&this.state, cx)
    }
}

/// What a connection waits for, which says how long it may.
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
    until: Instant,
    /// Set to what is due first; looked at again when it rings, and not moved for each request.
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
            until,
            timer: Box::pin(sleep_until(until)),
        }
    }

    /// Ready when the client has taken too long.
    fn poll(&mut self, state: &ConnectionState, cx: &mut Context<'_>) -> Poll<()> {
        self.look(state);
        if self.awaited == Awaited::Nothing {
            return Poll::Pending;
        }
        if self.until < self.timer.deadline() {
            self.timer.as_mut().reset(self.until);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.until <= Instant::now() {
                let counters = &state.front.counters;
                match self.awaited {
                    Awaited::Request => counters.keep_alive_timeouts.count(),
                    Awaited::Head | Awaited::Nothing => counters.header_timeouts.count(),
                }
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.until);
        }
        Poll::Pending
    }

    /// Notices what has changed since the last look.
    fn look(&mut self, state: &ConnectionState) {
        let limits = state.front.limits();
        // Ours, the door's, and those of answers.
        if Rc::strong_count(&self.busy) > 2 {
            self.awaited = Awaited::Nothing;
            return;
        }
        let (served, bytes) = (self.served.get(), state.gauge.received_bytes());
        if self.awaited == Awaited::Nothing || served != self.seen_served {
            self.awaited = Awaited::Request;
            self.until = after(limits.keep_alive_timeout);
        } else if self.awaited == Awaited::Request && bytes != self.seen_bytes {
            self.awaited = Awaited::Head;
            self.until = after(limits.header_timeout);
        }
        (self.seen_served, self.seen_bytes) = (served, bytes);
    }
}

/// A time that far away; a limit beyond what the clock can count is as good as none.
fn after(limit: Duration) -> Instant {
    const AS_GOOD_AS_NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + limit.min(AS_GOOD_AS_NEVER)
}
