//! A server whose user is the test, and a client that talks to it as an ingress does.

use std::collections::HashMap;
use std::sync::Arc;

use crate::server_support::{Answer, PATIENCE, request};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use parking_lot::Mutex;
use router_net::grpc::{Code, Message, Status};
use router_net::io::IoThreads;
use router_net::link::{CancelReason, Command, Event, EventSink, Mailbox, post};
use router_net::mesh::proof;
use router_net::names;
use router_net::server::{CallSink, ServedCall, Server, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const WHOLE_BYTES_MAX: usize = 1000;

/// The events that the user got, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// With the body, or `None` for one in pieces.
    Call(Option<Vec<u8>>),
    Piece(Vec<u8>),
    HalfClose,
    Cancel(CancelReason),
    Writable,
}

/// A user that passes everything to the test; the test answers.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(crate) told: mpsc::UnboundedSender<(u64, Told)>,
    calls: Mutex<HashMap<u64, Arc<ServedCall>>>,
}

impl EventSink for Teller {
    fn push(&self, token: u64, event: Event) {
        let told = match event {
            Event::Message(message) => Told::Piece(message.into_bytes().to_vec()),
            Event::HalfClose => Told::HalfClose,
            Event::Cancel(reason) => Told::Cancel(reason),
            Event::Writable => Told::Writable,
            other => panic!("{other:?} is for clients"),
        };
        self.tell(token, told);
    }
}

impl CallSink for Teller {
    fn begin(&self, served_call: Arc<ServedCall>, message: Option<Message>) {
        let token = served_call.link().token;
        self.calls.lock().insert(token, served_call);
        self.tell(token, Told::Call(message.map(|message| message.into_bytes().to_vec())));
    }
}

impl Teller {
    fn tell(&self, token: u64, told: Told) {
        // The receiver is gone once the test has ended.
        let _ = self.told.send((token, told));
    }
}

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) teller: Arc<Teller>,
    pub(crate) told: mpsc::UnboundedReceiver<(u64, Told)>,
    pub(crate) port: u16,
}

impl Fixture {
    pub(crate) fn start(config: ServerConfig) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let teller = Arc::new(Teller { told: sender, calls: Mutex::default() });
        let threads = IoThreads::start("test-io", 1).expect("threads");
        let server = Server::new(config, teller.clone(), threads);
        assert_eq!(0, server.register_http(1, WHOLE_BYTES_MAX));
        let port = server.listen_tcp("127.0.0.1:0", None, false).expect("a free port").port();
        server.start();
        Self { server, teller, told, port }
    }

    pub(crate) async fn connect(&self) -> SendRequest<Bytes> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("listening");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move {
            let _ended = connection.await;
        });
        client
    }

    /// A connection that has proven the mesh token.
    pub(crate) async fn connect_as_router(&self) -> SendRequest<Bytes> {
        prove(self.connect().await).await
    }

    pub(crate) async fn next(&mut self) -> (u64, Told) {
        timeout(PATIENCE, self.told.recv()).await.expect("an event in time").expect("a server")
    }

    /// Waits for a call, and returns how it came.
    pub(crate) async fn next_call(&mut self) -> (Arc<ServedCall>, Option<Vec<u8>>) {
        match self.next().await {
            (token, Told::Call(body)) => (self.teller.calls.lock()[&token].clone(), body),
            (_, other) => panic!("{other:?} is no call"),
        }
    }

    pub(crate) async fn next_of_call(&mut self) -> Told {
        self.next().await.1
    }

    pub(crate) async fn settle(&self) {
        let settled = async {
            while self.server.in_flight() != 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, settled).await.expect("in-flight calls return to zero");
    }
}

/// Proves the mesh token, so that the server trusts the connection.
pub(crate) async fn prove(mut client: SendRequest<Bytes>) -> SendRequest<Bytes> {
    let hello = call(&mut client, request(names::HELLO_PATH, &[])).await;
    let nonce = proof::from_hex(hello.headers[names::NONCE].to_str().unwrap()).unwrap();
    let text = proof::proof(b"secret", &nonce, "replica-1");
    let head = request(names::PROVE_PATH, &[(names::PROOF.as_str(), &text)]);
    assert_eq!(StatusCode::OK, call(&mut client, head).await.http);
    client
}

pub(crate) fn send(served_call: &Arc<ServedCall>, command: Command) {
    post(served_call.clone(), command).wake();
}

pub(crate) fn respond(
    served_call: &Arc<ServedCall>,
    status: u16,
    headers: &[(&'static str, &str)],
    body: &[u8],
) {
    let (status, headers) = (StatusCode::from_u16(status).unwrap(), block(headers));
    let body = Bytes::copy_from_slice(body).into();
    send(served_call, Command::Respond { status, headers, body });
}

pub(crate) fn start_response(
    served_call: &Arc<ServedCall>,
    status: u16,
    headers: &[(&'static str, &str)],
) {
    let (status, headers) = (StatusCode::from_u16(status).unwrap(), block(headers));
    send(served_call, Command::StartResponse { status, headers });
}

pub(crate) fn write(served_call: &Arc<ServedCall>, piece: &[u8]) {
    served_call.link().begin_write(piece.len());
    let payload = Bytes::copy_from_slice(piece).into();
    send(served_call, Command::Message { payload, may_compress: true });
}

pub(crate) fn finish(
    served_call: &Arc<ServedCall>,
    code: Code,
    text: &str,
    metadata: &[(&'static str, &str)],
) {
    let (status, metadata) = (Status::new(code, text), block(metadata));
    send(served_call, Command::Finish { status, metadata, message: None });
}

pub(crate) fn block(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// A plain HTTP request as an ingress forwards it.
pub(crate) fn plain(method: &str, target: &str, headers: &[(&'static str, &str)]) -> Request<()> {
    let uri = format!("http://shop.example{target}");
    let mut request = Request::builder().method(method).uri(uri).body(()).expect("valid");
    let mark = HeaderValue::from_static("1.1 https 192.0.2.7:5 /app");
    request.headers_mut().insert(names::HTTP, mark);
    request.headers_mut().extend(block(headers));
    request
}

/// Sends a request without a body, and reads the whole answer.
pub(crate) async fn call(client: &mut SendRequest<Bytes>, head: Request<()>) -> Answer {
    let (response, _) = client.send_request(head, true).expect("a stream");
    read(response).await.expect("a whole answer")
}

/// An error is that of the stream.
pub(crate) async fn read(response: h2::client::ResponseFuture) -> Result<Answer, h2::Error> {
    timeout(PATIENCE, read_unbounded(response)).await.expect("an answer in time")
}

pub(crate) async fn read_unbounded(
    response: h2::client::ResponseFuture,
) -> Result<Answer, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let mut answer = Answer { http: parts.status, headers: parts.headers, ..Answer::default() };
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        let _returned = body.flow_control().release_capacity(chunk.len());
        answer.body.extend_from_slice(&chunk);
    }
    answer.trailers = body.trailers().await?.unwrap_or_default();
    Ok(answer)
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().expect("text"))
}
