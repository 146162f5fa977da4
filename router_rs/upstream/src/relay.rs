//! The client's end of a relay (`mesh::relay`): calls in, answers out, over one stream.
//!
//! Calls write what they have to say into one buffer; the relay's task, which runs after them in the
//! same turn, sends it as one DATA frame, and gives what comes to the calls that it is for. It takes
//! everything at once, so a call whose reader is slow holds up no other: each has its own credit.

mod calls;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response, StatusCode, request};
use router_protocol::mesh::relay::{
    CREDIT_BYTES_INITIAL, CallId, Decoder, Frame, Malformed, Wire, put_call, put_credit, put_last,
    put_reset,
};

use self::calls::Calls;
use super::call_error::CallError;

/// One relay, shared by its task, its connection and its calls. It lives on one thread.
#[derive(Debug)]
pub(crate) struct Relay {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    calls: Calls,
    /// What the task sends next.
    wire: Wire,
    /// The task's, while it waits.
    task: Option<Waker>,
    /// No further call begins.
    is_closed: bool,
    /// Nothing goes out any more.
    is_over: bool,
}

/// A call's place in its relay. Dropping it resets the call, unless that is over.
#[derive(Debug)]
struct Handle {
    relay: Rc<Relay>,
    id: CallId,
}

/// Waits for the head of an answer.
#[derive(Debug)]
pub struct RelayedAnswer {
    /// `None` once the head has been taken.
    handle: Option<Handle>,
}

/// What follows the head of an answer.
#[derive(Debug)]
pub struct RelayedBody {
    handle: Handle,
    /// Taken, and not yet said to the other side.
    owed: usize,
}

// === impl Relay ===

impl Relay {
    /// Starts the task that drives the stream.
    pub(super) fn start(response: ResponseFuture, sending: SendStream<Bytes>) -> Rc<Self> {
        let state = State {
            calls: Calls::default(),
            wire: Wire::new(),
            task: None,
            is_closed: false,
            is_over: false,
        };
        let relay = Rc::new(Self { state: RefCell::new(state) });
        let task = Task { relay: Rc::clone(&relay), response, body: None, sending };
        tokio::task::spawn_local(task.run());
        relay
    }

    /// Begins a call; `None` if it has to go another way.
    pub(super) fn call(
        self: &Rc<Self>,
        head: &request::Parts,
        body: &[Bytes],
    ) -> Option<RelayedAnswer> {
        let mut state = self.state.borrow_mut();
        if state.is_closed || state.calls.takes_detour() {
            return None;
        }
        let id = state.calls.begin(head.method == http::Method::HEAD);
        if put_call(&mut state.wire, id, head, body).is_err() {
            state.calls.remove(id);
            return None;
        }
        state.wake();
        Some(RelayedAnswer { handle: Some(Handle { relay: Rc::clone(self), id }) })
    }

    /// Takes no more calls; those in flight go on, then the stream ends.
    pub(super) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.is_closed = true;
        state.wake();
    }
}

/// As HTTP/2 counts them (RFC 9113, 6.5.2), target and all.
pub(super) fn head_bytes(head: &request::Parts) -> usize {
    /// What is counted for each line.
    const LINE_BYTES: usize = 32;
    /// `:method`, `:scheme`, `:authority` and `:path`, with their lines.
    const PSEUDO_BYTES: usize = 4 * LINE_BYTES + 7 + 7 + 10 + 5 + "https".len();
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let lines = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    PSEUDO_BYTES
        + head.method.as_str().len()
        + target
        + authority
        + lines.map(|bytes| bytes + LINE_BYTES).sum::<usize>()
}

// === impl State ===

impl State {
    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), Malformed> {
        let (id, told) = match frame {
            Frame::Whole { id, payload } => (id, self.calls.on_head(id, payload, true)?),
            Frame::Head { id, payload } => (id, self.calls.on_head(id, payload, false)?),
            Frame::Piece { id, bytes, is_final } => (id, self.calls.on_piece(id, bytes, is_final)),
            Frame::Trailers { id, payload } => (id, self.calls.on_trailers(id, payload)?),
            Frame::Reset { id, reason } => {
                self.calls.on_end(id, CallError::Reset { reason, is_remote: true });
                return Ok(());
            }
            Frame::Last => {
                self.is_closed = true;
                // The other side waits for it: what came before it is all that it gets.
                put_last(&mut self.wire);
                return Ok(());
            }
            Frame::Call { .. } | Frame::Credit { .. } => return Err(Malformed::OUT_OF_PLACE),
        };
        if let Err(reason) = told {
            put_reset(&mut self.wire, id, reason);
        }
        Ok(())
    }

    fn end(&mut self, error: impl Fn() -> CallError) {
        self.is_closed = true;
        self.is_over = true;
        self.wire = Wire::new();
        self.calls.end_all(error);
    }
}

// === impl Handle ===

impl Handle {
    /// As many more bytes may come.
    fn give_credit(&self, bytes: usize) {
        let mut state = self.relay.state.borrow_mut();
        if state.is_over || state.calls.has_come(self.id) {
            return;
        }
        put_credit(&mut state.wire, self.id, u32::try_from(bytes).unwrap_or(u32::MAX));
        state.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.relay.state.borrow_mut();
        let has_come = state.calls.has_come(self.id);
        state.calls.remove(self.id);
        if !has_come && !state.is_over {
            put_reset(&mut state.wire, self.id, Reason::CANCEL);
            state.wake();
        } else if state.is_closed {
            // The task may have waited for the last one.
            state.wake();
        }
    }
}

// === impl RelayedAnswer, RelayedBody ===

impl RelayedAnswer {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<RelayedBody>, CallError>> {
        let Some(handle) = &self.handle else { return Poll::Pending };
        let head = {
            let mut state = handle.relay.state.borrow_mut();
            ready!(state.calls.poll_head(handle.id, cx))
        };
        let Some(handle) = self.handle.take() else { return Poll::Pending };
        Poll::Ready(head.map(|head| Response::from_parts(head, RelayedBody { handle, owed: 0 })))
    }
}

impl RelayedBody {
    pub(super) fn is_end(&self) -> bool {
        self.handle.relay.state.borrow().calls.is_end(self.handle.id)
    }

    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CallError>>> {
        self.handle.relay.state.borrow_mut().calls.poll_data(self.handle.id, cx)
    }

    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, CallError>> {
        self.handle.relay.state.borrow_mut().calls.poll_trailers(self.handle.id, cx)
    }

    /// Told in parts that are worth a frame.
    pub(super) fn release(&mut self, bytes: usize) {
        self.owed += bytes;
        if self.owed >= CREDIT_BYTES_INITIAL / 4 {
            self.handle.give_credit(std::mem::take(&mut self.owed));
        }
    }
}

// === the task ===

struct Task {
    relay: Rc<Relay>,
    response: ResponseFuture,
    body: Option<(RecvStream, Decoder)>,
    sending: SendStream<Bytes>,
}

impl Task {
    async fn run(mut self) {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        let mut state = self.relay.state.borrow_mut();
        match ended {
            Ok(()) => state.end(|| CallError::Broken("the replica ended its relay".to_owned())),
            Err(error) => state.end(|| error.clone()),
        }
    }

    /// Ready when the stream is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let is_read = self.poll_read(cx)?.is_ready();
        let mut state = self.relay.state.borrow_mut();
        if !state.wire.is_empty() {
            // The next turn has about as much to say.
            let room = state.wire.len();
            let wire = std::mem::replace(&mut state.wire, Wire::with_capacity(room));
            self.sending.send_data(wire.into(), false)?;
        }
        if is_read {
            return Poll::Ready(Ok(()));
        }
        if state.is_closed && state.calls.is_empty() {
            self.sending.send_data(Bytes::new(), true)?;
            return Poll::Ready(Ok(()));
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready at the end of what comes.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        if self.body.is_none() {
            let response = ready!(Pin::new(&mut self.response).poll(cx))?;
            if response.status() != StatusCode::OK {
                let text = format!("the replica refused its relay: {}", response.status());
                return Poll::Ready(Err(CallError::Broken(text)));
            }
            self.body = Some((response.into_body(), Decoder::default()));
        }
        let Some((stream, decoder)) = &mut self.body else { return Poll::Pending };
        while let Some(chunk) = ready!(stream.poll_data(cx)) {
            let mut chunk = chunk?;
            // Fails only for a stream that is over, whose window nobody needs.
            let _window_of_an_ended_stream = stream.flow_control().release_capacity(chunk.len());
            let mut state = self.relay.state.borrow_mut();
            while let Some(frame) = decoder.decode(&mut chunk)? {
                state.on_frame(frame)?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl From<Malformed> for CallError {
    fn from(malformed: Malformed) -> Self {
        Self::Broken(malformed.to_string())
    }
}
