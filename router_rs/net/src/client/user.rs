//! The user's end of an exchange: commands become request bytes, response bytes become events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode, response};
use router_call::{Caller, Cancelled, Failure, Piece};
use router_protocol::grpc::framing::prefix;
use router_protocol::grpc::{
    Code, Decoder, Encoding, Encodings, GRPC_ENCODING, Message, PREFIX_BYTES, SizeLimit, Status,
    compress, is_grpc_content_type,
};

use super::call::{ClientCall, End};
use crate::link::{Command, Event, Mailbox};

/// Messages up to this size are copied behind their prefix; larger ones follow it in a frame of
/// their own. Copying 16 KiB costs about as much as one more frame.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// The user's settings for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageRules {
    pub received: SizeLimit,
    pub sent: SizeLimit,
    /// The call's encoding, as its head names it.
    pub encoding: Encoding,
    /// The encodings that answers may have.
    pub encodings: Encodings,
    pub is_response_streaming: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct User {
    call: Arc<ClientCall>,
    rules: MessageRules,
    pieces: VecDeque<Piece>,
    /// Messages not yet accepted completely: their bytes left to send, and the user's credit for
    /// them.
    unaccepted: VecDeque<(usize, usize)>,
    is_cancelled: bool,
    is_concluded: bool,
    /// The replica of the last attempt.
    peer: Option<Arc<str>>,
    /// The reason why the call is being abandoned.
    failure: Option<Status>,
    answer: Answer,
}

/// The answer, as far as it has arrived.
#[derive(Debug)]
struct Answer {
    decoder: Decoder,
    encoding: Encoding,
    http: StatusCode,
    /// The head has arrived, but no event has announced it yet.
    is_unannounced: bool,
    /// The message of a unary answer.
    message: Option<Message>,
}

impl User {
    pub(super) fn new(call: Arc<ClientCall>, rules: MessageRules) -> Self {
        let answer = Answer {
            decoder: Decoder::new(rules.received),
            encoding: Encoding::Identity,
            http: StatusCode::OK,
            is_unannounced: false,
            message: None,
        };
        Self {
            call,
            rules,
            pieces: VecDeque::new(),
            unaccepted: VecDeque::new(),
            is_cancelled: false,
            is_concluded: false,
            peer: None,
            failure: None,
            answer,
        }
    }

    /// Queues the only message of a unary request.
    pub(super) fn push_only(&mut self, message: Message) {
        self.push_message(message, true, 0);
        if let Some(last) = self.pieces.back_mut() {
            last.is_last = true;
        }
    }

    /// Reports the end of the call to its user, unless the user ended it.
    pub(super) fn finish(mut self, status: Option<Status>) {
        self.conclude(status, HeaderMap::new());
    }

    /// Reports the failure of the call to its user, with all that is known.
    pub(super) fn fail_with(mut self, failure: Failure) {
        let mut trailers = HeaderMap::new();
        failure.write_explanation(&mut trailers);
        self.conclude(Some(failure.status), trailers);
    }

    fn conclude(&mut self, status: Option<Status>, trailers: HeaderMap) {
        self.is_concluded = true;
        self.settle_peer();
        let call = Arc::clone(&self.call);
        call.link().end();
        if self.is_cancelled {
            return;
        }
        let status = self.failure.take().or(status);
        let end = call.end.get_or_init(|| {
            let unknown = || Status::new(Code::Internal, "the call ended without a status");
            End { status: status.unwrap_or_else(unknown), trailers }
        });
        let message = self.answer.message.take().filter(|_| end.status.code == Code::Ok);
        call.link().push(Event::Done(message));
    }

    /// The call stays where it is now.
    fn settle_peer(&self) {
        if let Some(peer) = &self.peer {
            // Settled at the head, or at the end if none came.
            let _settled_before = self.call.peer.set(Arc::clone(peer));
        }
    }

    fn fail(&mut self, status: Status) -> Cancelled {
        self.failure.get_or_insert(status);
        Cancelled
    }

    /// Handles the user's commands.
    fn pump(&mut self, cx: &mut Context<'_>) {
        let call = Arc::clone(&self.call);
        while let Some(command) = call.link().next_command(cx) {
            match command {
                Command::Message { payload, may_compress } => {
                    let credit = payload.len();
                    self.push_message(payload, may_compress, credit);
                }
                Command::HalfClose => {
                    self.pieces.push_back(Piece { bytes: Bytes::new(), is_last: true });
                }
                Command::Cancel => self.is_cancelled = true,
                // The answer may have been polled already in this turn.
                Command::Resume => cx.waker().wake_by_ref(),
                Command::Reply(_)
                | Command::ContentType(_)
                | Command::InitialMetadata(..)
                | Command::Respond { .. }
                | Command::StartResponse { .. }
                | Command::File(_)
                | Command::Finish { .. }
                | Command::Release
                | Command::TellStart
                | Command::Shutdown => debug_assert!(false, "{command:?} is for servers"),
            }
        }
    }

    fn push_message(&mut self, message: Message, may_compress: bool, credit: usize) {
        if let Err(status) = self.rules.sent.check("sent", message.len()) {
            self.fail(status);
            return;
        }
        let message =
            if may_compress { compress::compress(self.rules.encoding, message) } else { message };
        if u32::try_from(message.len()).is_err() {
            self.fail(Status::new(Code::ResourceExhausted, "a message must be below 4 GiB"));
            return;
        }
        self.unaccepted.push_back((PREFIX_BYTES + message.len(), credit));
        self.push_pieces(message);
    }

    /// The prefix is sent together with the segments that fit; later segments are sent alone.
    fn push_pieces(&mut self, message: Message) {
        let mut room = JOINED_BYTES_MAX;
        let is_small = |segment: &&Bytes| {
            let fits = segment.len() <= room;
            room = room.saturating_sub(segment.len());
            fits
        };
        let joined_count = message.segments.iter().take_while(is_small).count();
        let joined = &message.segments[..joined_count];
        let joined_bytes: usize = joined.iter().map(Bytes::len).sum();
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + joined_bytes);
        bytes.put_slice(&prefix(&message));
        for segment in joined {
            bytes.put_slice(segment);
        }
        self.pieces.push_back(Piece { bytes: bytes.freeze(), is_last: false });
        let others = message.segments.into_iter().skip(joined_count);
        self.pieces.extend(others.map(|bytes| Piece { bytes, is_last: false }));
    }

    fn announce_head(&mut self) {
        if std::mem::take(&mut self.answer.is_unannounced) {
            self.call.link().push(Event::InitialMetadata);
        }
    }

    fn take_message(&mut self, message: Message) -> Result<(), Status> {
        let message = compress::decompress(self.answer.encoding, message, self.rules.received)?;
        if self.rules.is_response_streaming {
            self.announce_head();
            self.call.link().push_message(message);
        } else if self.answer.message.replace(message).is_some() {
            let text = "the server answered a unary call with more than one message";
            return Err(Status::new(Code::Unimplemented, text));
        }
        Ok(())
    }

    fn end(&self, block: HeaderMap) {
        let status = Status::read(&block).unwrap_or_else(|| match self.answer.http {
            StatusCode::OK => {
                Status::new(Code::Unknown, "the server ended the call without a grpc-status")
            }
            http => Status::new(
                Code::from_http(http),
                format!("the server answered with HTTP status {}", http.as_u16()),
            ),
        });
        let status = self.check_end(status);
        // The answer ends once: the exchange stops here.
        let _first_end = self.call.end.set(End { status, trailers: block });
    }

    /// An OK status that contradicts what came before does not count as success.
    fn check_end(&self, status: Status) -> Status {
        if status.code != Code::Ok {
            status
        } else if !self.answer.decoder.is_between_messages() {
            Status::new(Code::Internal, "malformed frame: the answer ended inside a message")
        } else if !self.rules.is_response_streaming && self.answer.message.is_none() {
            Status::new(Code::Unimplemented, "the server answered a unary call without a message")
        } else {
            status
        }
    }
}

/// The content type of an answer that no gRPC server has sent; without one it counts as gRPC.
fn other_content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(CONTENT_TYPE).filter(|value| !is_grpc_content_type(Some(value)))
}

impl Drop for User {
    /// A task that panics or loses its thread still ends its call.
    fn drop(&mut self) {
        if !self.is_concluded {
            let status = Status::new(Code::Internal, "the call's task ended early");
            self.conclude(Some(status), HeaderMap::new());
        }
    }
}

impl Caller for User {
    fn on_sent(&mut self, peer: &Arc<str>) {
        self.peer = Some(Arc::clone(peer));
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        if self.pieces.is_empty() {
            self.pump(cx);
        }
        if self.is_cancelled || self.failure.is_some() {
            return Poll::Ready(Err(Cancelled));
        }
        self.pieces.pop_front().map_or(Poll::Pending, |piece| Poll::Ready(Ok(piece)))
    }

    fn accepted(&mut self, mut bytes: usize) {
        while let Some((left, credit)) = self.unaccepted.front_mut() {
            if bytes < *left {
                *left -= bytes;
                return;
            }
            bytes -= *left;
            let credit = *credit;
            self.unaccepted.pop_front();
            if credit > 0 {
                self.call.link().sent(credit);
            }
        }
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        self.announce_head();
        self.pump(cx);
        if self.is_cancelled || self.failure.is_some() {
            Poll::Ready(Cancelled)
        } else {
            Poll::Pending
        }
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        self.answer.http = head.status;
        self.settle_peer();
        if is_last {
            // Trailers-Only: the response has no initial metadata.
            let _first_head = self.call.head.set(HeaderMap::new());
            self.end(head.headers);
            return Ok(());
        }
        if head.status != StatusCode::OK && !head.headers.contains_key("grpc-status") {
            let code = Code::from_http(head.status);
            let text = format!("the server answered with HTTP status {}", head.status.as_u16());
            return Err(self.fail(Status::new(code, text)));
        }
        if let Some(other) = other_content_type(&head.headers) {
            let text =
                format!("the server answered with content-type {other:?}, which is not gRPC");
            return Err(self.fail(Status::new(Code::Unknown, text)));
        }
        match Encoding::from_header(head.headers.get(GRPC_ENCODING)) {
            Ok(encoding) => {
                if let Err(status) = self.rules.encodings.check(encoding) {
                    // The server was told not to.
                    return Err(self.fail(Status::new(Code::Internal, status.message)));
                }
                self.answer.encoding = encoding;
            }
            // UNIMPLEMENTED is the code for clients of a server that does not know an encoding.
            Err(status) => return Err(self.fail(Status::new(Code::Internal, status.message))),
        }
        let _first_head = self.call.head.set(head.headers);
        self.answer.is_unannounced = true;
        Ok(())
    }

    fn poll_room(
        &mut self,
        wanted: usize,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Cancelled>> {
        // `Command::Resume` wakes us when the user has taken enough.
        if !self.rules.is_response_streaming || self.call.link().has_receive_credit() {
            Poll::Ready(Ok(wanted))
        } else {
            Poll::Pending
        }
    }

    fn body(&mut self, mut bytes: Bytes) -> Result<(), Cancelled> {
        loop {
            match self.answer.decoder.decode(&mut bytes) {
                Ok(Some(message)) => {
                    self.take_message(message).map_err(|status| self.fail(status))?;
                }
                Ok(None) => return Ok(()),
                Err(status) => return Err(self.fail(status)),
            }
        }
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        self.end(trailers);
        Ok(())
    }
}
