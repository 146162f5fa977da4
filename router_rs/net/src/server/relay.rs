//! The server's end of a relay (`mesh::relay`): calls come out of one stream, and their answers go
//! back into it.
//!
//! A call that has come is one like any other: the same gate, the same task. What the tasks have to
//! say in one turn goes out as one DATA frame.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use router_protocol::grpc::{CONTENT_TYPE_GRPC, Code, Framed, Message, Status};
use router_protocol::mesh::relay::{
    CallId, Decoder, Frame, Malformed, detach, put_last, read_call,
};

use super::admit::admit_relayed;
use super::connection_state::ConnectionState;
use super::refusal::refuse;
use super::replies::{RelayedReply, Replies};

/// One relay. It lives on one thread.
struct Relay {
    connection: Rc<ConnectionState>,
    replies: Rc<RefCell<Replies>>,
}

/// Starts a relay, or refuses it to a stranger.
pub(super) fn answer(
    connection: &Rc<ConnectionState>,
    body: RecvStream,
    mut respond: SendResponse<Framed>,
) {
    if !connection.info.is_trusted() || connection.guest.is_some() {
        let text = "only routers of the mesh, which have proven its token, may send by a relay";
        let status = Status::new(Code::Unimplemented, text);
        return refuse(respond.into(), &status, HeaderMap::new());
    }
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    // An error means that the client is gone: there is nobody to tell.
    let Ok(sending) = respond.send_response(response, false) else { return };
    let calls_max = connection.server.config.concurrent_streams_max;
    let replies = Rc::new(RefCell::new(Replies::new(calls_max)));
    let relay = Relay { connection: Rc::clone(connection), replies };
    let mut draining = connection.draining.subscribe();
    // An error means that the connection is gone, and the stream with it.
    let draining = async move { drop(draining.wait_for(|is_draining| *is_draining).await) };
    let task = Task {
        relay,
        body: Some((body, Decoder::default())),
        sending,
        draining: Some(Box::pin(draining)),
        is_last_heard: false,
    };
    tokio::task::spawn_local(task.run());
}

// === the task ===

struct Task {
    relay: Relay,
    /// `None` when the client has said all that it has to say.
    body: Option<(RecvStream, Decoder)>,
    sending: SendStream<Framed>,
    /// `None` when the client has been asked for no more calls.
    draining: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// No call follows.
    is_last_heard: bool,
}

/// Why a relay ends before its time.
enum Broken {
    Malformed,
    /// The stream is gone.
    Gone,
}

impl From<Malformed> for Broken {
    fn from(_: Malformed) -> Self {
        Broken::Malformed
    }
}

impl From<h2::Error> for Broken {
    fn from(_: h2::Error) -> Self {
        Broken::Gone
    }
}

impl Task {
    async fn run(mut self) {
        if let Err(Broken::Malformed) = poll_fn(|context| self.poll(context)).await {
            // There is no telling which call it was, so all of them end.
            self.sending.send_reset(Reason::PROTOCOL_ERROR);
        }
        self.relay.replies.borrow_mut().end_all();
    }

    /// Ready when the stream is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.draining.as_mut().is_some_and(|it| it.as_mut().poll(context).is_ready()) {
            self.draining = None;
            put_last(self.relay.replies.borrow_mut().wire());
        }
        if self.poll_read(context)?.is_ready() {
            self.body = None;
            self.is_last_heard = true;
        }
        let mut replies = self.relay.replies.borrow_mut();
        if let Some(wire) = replies.take_wire() {
            self.sending.send_data(Framed::raw(wire), false)?;
        }
        if self.is_last_heard && replies.is_empty() {
            self.sending.send_data(Framed::raw(Message::default()), true)?;
            return Poll::Ready(Ok(()));
        }
        replies.wait(context);
        Poll::Pending
    }

    /// Ready at the end of what comes.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some((stream, decoder)) = &mut self.body else { return Poll::Pending };
        while let Some(chunk) = ready!(stream.poll_data(context)) {
            let mut chunk = chunk?;
            // It fails only for a stream that is gone, which the next poll reports.
            let _window_of_an_ended_stream = stream.flow_control().release_capacity(chunk.len());
            while let Some(frame) = decoder.decode(&mut chunk)? {
                match frame {
                    Frame::Call { id, payload } => self.relay.begin(id, payload)?,
                    Frame::Reset { id, .. } => self.relay.replies.borrow_mut().on_reset(id),
                    Frame::Credit { id, bytes } => {
                        self.relay.replies.borrow_mut().on_credit(id, bytes as usize);
                    }
                    Frame::Last => self.is_last_heard = true,
                    Frame::Whole { .. }
                    | Frame::Head { .. }
                    | Frame::Piece { .. }
                    | Frame::Trailers { .. } => {
                        return Poll::Ready(Err(Malformed::OUT_OF_PLACE.into()));
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Relay {
    fn begin(&self, id: CallId, payload: Bytes) -> Result<(), Malformed> {
        let (head, body) = read_call(detach(payload))?;
        self.replies.borrow_mut().begin(id)?;
        self.connection.server.counters.relayed.fetch_add(1, Ordering::Relaxed);
        let reply = RelayedReply::new(&self.replies, id);
        admit_relayed(&self.connection, head, body, reply);
        Ok(())
    }
}
