//! One HTTP/2 connection to the controller with one gRPC stream on it.
//!
//! A connection of its own for each replica and each watcher, because each of them is a process in
//! life: what connections cost the controller is a part of what is measured.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::{HeaderValue, Method, Request, Version};
use prost::Message;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;

/// Generous for any loopback, also while thousands connect at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A flag byte and four bytes of length.
const PREFIX_BYTES: usize = 5;
/// Holds the snapshot of thousands of replicas.
const WINDOW_BYTES: u32 = 4 << 20;

/// A stream could not be opened, or is over.
#[derive(Debug, Error)]
pub(crate) enum LinkError {
    #[error("cannot connect to the controller: {0}")]
    Connect(#[from] io::Error),
    #[error("transport: {0}")]
    Transport(#[from] h2::Error),
    #[error("the controller refused the call: grpc-status {status}, {message}")]
    Refused { status: String, message: String },
    #[error("the stream ended")]
    Ended,
    #[error("no message of mesh.proto: {0}")]
    Decode(#[from] prost::DecodeError),
}

/// What every call carries.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) controller: String,
    pub(crate) token: HeaderValue,
}

/// Sends messages.
#[derive(Debug)]
pub(crate) struct Sender {
    stream: SendStream<Bytes>,
    connection: AbortHandle,
}

/// Receives messages, and counts their bytes.
#[derive(Debug)]
pub(crate) struct Receiver {
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    buffer: BytesMut,
}

/// A message, and how many bytes it was on the stream.
#[derive(Debug)]
pub(crate) struct Received<M> {
    pub(crate) message: M,
    pub(crate) bytes: usize,
}

// === impl Target ===

impl Target {
    pub(crate) async fn open(&self, path: &str) -> Result<(Sender, Receiver), LinkError> {
        let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.controller))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        socket.set_nodelay(true)?;
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .enable_push(false)
            .handshake(socket)
            .await?;
        // Its end reaches the stream as an error of its own.
        let connection = spawn_local(async move { connection.await.unwrap_or(()) }).abort_handle();
        let mut client = client.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("http://{}{path}", self.controller))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("pyserve-token-bin", self.token.clone())
            .body(())
            .expect("invariant: the parts of a request are valid");
        let (response, stream) = client.send_request(request, false)?;
        let receiver = Receiver { response: Some(response), body: None, buffer: BytesMut::new() };
        Ok((Sender { stream, connection }, receiver))
    }
}

// === impl Sender ===

impl Sender {
    pub(crate) async fn send(&mut self, message: &impl Message) -> Result<(), LinkError> {
        let length = message.encoded_len();
        let mut data = BytesMut::with_capacity(PREFIX_BYTES + length);
        data.put_u8(0);
        data.put_u32(u32::try_from(length).expect("invariant: messages are small"));
        message.encode(&mut data).expect("invariant: the buffer has room");
        let mut data = data.freeze();
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len());
            let granted = poll_fn(|context| self.stream.poll_capacity(context)).await;
            let room = granted.ok_or(LinkError::Ended)??;
            self.stream.send_data(data.split_to(room.min(data.len())), false)?;
        }
        Ok(())
    }

    /// Say that no message follows.
    pub(crate) fn finish(&mut self) -> Result<(), LinkError> {
        Ok(self.stream.send_data(Bytes::new(), true)?)
    }
}

/// The end of a process closes its connection.
impl Drop for Sender {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

// === impl Receiver ===

impl Receiver {
    /// The next message; may be dropped while it waits.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Received<M>, LinkError> {
        loop {
            if let Some(received) = self.decode()? {
                return Ok(received);
            }
            if let Some(response) = self.response.as_mut() {
                let answer = response.await?;
                self.response = None;
                refused(answer.headers())?;
                self.body = Some(answer.into_body());
            }
            let body = self.body.as_mut().expect("invariant: it follows the response");
            let Some(chunk) = body.data().await else {
                let trailers = body.trailers().await?.unwrap_or_default();
                refused(&trailers)?;
                return Err(LinkError::Ended);
            };
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            self.buffer.extend_from_slice(&chunk);
        }
    }

    fn decode<M: Message + Default>(&mut self) -> Result<Option<Received<M>>, LinkError> {
        if self.buffer.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let length = (&self.buffer[1..PREFIX_BYTES]).get_u32() as usize;
        let bytes = PREFIX_BYTES + length;
        if self.buffer.len() < bytes {
            return Ok(None);
        }
        let framed = self.buffer.split_to(bytes);
        Ok(Some(Received { message: M::decode(&framed[PREFIX_BYTES..])?, bytes }))
    }
}

fn refused(headers: &http::HeaderMap) -> Result<(), LinkError> {
    let text = |name| {
        headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default()
    };
    match text("grpc-status") {
        "" | "0" => Ok(()),
        status => Err(LinkError::Refused {
            status: status.to_owned(),
            message: text("grpc-message").to_owned(),
        }),
    }
}
