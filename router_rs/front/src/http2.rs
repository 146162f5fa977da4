//! The task of one HTTP/2 connection: accepts requests, notices idleness, drains.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection};
use router_io::phase::{Phase, Phases};
use router_io::poll_others_first;
use router_protocol::windows::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::admit::admit_http2;
use crate::client_stream::ClientStream;
use crate::connection::ConnectionState;
use crate::guard::penalty_box::Offence;
use crate::idle::{IdleTracker, is_over};

/// h2's budget for small DATA frames that wait to be read: about 256 bytes each, so this allows 128
/// K frames. A flood of one-byte frames ends the connection there.
const SMALL_FRAMES_BUDGET_BYTES: usize = 32 << 20;

/// The number of requests that one turn of a connection admits before other tasks of its thread
/// run. Arbitrary.
pub const ADMITTED_PER_TURN_MAX: usize = 64;

/// The stream limit of a connection whose address is suspect: the least that RFC 9113 (6.5.2)
/// advises.
const SUSPECT_STREAMS_MAX: u32 = 100;

/// How many streams of such a connection may be reset for its own errors: those that it opens
/// before it knows its limit, and some more. h2's own bound is 1 024.
const SUSPECT_ERRORS_MAX: usize = 256;

/// How often an idle connection is checked within its timeout, which determines the precision.
const IDLE_LOOKS: u32 = 4;

/// Serves the connection until it ends.
pub(super) async fn serve(
    state: Rc<ConnectionState>,
    stream: ClientStream,
    phase: watch::Receiver<Phase>,
) {
    let limits = state.front.limits();
    let greeting = timeout(limits.header_timeout, settings(&state).handshake(stream));
    // An error before the first request affects no call, so it is dropped.
    let Some(Ok(Ok(connection))) = state.idle_tracker_http2().during(|| 0, greeting).await else {
        return;
    };
    Driver::new(connection, state, phase).await;
}

/// Sets the HTTP/2 limits of an unknown client, for any driver of its connection. `streams_max`
/// applies to a client of good repute.
pub fn restrain(builder: &mut Builder, state: &ConnectionState, streams_max: u32) {
    let suspect_max = if state.is_suspect { SUSPECT_STREAMS_MAX } else { u32::MAX };
    let streams_max = streams_max.min(suspect_max);
    if state.is_suspect {
        builder.max_local_error_reset_streams(Some(SUSPECT_ERRORS_MAX));
    }
    builder
        .max_concurrent_streams(streams_max)
        // Calls that a client may reset before they are looked at. All open ones may be, because a
        // client that cancels everything at once is not an attacker; one that goes on (rapid reset)
        // is.
        .max_pending_accept_reset_streams(streams_max as usize)
        .data_frame_budget(SMALL_FRAMES_BUDGET_BYTES);
}

fn settings(state: &ConnectionState) -> Builder {
    let limits = state.front.limits();
    let mut builder = Builder::new();
    restrain(&mut builder, state, limits.streams_max);
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        // h2 refuses a list of exactly this size.
        .max_header_list_size(limits.header_bytes_max.saturating_add(1))
        // As in `router_net::server`: data on its way to calls that ended here is not counted
        // against the connection's other calls.
        .max_concurrent_reset_streams(limits.streams_max as usize)
        // WebSocket over HTTP/2 (RFC 8441).
        .enable_connect_protocol();
    builder
}

/// h2 has ended the connection.
pub fn on_error(state: &ConnectionState, error: &h2::Error) {
    if let Some(offence) = offence(error) {
        state.on_offence(offence);
    }
}

/// The offence for which h2 ends the connection; `None`: the client is not to blame.
fn offence(error: &h2::Error) -> Option<Offence> {
    match error.reason() {
        _ if !error.is_go_away() || !error.is_library() => None,
        // A client that sends beyond the windows has sent megabytes without permission.
        Some(Reason::ENHANCE_YOUR_CALM | Reason::FLOW_CONTROL_ERROR) => Some(Offence::Flood),
        _ => Some(Offence::Malformed),
    }
}

/// Polls the connection, the front's phase and the idle timeout.
struct Driver {
    connection: Connection<ClientStream, Bytes>,
    state: Rc<ConnectionState>,
    phases: Phases,
    current: Phase,
    idle: Idle,
    idle_tracker: IdleTracker,
    /// The client was informed that it used a stream that it had closed.
    is_told: bool,
}

/// How long nothing has happened.
struct Idle {
    look: Pin<Box<Sleep>>,
    interval: Duration,
    seen_bytes: u64,
    looks_in_vain: u32,
    /// The peer was asked to close; it has as long again.
    is_over: bool,
}

impl Driver {
    fn new(
        connection: Connection<ClientStream, Bytes>,
        state: Rc<ConnectionState>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let idle = Idle::new(state.front.limits().idle_timeout);
        let idle_tracker = state.idle_tracker_http2();
        let (phases, current) = (Phases::new(phase), Phase::Serving);
        Self { connection, state, phases, current, idle, idle_tracker, is_told: false }
    }

    fn enter(&mut self, phase: Phase) {
        if self.current == Phase::Serving {
            self.connection.graceful_shutdown();
            self.state.is_draining.set(true);
        }
        if phase == Phase::Stopped {
            self.state.stop();
        }
        self.current = phase;
    }

    /// Whether the peer floods us. If so, it has been notified, now or before.
    fn is_flood(&mut self) -> bool {
        let is_flood = self.state.is_flood();
        if is_flood {
            self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        is_flood
    }

    /// Whether the client continues with a stream that it has closed. If so, it has been notified.
    fn has_closed_stream(&mut self) -> bool {
        let is_news = self.state.gauge.has_closed_stream() && !self.is_told;
        if is_news {
            self.is_told = true;
            self.state.on_offence(Offence::Malformed);
            self.connection.abrupt_shutdown(Reason::STREAM_CLOSED);
        }
        is_news
    }

    /// Ready when the connection must be closed: it was idle for the whole timeout, and for as long
    /// again after it was asked to close.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.idle.look.as_mut().poll(cx).is_ready() {
            let received_bytes = self.state.gauge.received_bytes();
            let is_busy = self.connection.has_streams();
            if !self.idle.on_look(received_bytes, is_busy) {
                continue;
            }
            if std::mem::replace(&mut self.idle.is_over, true) {
                return Poll::Ready(());
            }
            self.state.front.counters.idle_timeouts.count();
            self.connection.graceful_shutdown();
        }
        Poll::Pending
    }
}

impl Idle {
    fn new(limit: Duration) -> Self {
        let interval = limit / IDLE_LOOKS;
        let look = Box::pin(sleep(interval));
        Self { look, interval, seen_bytes: 0, looks_in_vain: 0, is_over: false }
    }

    /// Whether the whole timeout has passed without any activity.
    fn on_look(&mut self, received_bytes: u64, is_busy: bool) -> bool {
        let has_moved = std::mem::replace(&mut self.seen_bytes, received_bytes) != received_bytes;
        self.looks_in_vain = if has_moved || is_busy { 0 } else { self.looks_in_vain + 1 };
        self.look.as_mut().reset(Instant::now() + self.interval);
        let is_due = self.looks_in_vain >= IDLE_LOOKS;
        if is_due {
            self.looks_in_vain = 0;
        }
        is_due
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        while let Poll::Ready(phase) = this.phases.poll_next(cx) {
            this.enter(phase);
        }
        if this.poll_idle(cx).is_ready() {
            return Poll::Ready(());
        }
        this.state.gauge.begin_turn();
        for _ in 0..ADMITTED_PER_TURN_MAX {
            match this.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    this.idle_tracker.leave();
                    this.state.on_request();
                    admit_http2(&this.state, request, respond);
                }
                // Dropping the connection ends its calls.
                Poll::Ready(Some(Err(error))) => {
                    on_error(&this.state, &error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if this.is_flood() || this.has_closed_stream() => {}
                Poll::Pending => match this.idle_tracker.look(!this.connection.has_streams(), cx) {
                    None => return Poll::Pending,
                    Some(word) if is_over(&mut this.connection, word, cx) => return Poll::Ready(()),
                    Some(_) => {}
                },
            }
        }
        poll_others_first(cx);
        Poll::Pending
    }
}
