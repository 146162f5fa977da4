//! Requests of the HTTP APIs for language models.
//!
//! The body names the model, so it is collected and read before there is a call; only then is a
//! replica chosen.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use router_call::{self as call, Caller, Cancelled, Piece};
use router_dispatch::{Awaited, Ending, Seen, Stop};
use router_llm::{ApiError, Dialect, Door, Found, Output, Request, Resolved};
use router_protocol::content_length;
use router_protocol::grpc::Status;
use router_protocol::names::{ANSWERED_BY, MODEL_ID, REQUEST_ID};
use router_transcode::{Transcoded, is_preflight, open_llm};
use tokio::task::spawn_blocking;

use crate::call::{Call, carry, conclude};
use crate::connection::{ConnectionState, StopListener};
use crate::ends::plain::{PlainEnd, Transport};
use crate::grpc_call::{Forward, admit_call};
use crate::heads::request_id;
use crate::model_routes::ModelRoute;

/// A body above this size is parsed on another thread: it takes as long as a hundred short ones.
const LONG_BYTES: usize = 64 * 1024;

/// A request of one of the APIs, with its client.
struct Asked<T> {
    connection: Rc<ConnectionState>,
    client: PlainEnd<T>,
    door: Door,
}

/// Why a request's body is not complete.
enum Incomplete {
    /// The client has disconnected, or its connection has rejected the body.
    Left,
    TooLarge,
    Stopped(Status),
}

/// Answers a request, or starts the task that reads its body and makes a call of it.
pub(super) fn admit<T: Transport + 'static>(
    connection: &Rc<ConnectionState>,
    parts: request::Parts,
    client: PlainEnd<T>,
    found: Found,
) {
    let received = Instant::now();
    let asked = |door| Asked { connection: Rc::clone(connection), client, door };
    match found {
        Found::Door(door @ (Door::Models | Door::Model)) => asked(door).answer_models(&parts),
        Found::Door(door) => {
            let mut asked = asked(door);
            if let Some(coding) = coding(&parts.headers) {
                return asked.answer_coding(&parts, coding);
            }
            // The limit for the body is that for messages, and the API has its own form of errors.
            asked.client.transcode(false);
            let limit = asked.body_bytes_max();
            if content_length(&parts.headers).is_some_and(|length| length > limit as u64) {
                let error = asked.too_large();
                return asked.answer_error(&parts, &error);
            }
            connection.run(Box::pin(asked.serve(parts, received)));
        }
        Found::WrongMethod(door) => asked(door).answer_method(&parts),
    }
}

impl<T: Transport + 'static> Asked<T> {
    async fn serve(mut self, mut parts: request::Parts, received: Instant) {
        let body = match self.collect().await {
            Ok(body) => body,
            Err(Incomplete::Left) => {
                let Self { connection, mut client, door } = self;
                let (door, ending) = (call_door(door), Ending::Cancelled);
                return conclude(&connection, &mut client, door, ending, Seen::default()).await;
            }
            Err(Incomplete::TooLarge) => {
                let error = self.too_large();
                return self.answer_error(&parts, &error);
            }
            Err(Incomplete::Stopped(status)) => {
                return self.answer_error(&parts, &ApiError::of(&status));
            }
        };
        let request = match read(self.door, &parts.headers, body).await {
            Ok(request) => request,
            Err(error) => return self.answer_error(&parts, &error),
        };
        match self.prepare(&mut parts, request, received) {
            Ok((transcoding, forward)) => {
                let Forward { head, deadline, upstream, mirror, .. } = forward;
                let client = Transcoded::new(self.client, transcoding);
                let (is_bodiless, awaited) = (false, Awaited::Nothing);
                let call = Call { head, deadline, upstream, mirror, is_bodiless, awaited, client };
                carry(&self.connection, call).await;
            }
            Err(error) => self.answer_error(&parts, &error),
        }
    }

    /// The call that the request becomes, and where it goes.
    fn prepare(
        &self,
        parts: &mut request::Parts,
        request: Request,
        received: Instant,
    ) -> Result<(router_transcode::Transcoding, Forward), ApiError> {
        let connection = &*self.connection;
        let mut found = {
            let asker = connection.asker(&parts.headers);
            connection.lookup.model(parts, &asker, self.door, request.model())?
        };
        parts.headers.insert(REQUEST_ID, self.client.request_id().clone());
        if let Some(adapted) = found.adapted.take() {
            parts.headers.insert(MODEL_ID, adapted);
        }
        let ModelRoute { route, asked, model, .. } = found;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let created = since.map_or(0, |since| since.as_secs());
        let opened = request.open(Resolved { asked, model, id: request_id::number(), created });
        let door = call_door(self.door);
        let of_head = |status: Status| ApiError::of(&status);
        let mut transcoding =
            open_llm(parts, opened, door, &connection.front.transcoding).map_err(of_head)?;
        let head = transcoding.take_head();
        let forward = admit_call(connection, head, door, received, |_| Ok(route));
        Ok((transcoding, forward.map_err(of_head)?))
    }

    /// Waits for all of the body.
    async fn collect(&mut self) -> Result<Bytes, Incomplete> {
        if self.client.is_bodiless() {
            return Ok(Bytes::new());
        }
        let limit = self.body_bytes_max();
        let stop = StopListener::new(&self.connection);
        let mut body = Body::default();
        poll_fn(|cx| {
            while let Poll::Ready(piece) = self.client.poll_piece(cx) {
                let Ok(Piece { bytes, is_last }) = piece else {
                    return Poll::Ready(Err(Incomplete::Left));
                };
                if bytes.len() > limit - body.len() {
                    return Poll::Ready(Err(Incomplete::TooLarge));
                }
                if !bytes.is_empty() {
                    self.client.accepted(bytes.len());
                    body.add(bytes);
                }
                if is_last {
                    return Poll::Ready(Ok(body.take()));
                }
            }
            self.poll_end(&stop, cx).map(Err)
        })
        .await
    }

    fn poll_end(&mut self, stop: &StopListener, cx: &mut Context<'_>) -> Poll<Incomplete> {
        if let Poll::Ready(Cancelled) = self.client.poll_cancelled(cx) {
            return Poll::Ready(Incomplete::Left);
        }
        stop.poll_stop(cx).map(Incomplete::Stopped)
    }

    // === answers without a call ===

    fn answer_models(self, parts: &request::Parts) {
        let mut output = Output::default();
        let answered = {
            let asker = self.connection.asker(&parts.headers);
            self.connection.lookup.models(parts, &asker, &mut output)
        };
        match answered {
            Ok(()) => self.answer(parts, response(output)),
            Err(error) => self.answer_error(parts, &error),
        }
    }

    /// The path has an API, but not for this method.
    fn answer_method(self, parts: &request::Parts) {
        let allowed = self.door.methods();
        if is_preflight(parts) {
            let cors = &self.connection.front.transcoding.cors;
            let response = cors.preflight(&parts.headers, allowed);
            return self.send(response);
        }
        let mut response = if parts.method == Method::OPTIONS {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        } else {
            let text = format!("{} takes {allowed}", parts.uri.path());
            self.error(&ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text))
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        self.answer(parts, response);
    }

    /// The body is compressed, and is not unpacked here.
    fn answer_coding(self, parts: &request::Parts, coding: &HeaderValue) {
        let text = format!("content-encoding {coding:?} is not taken; send the body as it is");
        let mut response = self.error(&ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        let accepted = HeaderValue::from_static("identity");
        response.headers_mut().insert(ACCEPT_ENCODING, accepted);
        self.answer(parts, response);
    }

    fn answer_error(self, parts: &request::Parts, error: &ApiError) {
        let response = self.error(error);
        self.answer(parts, response);
    }

    fn error(&self, error: &ApiError) -> Response<Bytes> {
        let mut output = Output::default();
        let id = self.client.request_id().to_str().unwrap_or_default();
        let answered_by = self.connection.front.config.answered_by.clone();
        let headers = HeaderMap::from_iter([(ANSWERED_BY, answered_by)]);
        error.answer(self.door.dialect(), id, &headers, &mut output);
        response(output)
    }

    fn answer(self, parts: &request::Parts, mut response: Response<Bytes>) {
        let grant = self.connection.front.transcoding.cors.grant(&parts.headers);
        grant.write(response.headers_mut());
        self.send(response);
    }

    fn send(mut self, response: Response<Bytes>) {
        let (head, body) = response.into_parts();
        let counters = &self.connection.front.counters;
        counters.count_here(call_door(self.door), Some(head.status));
        self.client.answer(head, body);
    }

    /// The size of a body that is collected.
    fn body_bytes_max(&self) -> usize {
        let limits = self.connection.front.limits();
        let of_bodies = limits.body_bytes_max.and_then(|limit| usize::try_from(limit).ok());
        limits.message_size.bytes_max.min(of_bodies.unwrap_or(usize::MAX))
    }

    fn too_large(&self) -> ApiError {
        let front = &self.connection.front;
        front.counters.body_bytes_exceeded.count();
        let limit = self.body_bytes_max();
        let is_of_messages = limit == front.limits().message_size.bytes_max;
        let variable = if is_of_messages { "MAX_MESSAGE_BYTES" } else { "MAX_BODY_BYTES" };
        let variable = self.connection.lookup.variable(variable);
        let text = format!("the request's body is larger than {limit} bytes{variable}");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    }
}

/// How the body of a request is coded, if it is.
fn coding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let is_plain = |coding: &HeaderValue| {
        let coding = coding.as_bytes().trim_ascii();
        coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
    };
    headers.get_all(CONTENT_ENCODING).iter().find(|coding| !is_plain(coding))
}

/// An answer that is complete.
fn response(output: Output) -> Response<Bytes> {
    let mut response = Response::new(output.body.freeze());
    let head = output.head.expect("invariant: a complete answer has a head");
    (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
    response
}

/// The door of the call that a request becomes.
fn call_door(door: Door) -> call::Door {
    match door.dialect() {
        Dialect::OpenAi => call::Door::OpenAi,
        Dialect::Anthropic => call::Door::Anthropic,
    }
}

async fn read(door: Door, headers: &HeaderMap, body: Bytes) -> Result<Request, ApiError> {
    if body.len() <= LONG_BYTES {
        return door.read(headers, &body);
    }
    let headers = headers.clone();
    spawn_blocking(move || door.read(&headers, &body)).await.unwrap_or_else(|error| {
        let text = format!("the request's body could not be read: {error}");
        Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text))
    })
}

/// A body that is collected; most come in one piece.
#[derive(Debug, Default)]
struct Body {
    first: Bytes,
    joined: BytesMut,
}

impl Body {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn add(&mut self, bytes: Bytes) {
        if self.len() == 0 {
            self.first = bytes;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&bytes);
    }

    fn take(&mut self) -> Bytes {
        let first = std::mem::take(&mut self.first);
        if self.joined.is_empty() { first } else { self.joined.split().freeze() }
    }
}
