//! One call of a client: the task that forwards it, and the client's end of the exchange.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, response};

use super::connection::{ConnectionState, StopListener};
use super::state::{CallCount, count};
use crate::client::connection::Connection;
use crate::dispatch::caller::{Caller, ClientEnd, Gone, Piece};
use crate::dispatch::exchange::{Ending, Exchange, Head, Limits};
use crate::dispatch::{Deployment, Kept, Upload, gather, poll_room};
use crate::grpc::{CONTENT_TYPE_GRPC, Status};
use crate::mesh::names::ANSWERED_BY;

const INGRESS: HeaderValue = HeaderValue::from_static("ingress");

/// A request that is well-formed and has somewhere to go.
pub(super) struct Admitted {
    pub head: Head,
    pub deadline: Option<Instant>,
    pub deployment: Arc<Deployment>,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
}

/// Spawns the call's task.
///
/// A panic in there ends this task only: the guards give everything back, and the client sees a
/// reset stream.
pub(super) fn start(connection: &Rc<ConnectionState>, admitted: Admitted) {
    let Admitted { head, deadline, deployment, body, respond } = admitted;
    let in_flight = CallCount::new(&connection.ingress);
    let connection = Rc::clone(connection);
    // A block that captures its parts, not a function that would move them: the task is copied
    // when it is spawned, so its size counts.
    tokio::task::spawn_local(async move {
        let _in_flight = in_flight;
        let stop = StopListener::new(&connection);
        let kept = Kept::new(Arc::clone(&deployment.entry.budget), deployment.request_bytes_max);
        let upload = Upload::new(kept, body.is_end_stream());
        let mut client = Client { body, respond, answer: None };
        let limits = Limits::new(deadline, &stop);
        let mut exchange = Exchange { caller: &mut client, head, upload, limits };
        let ending = exchange.through(&deployment.entry).await;
        conclude(&connection, &mut client, ending);
    });
}

fn conclude(connection: &ConnectionState, client: &mut Client, ending: Ending) {
    let counters = &connection.ingress.counters;
    match ending {
        Ending::Answered => count(&counters.forwarded),
        Ending::Gone => count(&counters.cancelled_by_client),
        Ending::Failed(failure) => {
            count(&counters.answered_here);
            client.fail(&failure.status);
        }
    }
}

/// The client's end of the exchange.
#[derive(Debug)]
struct Client {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    /// The answer's body, once its head has been sent.
    answer: Option<SendStream<Bytes>>,
}

impl ClientEnd for Client {
    fn fail(&mut self, status: &Status) {
        match &mut self.answer {
            None => fail(&mut self.respond, status),
            Some(answer) => {
                // An error means that the client is gone: there is nobody to tell.
                let _nobody_to_tell = answer.send_trailers(own_trailers(status));
            }
        }
    }
}

impl Client {
    fn answer(&mut self) -> Result<&mut SendStream<Bytes>, Gone> {
        self.answer.as_mut().ok_or(Gone)
    }
}

impl Caller for Client {
    fn on_sent(&mut self, _connection: &Connection) {}

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Gone>> {
        Poll::Ready(match ready!(gather::poll_data(&mut self.body, cx)) {
            Some(Ok(bytes)) => Ok(Piece { bytes, is_last: self.body.is_end_stream() }),
            Some(Err(_)) => Err(Gone),
            // gRPC knows no request trailers: what a client sends there goes nowhere.
            None => Ok(Piece { bytes: Bytes::new(), is_last: true }),
        })
    }

    fn accepted(&mut self, bytes: usize) {
        // Fails only for a stream that is over, whose window nobody needs.
        let _window_of_an_ended_stream = self.body.flow_control().release_capacity(bytes);
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        let reset = match &mut self.answer {
            None => self.respond.poll_reset(cx),
            Some(answer) => answer.poll_reset(cx),
        };
        reset.map(|_| Gone)
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Gone> {
        let answer = self.respond.send_response(Response::from_parts(head, ()), is_last);
        self.answer = Some(answer.map_err(|_| Gone)?);
        Ok(())
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Gone>> {
        poll_room(self.answer()?, wanted, cx).map_err(|_| Gone)
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Gone> {
        self.answer()?.send_data(bytes, false).map_err(|_| Gone)
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Gone> {
        let answer = self.answer()?;
        if trailers.is_empty() {
            answer.send_data(Bytes::new(), true).map_err(|_| Gone)
        } else {
            answer.send_trailers(trailers).map_err(|_| Gone)
        }
    }
}

/// Answers with a status of our own, Trailers-Only.
pub(super) fn fail(respond: &mut SendResponse<Bytes>, status: &Status) {
    let mut response = Response::new(());
    *response.headers_mut() = own_trailers(status);
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    // An error means that the client is gone: there is nobody to tell.
    let _nobody_to_tell = respond.send_response(response, true);
}

fn own_trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    status.write(&mut trailers);
    trailers.insert(ANSWERED_BY, INGRESS);
    trailers
}
