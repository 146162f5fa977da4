//! The response side of a call: commands in, the parts of an answer out, in order.

mod http_answer;

use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

pub(super) use self::http_answer::Started;
use router_arena::Reserved;
use router_protocol::grpc::{
    Code, Encoding, Framed, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_STATUS, Message, SizeLimit,
    Status, compress,
};

use super::sink::{Respond, Sink};

enum Stage {
    /// No headers have been sent.
    Head(Respond),
    Body(Sink),
    Closed,
}

/// The limit for user metadata in one block. Routers that speak HTTP/2 accept blocks of 64 KiB; the
/// rest is for the status, its details and the mesh's own headers. A longer block would end their
/// connection with all its calls.
const METADATA_BYTES_MAX: usize = 48 * 1024;

/// Writes one response.
pub(super) struct Outlet {
    stage: Stage,
    dialect: Dialect,
}

/// The protocol of the client.
enum Dialect {
    Grpc(Grpc),
    Http(HttpRequest),
}

struct Grpc {
    content_type: HeaderValue,
    /// The compression of this response's messages.
    encoding: Encoding,
    size_limit: SizeLimit,
}

/// The properties of a plain HTTP request that its answer depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpRequest {
    /// The method is HEAD: no answer has a body.
    pub(super) is_head: bool,
    pub(super) is_websocket: bool,
}

impl Outlet {
    pub(super) fn new(
        respond: Respond,
        content_type: HeaderValue,
        encoding: Encoding,
        size_limit: SizeLimit,
    ) -> Self {
        let dialect = Dialect::Grpc(Grpc { content_type, encoding, size_limit });
        Self { stage: Stage::Head(respond), dialect }
    }

    pub(super) fn for_http(respond: Respond, request: HttpRequest) -> Self {
        Self { stage: Stage::Head(respond), dialect: Dialect::Http(request) }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// Replaces the content type; without effect when the headers have been sent.
    pub(super) fn set_content_type(&mut self, content_type: HeaderValue) {
        if let Dialect::Grpc(grpc) = &mut self.dialect {
            grpc.content_type = content_type;
        }
    }

    /// The client has reset the stream or is gone.
    pub(super) fn poll_cancelled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.stage {
            Stage::Head(respond) => respond.poll_cancelled(context),
            Stage::Body(sink) => sink.poll_cancelled(context),
            Stage::Closed => Poll::Pending,
        }
    }

    /// Waits until at least a part of a message of `size` bytes could be sent now. So at most one
    /// message is buffered beyond the peer's window (design decision 10).
    pub(super) fn poll_ready(&mut self, size: usize, context: &mut Context<'_>) -> Poll<()> {
        let Stage::Body(sink) = &mut self.stage else { return Poll::Ready(()) };
        sink.poll_room(size, context)
    }

    /// Waits until some of `size` bytes could be sent now, and returns how many.
    pub(super) fn poll_room_bytes(
        &mut self,
        size: usize,
        context: &mut Context<'_>,
    ) -> Poll<usize> {
        let Stage::Body(sink) = &mut self.stage else { return Poll::Ready(size) };
        sink.poll_room_bytes(size, context)
    }

    /// Room in the memory that the peer shares; `None` if there is none for as many.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        if let Stage::Body(sink) = &mut self.stage { sink.reserve(bytes) } else { None }
    }

    /// Sends a piece that was put there.
    pub(super) fn send_reserved(&mut self, reserved: Reserved) {
        if let Stage::Body(sink) = &mut self.stage {
            sink.send_reserved(reserved);
        }
    }

    /// Sends the headers, once; later calls do nothing. `encoding` may narrow the default.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` over the limit; nothing has been sent then.
    pub(super) fn send_head(
        &mut self,
        metadata: HeaderMap,
        encoding: Encoding,
    ) -> Result<(), Status> {
        check_metadata("initial", &metadata)?;
        let Dialect::Grpc(grpc) = &mut self.dialect else { return Err(not_grpc()) };
        grpc.encoding = encoding;
        self.send_block(metadata, false);
        Ok(())
    }

    /// Sends one message, headers first if need be; or a piece of a plain HTTP body.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` over the limit; nothing of the message has been sent then.
    pub(super) fn send_message(
        &mut self,
        message: Message,
        may_compress: bool,
    ) -> Result<(), Status> {
        let Dialect::Grpc(grpc) = &self.dialect else { return self.send_piece(message) };
        grpc.size_limit.check("sent", message.len())?;
        let message =
            if may_compress { compress::compress(grpc.encoding, message) } else { message };
        if matches!(self.stage, Stage::Head(_)) {
            self.send_block(HeaderMap::with_capacity(2), false);
        }
        self.send_data(Framed::new(message));
        Ok(())
    }

    /// Whether `message` can be the message of a reply.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` over the limit; `INTERNAL` where the request was plain HTTP.
    pub(super) fn check_reply(&self, message: &Message) -> Result<(), Status> {
        match &self.dialect {
            Dialect::Grpc(grpc) => grpc.size_limit.check("sent", message.len()),
            Dialect::Http(_) => Err(not_grpc()),
        }
    }

    /// Tells the router that work on the call has begun.
    pub(super) fn tell_start(&mut self) {
        if let Stage::Head(respond) = &self.stage {
            respond.tell_start();
        }
    }

    pub(super) fn send_data(&mut self, data: Framed) {
        if let Stage::Body(sink) = &mut self.stage
            && sink.send_data(data).is_err()
        {
            self.stage = Stage::Closed;
        }
    }

    /// Sends the final status: as trailers, or in one block if no headers were sent. The caller has
    /// checked the size of the user's `trailers`.
    pub(super) fn finish(&mut self, status: &Status, mut trailers: HeaderMap) {
        let Dialect::Grpc(grpc) = &mut self.dialect else {
            return self.finish_http(status, trailers);
        };
        status.write(&mut trailers);
        if matches!(self.stage, Stage::Head(_)) {
            grpc.encoding = Encoding::Identity;
            self.send_block(trailers, true);
        } else {
            self.send_trailers(trailers);
        }
    }

    /// The usual answer: one checked message and the status OK, without the detour through
    /// `Status`.
    pub(super) fn reply(&mut self, message: Message, mut trailers: HeaderMap) {
        let Dialect::Grpc(grpc) = &self.dialect else { return };
        let message = Framed::new(compress::compress(grpc.encoding, message));
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
        if matches!(self.stage, Stage::Head(_)) {
            let headers = grpc.headers(HeaderMap::with_capacity(2));
            self.send_whole(StatusCode::OK, headers, message, trailers);
        } else {
            self.send_data(message);
            self.send_trailers(trailers);
        }
    }

    fn send_trailers(&mut self, trailers: HeaderMap) {
        if let Stage::Body(sink) = &mut self.stage {
            sink.send_trailers(trailers);
        }
        self.stage = Stage::Closed;
    }

    /// Abandons the stream without an answer.
    pub(super) fn abandon(&mut self) {
        self.stage = Stage::Closed;
    }

    fn send_block(&mut self, headers: HeaderMap, is_end: bool) {
        let Dialect::Grpc(grpc) = &self.dialect else { return };
        let headers = grpc.headers(headers);
        if is_end {
            let nothing = Framed::raw(Message::default());
            self.send_whole(StatusCode::OK, headers, nothing, HeaderMap::new());
        } else {
            self.send_response(StatusCode::OK, headers);
        }
    }

    /// Sends the head of an answer whose rest follows.
    fn send_response(&mut self, status: StatusCode, headers: HeaderMap) {
        self.answer(|respond| respond.send_response(response(status, headers)).map(Stage::Body));
    }

    /// Sends a complete answer.
    fn send_whole(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        body: Framed,
        trailers: HeaderMap,
    ) {
        self.answer(|respond| {
            respond.send_whole(response(status, headers), body, trailers);
            None
        });
    }

    fn answer(&mut self, send: impl FnOnce(Respond) -> Option<Stage>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Head(respond) => send(respond).unwrap_or(Stage::Closed),
            stage => stage,
        };
    }
}

impl Grpc {
    /// Adds the headers that describe the messages.
    fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        headers.insert(CONTENT_TYPE, self.content_type.clone());
        if let Some(value) = self.encoding.header() {
            headers.insert(GRPC_ENCODING, value);
        }
        headers
    }
}

fn response(status: StatusCode, headers: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Refuses metadata that peers would not accept.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` over the limit, naming both sizes.
pub(super) fn check_metadata(kind: &str, metadata: &HeaderMap) -> Result<(), Status> {
    let size = block_bytes(metadata);
    if size <= METADATA_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "{kind} metadata of {size} bytes is larger than the limit of {METADATA_BYTES_MAX} bytes"
    );
    Err(Status::new(Code::ResourceExhausted, text))
}

/// As HTTP/2 counts them (RFC 9113, 6.5.2).
fn block_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// The bytes that a message takes on the wire, for `poll_ready`.
pub(super) fn wire_size(message: &Message) -> usize {
    message.len() + router_protocol::grpc::PREFIX_BYTES
}

fn not_grpc() -> Status {
    Status::new(Code::Internal, "a plain HTTP request was answered as gRPC")
}

/// The encoding for a call, given what its client accepts.
pub(super) fn accepted_encoding(headers: &HeaderMap, wish: Encoding) -> Encoding {
    let list = headers.get(GRPC_ACCEPT_ENCODING);
    if wish.is_accepted_by(list) { wish } else { Encoding::Identity }
}
