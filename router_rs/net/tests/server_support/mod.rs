//! A server with a user written in Rust, and a client that can misbehave.
#![allow(dead_code)] // each test file uses its own part

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use parking_lot::Mutex;
use router_net::grpc::{Encoding, Encodings, Message};
use router_net::io::IoThreads;
use router_net::link::{CancelReason, Command, Event, EventSink, Mailbox, post};
use router_net::mesh::proof;
use router_net::names;
use router_net::server::{CallSink, Method, ServedCall, Server, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait of any test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const UNARY: &str = "/test.T/Unary";
pub(crate) const STREAM: &str = "/test.T/Stream";
/// Its user panics at a message, on the I/O thread and so in the call's task.
pub(crate) const FAULTY: &str = "/test.T/Faulty";
/// Its user never answers.
pub(crate) const SILENT: &str = "/test.T/Silent";

/// Its user ends the call with as many bytes of metadata as the request says, at its end.
pub(crate) const BULKY: &str = "/test.T/Bulky";

/// Its user answers with a description of the call, as `application/grpc+raw`.
pub(crate) const ABOUT: &str = "/test.T/About";
/// Its user answers with as many parts as the request says, of these sizes: "3,70000,1".
pub(crate) const PARTS: &str = "/test.T/Parts";
/// Takes pickles and JSON, and messages of 100 bytes.
pub(crate) const PICKY: &str = "/test.T/Picky";

/// Takes messages of 10 bytes.
pub(crate) const NARROW: &str = "/test.T/Narrow";

/// A user that echoes immediately, on the I/O thread, and records its events.
#[derive(Debug, Default)]
pub(crate) struct EchoUser {
    calls: Mutex<HashMap<u64, Arc<ServedCall>>>,
    pub(crate) cancelled: Mutex<Vec<CancelReason>>,
    pub(crate) taken_bytes: AtomicUsize,
    /// When set, messages of streams are not taken: the user is behind.
    pub(crate) is_stalled: std::sync::atomic::AtomicBool,
}

impl EchoUser {
    /// Calls that came without a message, and have not ended for their user.
    pub(crate) fn begun(&self) -> Vec<Arc<ServedCall>> {
        self.calls.lock().values().cloned().collect()
    }

    fn on_message(&self, served_call: &Arc<ServedCall>, payload: Bytes) {
        let size = payload.len();
        self.taken_bytes.fetch_add(size, Ordering::SeqCst);
        if self.is_stalled.load(Ordering::SeqCst) {
            return;
        }
        if served_call.link().take(size) {
            send(served_call, Command::Resume);
        }
        served_call.link().begin_write(size);
        send(served_call, Command::Message { payload: payload.into(), may_compress: true });
    }
}

fn send(served_call: &Arc<ServedCall>, command: Command) {
    post(served_call.clone(), command).wake();
}

/// The request: `i` or `t` (initial or trailing), then a number of bytes.
fn finish_bulkily(served_call: &Arc<ServedCall>, request: &[u8]) {
    let size = std::str::from_utf8(&request[1..]).ok().and_then(|text| text.parse().ok());
    let value = "v".repeat(size.expect("a size"));
    let bulk: HeaderMap =
        [("x".parse().expect("a name"), value.parse().expect("a value"))].into_iter().collect();
    let (initial, trailing) =
        if request[0] == b'i' { (bulk, HeaderMap::new()) } else { (HeaderMap::new(), bulk) };
    send(served_call, Command::InitialMetadata(initial, Encoding::Identity));
    let status = router_net::grpc::Status::new(router_net::grpc::Code::Aborted, "as asked");
    send(served_call, Command::Finish { status, metadata: trailing, message: None });
}

fn tell_about(served_call: &Arc<ServedCall>) {
    let (subtype, model_id) = (served_call.subtype(), served_call.model_id());
    let text = format!("{subtype} framed={} model={model_id}", served_call.is_framed());
    let content_type = router_net::grpc::content_type("raw").expect("a codec's name");
    send(served_call, Command::ContentType(content_type));
    send(served_call, Command::Reply(Bytes::from(text).into()));
}

/// The answer to `PARTS`: every part has other bytes than its neighbours.
pub(crate) fn parts(sizes: &[u8]) -> Message {
    let sizes = std::str::from_utf8(sizes).expect("text").split(',');
    Message::from_parts(sizes.enumerate().map(|(index, size)| {
        let content: Vec<u8> = (0..size.parse().expect("a size")).map(|at| at as u8).collect();
        content.iter().map(|byte| byte ^ index as u8).collect()
    }))
}

impl CallSink for EchoUser {
    fn begin(&self, served_call: Arc<ServedCall>, message: Option<Message>) {
        let path = served_call.path();
        match message {
            Some(message) if path == PARTS => {
                send(&served_call, Command::Reply(parts(&message.into_bytes())));
            }
            Some(message) if path == BULKY => finish_bulkily(&served_call, &message.into_bytes()),
            Some(_) if path == ABOUT => tell_about(&served_call),
            Some(message) if path != SILENT => send(&served_call, Command::Reply(message)),
            _ => drop(self.calls.lock().insert(served_call.link().token, served_call)),
        }
    }
}

impl EventSink for EchoUser {
    fn push(&self, token: u64, event: Event) {
        let served_call = self.calls.lock().get(&token).cloned();
        match (event, served_call) {
            (Event::Message(_), Some(served_call)) if served_call.path() == FAULTY => {
                panic!("this user has a defect");
            }
            (Event::Message(message), Some(served_call)) => {
                self.on_message(&served_call, message.into_bytes());
            }
            (Event::HalfClose, Some(served_call)) => {
                // It has ended for its user, who ignores anything after that.
                self.calls.lock().remove(&token);
                let status = router_net::grpc::Status::ok();
                let metadata = HeaderMap::new();
                send(&served_call, Command::Finish { status, metadata, message: None });
            }
            (Event::Cancel(reason), Some(served_call)) => {
                self.cancelled.lock().push(reason);
                send(&served_call, Command::Release);
                self.calls.lock().remove(&token);
            }
            _ => {}
        }
    }
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        receive_bytes_max: 1 << 20,
        send_bytes_max: 1 << 20,
        metadata_bytes_max: 16 << 10,
        concurrent_calls_max: None,
        idle_streams_max: 10,
        concurrent_streams_max: 1000,
        default_encoding: Encoding::Identity,
        encodings: Encodings::default(),
        keepalive: None,
        connection_age_max: None,
        connection_grace: None,
        connection_idle_max: None,
        idle_bytes_max: 0,
        descriptors_max: u64::MAX,
        proxies: Arc::default(),
        replica_id: "replica-1".to_owned(),
        token: b"secret".to_vec(),
        call_token: Vec::new(),
        maps_arenas: true,
    }
}

fn method(path: &str) -> Method {
    let is_streaming = matches!(path, STREAM | FAULTY);
    let (is_picky, is_narrow) = (path == PICKY, path == NARROW);
    Method {
        index: -1,
        is_request_streaming: is_streaming,
        is_response_streaming: is_streaming,
        weight: 1,
        subtypes: is_picky.then(|| ["pickle".to_owned(), "json".to_owned()].into()),
        message_bytes_max: is_picky.then_some(100),
        receive_bytes_max: is_narrow.then_some(10),
    }
}

/// A started server; `connect` creates clients.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) user: Arc<EchoUser>,
    pub(crate) port: u16,
}

impl Fixture {
    pub(crate) fn start(config: ServerConfig) -> Self {
        let threads = IoThreads::start("test-io", 1).expect("threads");
        let user = Arc::new(EchoUser::default());
        let server = Server::new(config, user.clone(), threads);
        for path in [UNARY, SILENT, STREAM, BULKY, FAULTY, ABOUT, PARTS, PICKY, NARROW] {
            server.register(path, method(path));
        }
        let port = server.listen_tcp("127.0.0.1:0", None, false).expect("a free port").port();
        server.start();
        Self { server, user, port }
    }

    pub(crate) async fn connect(&self) -> SendRequest<Bytes> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("listening");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move {
            let _ended = connection.await;
        });
        client
    }

    /// Waits until no call is in flight.
    pub(crate) async fn settle(&self) {
        let settled = async {
            while self.server.in_flight() != 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, settled).await.expect("in-flight calls return to zero");
    }
}

/// Proves the mesh token on the client's connection, if `token` is the server's.
pub(crate) async fn introduce(client: &mut SendRequest<Bytes>, token: &[u8]) -> StatusCode {
    let hello = call(client, request(names::HELLO_PATH, &[]), Bytes::new()).await;
    let nonce = hello.headers[names::NONCE].to_str().ok().and_then(proof::from_hex);
    let claim = proof::proof(token, &nonce.expect("a nonce"), "replica-1");
    let head = request(names::PROVE_PATH, &[(names::PROOF.as_str(), &claim)]);
    call(client, head, Bytes::new()).await.http
}

/// A request head as a gRPC client sends it; `extra` headers replace or add.
pub(crate) fn request(path: &str, extra: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post(format!("http://test{path}")).body(()).expect("valid");
    let headers = request.headers_mut();
    headers.insert("content-type", "application/grpc".parse().expect("valid"));
    headers.insert("te", "trailers".parse().expect("valid"));
    for (name, value) in extra {
        let name: http::HeaderName = name.parse().expect("valid");
        headers.insert(name, value.parse().expect("valid"));
    }
    request
}

pub(crate) fn frame(flag: u8, payload: &[u8]) -> Bytes {
    let mut bytes = vec![flag];
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes.into()
}

/// The response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) http: StatusCode,
    pub(crate) status: Option<String>,
    pub(crate) message: String,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: HeaderMap,
}

/// Sends one request whose body is `body`, and reads the whole answer.
pub(crate) async fn call(
    client: &mut SendRequest<Bytes>,
    head: Request<()>,
    body: Bytes,
) -> Answer {
    timeout(PATIENCE, call_unbounded(client, head, body)).await.expect("an answer in time")
}

async fn call_unbounded(client: &mut SendRequest<Bytes>, head: Request<()>, body: Bytes) -> Answer {
    let (response, mut stream) = client.send_request(head, false).expect("a stream");
    // The server may have answered and reset already.
    let _ignored = stream.send_data(body, true);
    let response = response.await.expect("a response head");
    let (parts, mut body) = response.into_parts();
    let mut answer = Answer { http: parts.status, headers: parts.headers, ..Answer::default() };
    while let Some(Ok(chunk)) = body.data().await {
        let _returned = body.flow_control().release_capacity(chunk.len());
        answer.body.extend_from_slice(&chunk);
    }
    answer.trailers = body.trailers().await.ok().flatten().unwrap_or_default();
    let block =
        if answer.trailers.is_empty() { answer.headers.clone() } else { answer.trailers.clone() };
    let text = |name: &str| block.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    answer.status = text("grpc-status");
    answer.message = text("grpc-message").unwrap_or_default();
    answer
}

/// A frame of HTTP/2, for what `h2` would write otherwise or not at all.
pub(crate) fn http2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Request headers as literals without a table entry (RFC 7541, 6.2.2).
pub(crate) fn header_block(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}
