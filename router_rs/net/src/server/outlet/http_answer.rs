//! Answers to plain HTTP requests: whole, in pieces, or created here in place of the application's.
//!
//! Their last block carries the replica's load, as gRPC trailers do. For answers sent whole that is
//! the head: they have no trailers, since each block costs both sides as much as the body.

use std::time::Duration;

use h2::Reason;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode};
use router_protocol::grpc::{Code, Framed, HttpFailure, Message, QUEUE_FULL_DEFAULT, Status};
use router_protocol::names;

use super::{Dialect, HttpRequest, METADATA_BYTES_MAX, Outlet, Stage, block_bytes};

/// When a client may retry, in the format of gRPC's pushback: milliseconds.
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The state of an answer after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Started {
    /// Its body and its end follow.
    Open,
    /// It cannot have a body, so it is complete.
    Whole,
}

impl Outlet {
    /// Sends a whole answer.
    ///
    /// # Errors
    /// `INTERNAL` for headers that routers would not take; nothing has been sent then.
    pub(in crate::server) fn respond(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Message,
        load: HeaderValue,
    ) -> Result<(), Status> {
        let Dialect::Http(request) = &self.dialect else { return Err(not_http()) };
        let may_have_body = request.may_have_body(status);
        check_headers(&headers)?;
        if has_content(status) && !headers.contains_key(CONTENT_LENGTH) {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let body = if may_have_body { body } else { Message::default() };
        self.send_whole_http(status, headers, body, Some(load));
        Ok(())
    }

    fn send_whole_http(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Message,
        load: Option<HeaderValue>,
    ) {
        if status == StatusCode::NO_CONTENT {
            headers.remove(CONTENT_LENGTH); // as servers must (RFC 9110, 8.6)
        } else if status == StatusCode::RESET_CONTENT {
            headers.insert(CONTENT_LENGTH, 0.into()); // HTTP/1.1 clients wait for a body (15.3.6)
        }
        headers.extend(load.map(|load| (names::LOAD, load)));
        self.send_whole(status, headers, Framed::raw(body), HeaderMap::new());
    }

    /// Sends the head of an answer.
    ///
    /// # Errors
    /// As `respond`.
    pub(in crate::server) fn start_response(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        load: HeaderValue,
    ) -> Result<Started, Status> {
        let Dialect::Http(request) = &self.dialect else { return Err(not_http()) };
        check_headers(&headers)?;
        if request.is_websocket && status == StatusCode::SWITCHING_PROTOCOLS {
            self.send_response(StatusCode::OK, headers);
            return Ok(Started::Open);
        }
        if request.may_have_body(status) {
            self.send_response(status, headers);
            return Ok(Started::Open);
        }
        self.send_whole_http(status, headers, Message::default(), Some(load));
        Ok(Started::Whole)
    }

    /// Sends a piece of the body.
    ///
    /// # Errors
    /// `INTERNAL` before the head.
    pub(super) fn send_piece(&mut self, piece: Message) -> Result<(), Status> {
        if matches!(self.stage, Stage::Head(_)) {
            let text = "a body was sent before the head of its answer";
            return Err(Status::new(Code::Internal, text));
        }
        if !piece.is_empty() {
            self.send_data(Framed::raw(piece));
        }
        Ok(())
    }

    /// Ends the body, aborts it, or answers with the HTTP equivalent of `status`.
    pub(super) fn finish_http(&mut self, status: &Status, trailers: HeaderMap) {
        match &mut self.stage {
            Stage::Head(_) if status.code == Code::Ok => {
                let text = "the request was ended without an answer";
                self.fail_http(&Status::new(Code::Internal, text), trailers);
            }
            Stage::Head(_) => self.fail_http(status, trailers),
            Stage::Body(_) if status.code == Code::Ok => {
                let load = trailers.get(names::LOAD).cloned();
                self.send_trailers(load.map(|load| (names::LOAD, load)).into_iter().collect());
            }
            Stage::Body(_) if status.code == Code::Internal => {
                let load = trailers.get(names::LOAD).cloned().map(|load| (names::LOAD, load));
                let broken = (names::BROKEN, HeaderValue::from_static("1"));
                self.send_trailers(load.into_iter().chain([broken]).collect());
            }
            // The call is abandoned: its client does not wait for buffered data.
            Stage::Body(sink) => {
                let is_late = status.code == Code::DeadlineExceeded;
                sink.send_reset(if is_late { Reason::CANCEL } else { Reason::INTERNAL_ERROR });
                self.stage = Stage::Closed;
            }
            Stage::Closed => {}
        }
    }

    fn fail_http(&mut self, status: &Status, mut trailers: HeaderMap) {
        let mut failure = HttpFailure::of(status, QUEUE_FULL_DEFAULT);
        if let Some(delay) = read_pushback(&trailers) {
            failure.retry_after = Some(delay);
        }
        let Dialect::Http(request) = &self.dialect else { return };
        let may_have_body = request.may_have_body(failure.status);
        let body = if may_have_body { failure.body().into() } else { Message::default() };
        let headers = failure.headers(names::ANSWERED_BY_REPLICA);
        self.send_whole_http(failure.status, headers, body, trailers.remove(names::LOAD));
    }
}

// === impl HttpRequest ===

impl HttpRequest {
    fn may_have_body(self, status: StatusCode) -> bool {
        !self.is_head && has_content(status)
    }
}

/// Whether GET would have a body with this status, whose length HEAD may announce (RFC 9110,
/// 6.4.1).
fn has_content(status: StatusCode) -> bool {
    !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
}

fn read_pushback(trailers: &HeaderMap) -> Option<Duration> {
    let millis = trailers.get(RETRY_PUSHBACK)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

fn check_headers(headers: &HeaderMap) -> Result<(), Status> {
    let size = block_bytes(headers);
    if size <= METADATA_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the answer's headers of {size} bytes are larger than the limit of {METADATA_BYTES_MAX} \
         bytes"
    );
    Err(Status::new(Code::Internal, text))
}

fn not_http() -> Status {
    Status::new(Code::Internal, "a gRPC call was answered as plain HTTP")
}
