//! One gRPC call over an open HTTP/2 connection: send, receive, check.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use thiserror::Error;

use crate::framing::{AnswerCheck, Mismatch};
use crate::options::{CallPlan, Kind};
use crate::sampling::Outcome;

/// Names of the gRPC status codes 0 to 16.
const CODE_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A call that did not end with status OK and the expected answer.
#[derive(Debug, Error)]
pub enum CallError {
    #[error("status {0}")]
    Status(String),
    #[error("http status {0}")]
    Http(StatusCode),
    #[error("no grpc-status in the answer")]
    NoStatus,
    #[error(transparent)]
    Answer(#[from] Mismatch),
    #[error("transport: {0}")]
    Transport(#[from] h2::Error),
}

impl CallError {
    /// A short, stable name for the report.
    pub fn label(&self) -> String {
        match self {
            Self::Status(name) => name.clone(),
            Self::Http(status) => format!("bad answer: http {}", status.as_u16()),
            Self::NoStatus => "bad answer: no grpc-status".to_owned(),
            Self::Answer(mismatch) => mismatch.label().to_owned(),
            Self::Transport(error) => match error.reason() {
                Some(reason) => format!("transport: {reason:?}"),
                None => "transport: connection lost".to_owned(),
            },
        }
    }

    /// The connection that the call used takes no more calls: all but a reset of one stream.
    pub fn lost_connection(&self) -> bool {
        matches!(self, Self::Transport(error) if !error.is_reset())
    }
}

/// How a call ended, and whether its connection can take another one.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    pub connection_lost: bool,
}

/// Make one call and check its answer. Dropping the future resets the stream.
pub async fn call(sender: &mut SendRequest<Bytes>, plan: &CallPlan) -> Ended {
    let mut answer = AnswerCheck::new(&plan.expectation);
    let result = converse(sender, plan, &mut answer).await;
    Ended {
        outcome: Outcome {
            messages: answer.messages(),
            received_bytes: answer.payload_bytes(),
            error: result.as_ref().err().map(CallError::label),
        },
        connection_lost: result.as_ref().is_err_and(CallError::lost_connection),
    }
}

async fn converse(
    sender: &mut SendRequest<Bytes>,
    plan: &CallPlan,
    answer: &mut AnswerCheck<'_>,
) -> Result<(), CallError> {
    poll_fn(|context| sender.poll_ready(context)).await?;
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = plan.uri.clone();
    *request.headers_mut() = plan.headers.clone();
    let (response, mut requests) = sender.send_request(request, false)?;
    match plan.kind {
        Kind::Unary | Kind::ServerStreaming => {
            send_only(&mut requests, plan.framed.clone());
            receive_all(response, answer).await?;
        }
        Kind::ClientStreaming => {
            for index in 1..=plan.messages {
                send_all(&mut requests, plan.framed.clone(), index == plan.messages).await;
            }
            receive_all(response, answer).await?;
        }
        Kind::Bidi => ping_pong(response, requests, plan, answer).await?,
    }
    Ok(answer.finish()?)
}

/// Send the whole of a request's body. It leaves in one write with the head, as clients of gRPC do it:
/// capacity would be told only once the head is written. h2 keeps what the windows do not take yet.
///
/// As in `send_all`, a send that fails is not reported as an error of its own.
fn send_only(stream: &mut SendStream<Bytes>, data: Bytes) {
    stream.send_data(data, true).ok();
}

/// Send `data` as the peer's windows allow.
///
/// A send that fails is not reported as an error of its own: a server may end a call before it has read all of
/// the request, and then its status, which is read next, is the answer.
async fn send_all(stream: &mut SendStream<Bytes>, mut data: Bytes, end_of_stream: bool) {
    loop {
        stream.reserve_capacity(data.len());
        let capacity = if data.len() <= stream.capacity() {
            data.len()
        } else {
            match poll_fn(|context| stream.poll_capacity(context)).await {
                Some(Ok(capacity)) => capacity.min(data.len()),
                Some(Err(_)) | None => return,
            }
        };
        let piece = data.split_to(capacity);
        let last = data.is_empty();
        if stream.send_data(piece, last && end_of_stream).is_err() || last {
            return;
        }
    }
}

async fn receive_all(
    response: ResponseFuture,
    answer: &mut AnswerCheck<'_>,
) -> Result<(), CallError> {
    let Some(mut body) = open_answer(response).await? else {
        return Ok(());
    };
    while receive_some(&mut body, answer).await? {}
    check_trailers(&mut body).await
}

async fn ping_pong(
    response: ResponseFuture,
    mut requests: SendStream<Bytes>,
    plan: &CallPlan,
    answer: &mut AnswerCheck<'_>,
) -> Result<(), CallError> {
    send_all(&mut requests, plan.framed.clone(), false).await;
    let Some(mut body) = open_answer(response).await? else {
        return Ok(());
    };
    let mut sent = 1;
    loop {
        // An answer to each message so far: send the next one, or say that there is none.
        while answer.messages() < sent {
            if !receive_some(&mut body, answer).await? {
                return check_trailers(&mut body).await;
            }
        }
        if sent == plan.messages {
            break;
        }
        send_all(&mut requests, plan.framed.clone(), false).await;
        sent += 1;
    }
    send_all(&mut requests, Bytes::new(), true).await;
    while receive_some(&mut body, answer).await? {}
    check_trailers(&mut body).await
}

/// Wait for the response headers; `None`: a Trailers-Only answer with status OK.
async fn open_answer(response: ResponseFuture) -> Result<Option<RecvStream>, CallError> {
    let (parts, body) = response.await?.into_parts();
    if parts.status != StatusCode::OK {
        return Err(CallError::Http(parts.status));
    }
    if body.is_end_stream() {
        return check_status(&parts.headers).map(|()| None);
    }
    Ok(Some(body))
}

/// Take the next piece of the body; `false` at its end.
async fn receive_some(
    body: &mut RecvStream,
    answer: &mut AnswerCheck<'_>,
) -> Result<bool, CallError> {
    let Some(data) = body.data().await.transpose()? else {
        return Ok(false);
    };
    answer.on_data(&data)?;
    body.flow_control().release_capacity(data.len())?;
    Ok(true)
}

async fn check_trailers(body: &mut RecvStream) -> Result<(), CallError> {
    match body.trailers().await? {
        Some(trailers) => check_status(&trailers),
        None => Err(CallError::NoStatus),
    }
}

fn check_status(headers: &HeaderMap) -> Result<(), CallError> {
    let status = headers.get("grpc-status").ok_or(CallError::NoStatus)?;
    if status == "0" {
        return Ok(());
    }
    let text = String::from_utf8_lossy(status.as_bytes());
    let name = text.parse().ok().and_then(|code: usize| CODE_NAMES.get(code).copied());
    Err(CallError::Status(name.map_or_else(|| format!("status {text}"), str::to_owned)))
}
