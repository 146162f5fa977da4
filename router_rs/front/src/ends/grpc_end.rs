//! A gRPC client's end of the exchange.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use router_call::{Caller, Cancelled, ClientEnd, Failure, Piece};
use router_io::Peer;
use router_protocol::grpc::{CONTENT_TYPE_GRPC, Status};
use router_protocol::names::ANSWERED_BY;

use crate::connection::ConnectionState;
use crate::ends::http2_end::Http2End;
use crate::guard::stall::Stall;

/// Passes everything on unchanged; failures are Trailers-Only, or trailers.
#[derive(Debug)]
pub(crate) struct GrpcEnd {
    http: Http2End,
    /// The limit for a client that takes nothing of its answer. A call may wait indefinitely for
    /// its next message.
    stall: Stall,
    connection: Rc<ConnectionState>,
}

impl GrpcEnd {
    pub(crate) fn new(http: Http2End, connection: &Rc<ConnectionState>) -> Self {
        let stall = Stall::new(connection.front.limits().body_timeout);
        Self { http, stall, connection: Rc::clone(connection) }
    }
}

impl ClientEnd for GrpcEnd {
    fn fail(&mut self, failure: &Failure) {
        let answered_by = &self.connection.front.config.answered_by;
        let mut trailers = own_trailers(&failure.status, answered_by);
        failure.write_explanation(&mut trailers);
        match self.http.begun() {
            None => self.http.whole(trailers_only(trailers)),
            // An error means that the client is gone.
            Some(answer) => drop(answer.send_trailers(trailers)),
        }
    }
}

impl Caller for GrpcEnd {
    fn on_sent(&mut self, peer: &Arc<str>) {
        self.http.on_sent(peer);
    }

    fn peer(&self, headers: &HeaderMap) -> String {
        Peer::Tcp(self.connection.client(headers).peer).uri()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        self.http.poll_piece(cx)
    }

    fn accepted(&mut self, bytes: usize) {
        self.http.accepted(bytes);
    }

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        if self.stall.poll(cx).is_ready() {
            self.connection.front.counters.body_timeouts.count();
            // Dropping the streams resets them.
            return Poll::Ready(Cancelled);
        }
        self.http.poll_cancelled(cx)
    }

    fn is_slow(&self) -> bool {
        self.stall.is_slow()
    }

    fn on_give_way(&mut self) {
        self.connection.front.counters.slow_clients.count();
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        self.http.head(head, is_last)
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        let room = self.http.poll_room(wanted, cx);
        match room {
            Poll::Pending => self.stall.on_wait(),
            Poll::Ready(room) => self.stall.on_move(room.unwrap_or(0)),
        }
        room
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        self.connection.gauge.earn_by_answer(bytes.len());
        self.http.body(bytes)
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        self.http.trailers(trailers)
    }
}

/// Answers a request that does not become a call.
pub(crate) fn refuse(
    mut respond: SendResponse<Bytes>,
    http_status: StatusCode,
    status: &Status,
    answered_by: &HeaderValue,
) {
    let mut response = trailers_only(own_trailers(status, answered_by));
    *response.status_mut() = http_status;
    // An error means that the client is gone.
    let _nobody_to_tell = respond.send_response(response, true);
}

fn trailers_only(trailers: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = trailers;
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    response
}

fn own_trailers(status: &Status, answered_by: &HeaderValue) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    status.write(&mut trailers);
    trailers.insert(ANSWERED_BY, answered_by.clone());
    trailers
}
