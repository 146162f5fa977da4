//! The task of one call: reads the request, waits for commands, writes the response.
//!
//! It holds the call's place at the gate from HEADERS until both the wire and the user's code have
//! ended, whatever happens in between.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, StatusCode};
use router_dispatch::End;
use router_io::Alarm;
use router_protocol::grpc::{Code, Message, Status};
use router_protocol::names;

use super::connection_state::ConnectionState;
use super::intake::Intake;
use super::measures::Said;
use super::methods::Method;
use super::outlet::{Outlet, Started, accepted_encoding, check_metadata, wire_size};
use super::request_body::Taken;
use super::served_call::ServedCall;
use crate::link::{CancelReason, Command, Event};

/// A call's deadline starts at the client when it is sent and here when it arrives, so the client's
/// reset comes a little before or after the deadline of this side.
const TIMERS_DIFFER: Duration = Duration::from_millis(50);

pub(super) struct CallTask {
    pub(super) served_call: Arc<ServedCall>,
    pub(super) connection: Rc<ConnectionState>,
    pub(super) method: Method,
    pub(super) intake: Intake,
    pub(super) outlet: Outlet,
    pub(super) deadline: Option<Alarm>,
    pub(super) registration: usize,
    /// The message of a unary request, until its end has come.
    pub(super) unary: Option<Message>,
    /// Python knows about the call, and must be notified of its end.
    pub(super) is_announced: bool,
    pub(super) said: Said,
    /// User code has ended, or never began.
    pub(super) is_user_done: bool,
    /// A message that waits for the peer's window, and the commands that came after it.
    pub(super) waiting: VecDeque<Command>,
}

impl Future for CallTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.run_commands(context);
        if !this.outlet.is_closed() {
            this.check_cancelled(context);
        }
        if !this.outlet.is_closed() {
            this.read_request(context);
            // A reply can arrive while the request was read on this thread; a second look also
            // registers for the next command.
            this.run_commands(context);
        }
        if this.outlet.is_closed() && this.is_user_done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl CallTask {
    fn check_cancelled(&mut self, context: &mut Context<'_>) {
        if self.outlet.poll_cancelled(context).is_ready() {
            self.outlet.abandon();
            self.cancel(self.reason_of_reset());
        } else if let Some(deadline) = &mut self.deadline
            && deadline.poll(context).is_ready()
        {
            let status = Status::new(Code::DeadlineExceeded, "the deadline has passed");
            self.fail(&status, CancelReason::Deadline);
        }
    }

    /// The client resets the stream as well when its deadline has passed, and its timer may be the
    /// first.
    fn reason_of_reset(&self) -> CancelReason {
        let is_late = |at: Instant| at <= Instant::now() + TIMERS_DIFFER;
        match self.served_call.link.deadline {
            Some(at) if is_late(at) => CancelReason::Deadline,
            _ => CancelReason::Client,
        }
    }

    // === the request ===

    fn read_request(&mut self, context: &mut Context<'_>) {
        if self.method.is_request_streaming && !self.is_announced {
            self.announce(None);
        }
        while self.intake.is_open() {
            if self.method.is_request_streaming && !self.served_call.link.has_receive_credit() {
                return; // `Command::Resume` comes when the user has taken some
            }
            let Poll::Ready(taken) = self.intake.poll(context) else { return };
            match taken {
                Ok(Taken::Message(message)) => self.on_message(message),
                Ok(Taken::End) => self.on_request_end(),
                Ok(Taken::Cancelled) => {
                    self.outlet.abandon();
                    self.cancel(self.reason_of_reset());
                }
                Err(status) => self.fail(&status, CancelReason::Client),
            }
            if self.outlet.is_closed() {
                return;
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        self.said.request_bytes += message.len();
        if self.method.is_request_streaming {
            self.served_call.link.push_message(message);
        } else if self.unary.replace(message).is_some() {
            let text = "the method takes one message and the request has more";
            self.fail(&Status::new(Code::Unimplemented, text), CancelReason::Client);
        }
    }

    fn on_request_end(&mut self) {
        self.intake.close();
        if self.method.is_request_streaming {
            self.served_call.link.push(Event::HalfClose);
        } else if let Some(message) = self.unary.take() {
            self.announce(Some(message));
        } else {
            let text = "the method takes one message and the request has none";
            self.fail(&Status::new(Code::Unimplemented, text), CancelReason::Client);
        }
    }

    fn announce(&mut self, message: Option<Message>) {
        self.is_announced = true;
        self.is_user_done = false;
        if let Some(guest) = &self.connection.guest {
            guest.front.earn_by_call();
        }
        self.connection.server.sink.begin(self.served_call.clone(), message);
    }

    // === the response ===

    fn run_commands(&mut self, context: &mut Context<'_>) {
        loop {
            while let Some(command) = self.served_call.link.next_command(context) {
                match command {
                    // These commands overtake a message that waits for the window.
                    Command::Resume => {}
                    Command::Release => self.is_user_done = true,
                    Command::Shutdown => {
                        let text = "the server is shutting down";
                        self.fail(&Status::new(Code::Unavailable, text), CancelReason::Shutdown);
                    }
                    command => self.waiting.push_back(command),
                }
            }
            if !self.run_next(context) {
                return;
            }
        }
    }

    /// Runs the oldest command; false when there is none or it has to wait.
    fn run_next(&mut self, context: &mut Context<'_>) -> bool {
        let Some(command) = self.waiting.front() else { return false };
        if matches!(command, Command::File(_)) {
            return self.send_file(context);
        }
        if let Command::Message { payload, .. } | Command::Finish { message: Some(payload), .. } =
            command
            && self.outlet.poll_ready(wire_size(payload), context).is_pending()
        {
            return false;
        }
        match self.waiting.pop_front() {
            Some(Command::Reply(payload)) => self.reply(payload),
            Some(Command::ContentType(value)) => self.outlet.set_content_type(value),
            Some(Command::InitialMetadata(metadata, encoding)) => {
                let encoding = accepted_encoding(&self.served_call.head.headers, encoding);
                if let Err(status) = self.outlet.send_head(metadata, encoding) {
                    self.fail(&status, CancelReason::Client);
                }
                self.notice_cancelled();
            }
            Some(Command::Message { payload, may_compress }) => {
                // For plain HTTP an empty piece has no meaning, and may follow a whole answer.
                let is_sent = !payload.is_empty() || !self.served_call.is_http;
                self.served_call.link.sent(payload.len());
                if let Err(status) = self.send(payload, may_compress) {
                    self.fail(&status, CancelReason::Client);
                }
                if is_sent {
                    self.notice_cancelled();
                }
            }
            Some(Command::TellStart) => self.outlet.tell_start(),
            Some(Command::Respond { status, headers, body }) => {
                self.respond(status, headers, body);
            }
            Some(Command::StartResponse { status, headers }) => {
                self.start_response(status, headers);
            }
            Some(Command::Finish { status, metadata, message }) => {
                self.finish(&status, metadata, message);
            }
            _ => debug_assert!(false, "a command of the client's side"),
        }
        true
    }

    /// Like `Outlet::send_message`.
    fn send(&mut self, payload: Message, may_compress: bool) -> Result<(), Status> {
        self.count_answer(&payload);
        self.outlet.send_message(payload, may_compress)
    }

    fn count_answer(&mut self, payload: &Message) {
        if let Some(guest) = &self.connection.guest {
            guest.front.earn_by_answer(payload.len());
        }
        self.said.response_bytes += payload.len();
    }

    fn reply(&mut self, payload: Message) {
        self.is_user_done = true;
        if let Err(status) = self.outlet.check_reply(&payload) {
            return self.fail(&status, CancelReason::Client);
        }
        self.count_answer(&payload);
        self.conclude(End::Grpc(Code::Ok));
        let trailers = self.trailers(HeaderMap::with_capacity(2));
        self.outlet.reply(payload, trailers);
        self.served_call.link.end();
    }

    fn respond(&mut self, status: StatusCode, headers: HeaderMap, body: Message) {
        self.is_user_done = true;
        self.said.response_bytes += body.len();
        self.conclude(End::Http(status));
        match self.outlet.respond(status, headers, body, self.load()) {
            Ok(()) => drop(self.served_call.link.end()),
            Err(status) => self.fail(&status, CancelReason::Client),
        }
    }

    fn start_response(&mut self, status: StatusCode, headers: HeaderMap) {
        self.said.http = Some(status);
        match self.outlet.start_response(status, headers, self.load()) {
            // Nothing is left to send. User code need not stop until it sends more.
            Ok(Started::Whole) => self.conclude(End::Http(status)),
            Ok(Started::Open) => self.notice_cancelled(),
            Err(status) => self.fail(&status, CancelReason::Client),
        }
    }

    fn finish(&mut self, status: &Status, metadata: HeaderMap, message: Option<Message>) {
        self.is_user_done = true;
        if let Err(status) = check_metadata("trailing", &metadata) {
            return self.fail(&status, CancelReason::Client);
        }
        if let Some(payload) = message
            && let Err(status) = self.send(payload, true)
        {
            return self.fail(&status, CancelReason::Client);
        }
        self.conclude_by(status);
        let trailers = self.trailers(metadata);
        self.outlet.finish(status, trailers);
        self.served_call.link.end();
    }

    /// Answers in place of user code and cancels it.
    fn fail(&mut self, status: &Status, reason: CancelReason) {
        if self.outlet.is_closed() {
            return;
        }
        self.conclude_by(status);
        let trailers = self.trailers(HeaderMap::new());
        self.outlet.finish(status, trailers);
        self.cancel(reason);
    }

    /// A failed send closes the outlet: user code that goes on writing must be cancelled.
    pub(super) fn notice_cancelled(&mut self) {
        if self.outlet.is_closed() && !self.served_call.link.is_ended() {
            self.cancel(CancelReason::Client);
        }
    }

    fn cancel(&mut self, reason: CancelReason) {
        self.intake.close();
        // User code that has already asked for the end neither gets nor sends anything more.
        let is_end = |command: &Command| {
            matches!(command, Command::Reply(_) | Command::Respond { .. } | Command::Finish { .. })
        };
        self.is_user_done |= self.waiting.drain(..).any(|command| is_end(&command));
        self.served_call.link.end();
        self.connection.server.counters.cancelled(reason);
        if !self.is_user_done {
            self.served_call.link.push(Event::Cancel(reason));
        }
    }

    /// Adds the load that routers learn from (design decision 7).
    fn trailers(&self, mut trailers: HeaderMap) -> HeaderMap {
        if self.served_call.connection.is_router() {
            trailers.insert(names::LOAD, self.load());
        }
        trailers
    }

    fn load(&self) -> HeaderValue {
        let took = self.said.took().unwrap_or_else(|| self.served_call.elapsed());
        let (alone, cost) = (self.served_call.worked_alone(), self.served_call.cost());
        self.connection.server.load_after(self.method.weight, took, alone, cost)
    }

    /// The answer is about to be complete.
    fn conclude(&mut self, end: End) {
        self.said.conclude(end, self.served_call.elapsed());
    }

    fn conclude_by(&mut self, status: &Status) {
        self.conclude(self.said.end_by(status, self.served_call.is_http));
    }
}

impl Drop for CallTask {
    fn drop(&mut self) {
        // Also on a panic, or when the runtime ends: the place at the gate is never lost, and user
        // code does not wait for a call without a task.
        if self.served_call.link.end() && !self.is_user_done {
            self.served_call.link.push(Event::Cancel(CancelReason::Client));
        }
        self.connection.calls.borrow_mut().try_remove(self.registration);
        self.connection.server.leave(self.method.weight, self.method.index, &self.said);
    }
}
