//! Plain HTTP clients for the tests of the front, and replicas that answer them.
#![allow(dead_code, unreachable_pub)] // each test file uses its own part

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use router_net::dispatch::DeploymentRoute;
use router_net::ingress::{IngressConfig, IngressLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Client, Front, Incoming, Replica, TOKEN, deployment, table, within};

/// A deployment that takes plain HTTP below `prefix`.
pub fn http_deployment(replica: &Replica, prefix: &str) -> DeploymentRoute {
    DeploymentRoute {
        services: Vec::new(),
        http_prefixes: vec![prefix.to_owned()],
        ..deployment(vec![replica.route(100)])
    }
}

/// A replica that takes plain HTTP below `/app`, and the front before it.
pub async fn one_app() -> (Replica, Front) {
    one_app_with(IngressConfig::default()).await
}

pub async fn one_app_with(config: IngressConfig) -> (Replica, Front) {
    let replica = Replica::start("r-1").await;
    let table = table(TOKEN);
    table.apply(vec![http_deployment(&replica, "/app")]);
    (replica, Front::configured(table, config))
}

pub async fn one_app_limited(limits: IngressLimits) -> (Replica, Front) {
    one_app_with(IngressConfig { limits, ..IngressConfig::default() }).await
}

/// The preface of HTTP/2 and empty settings.
pub const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A client that has been answered, and is idle.
pub async fn idle_client(front: &Front) -> Client {
    let client = front.client().await;
    ask(&client).await;
    client
}

pub async fn ask(client: &Client) {
    let call = client.start(http_request("GET", "/-/healthz", &[]), true);
    assert_eq!(200, call.reply().await.http);
}

/// A connection to which a test writes raw bytes.
pub struct Http1 {
    pub stream: TcpStream,
    unread: BytesMut,
}

/// An answer as it was sent.
#[derive(Debug)]
pub struct Http1Reply {
    pub status: u16,
    /// Names in lower case; several values of a name joined by ", ".
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Http1 {
    pub async fn connect(front: &Front) -> Self {
        let stream = TcpStream::connect(&front.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: BytesMut::new() }
    }

    pub async fn send(&mut self, text: impl AsRef<[u8]>) {
        within("room for a request", self.stream.write_all(text.as_ref())).await.unwrap();
    }

    /// Sends a request without a body.
    pub async fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
    }

    /// Whether anything has arrived.
    async fn fill(&mut self) -> bool {
        let read = within("bytes of an answer", self.stream.read_buf(&mut self.unread)).await;
        read.is_ok_and(|length| length > 0)
    }

    /// The next `count` bytes.
    pub async fn bytes(&mut self, count: usize) -> Bytes {
        while self.unread.len() < count {
            assert!(self.fill().await, "the connection was closed in the middle of an answer");
        }
        self.unread.split_to(count).freeze()
    }

    pub async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(2).position(|window| window == b"\r\n") {
                let line = self.unread.split_to(end + 2);
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            assert!(self.fill().await, "the connection was closed in the middle of a line");
        }
    }

    /// The status and the headers of an answer.
    pub async fn head(&mut self) -> (u16, BTreeMap<String, String>) {
        let first = self.line().await;
        assert!(first.starts_with("HTTP/1."), "{first:?}");
        let status = first[9..12].parse().unwrap();
        let mut headers = BTreeMap::<String, String>::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            let entry = headers.entry(name.to_ascii_lowercase());
            entry.and_modify(|all| *all = format!("{all}, {value}")).or_insert(value.to_owned());
        }
        (status, headers)
    }

    /// One whole answer to a request that was not HEAD.
    pub async fn reply(&mut self) -> Http1Reply {
        let (status, headers) = self.head().await;
        let body = match (headers.get("content-length"), headers.get("transfer-encoding")) {
            (Some(length), _) => self.bytes(length.parse().unwrap()).await,
            (None, Some(_)) => self.chunks().await,
            (None, None) if matches!(status, 101 | 204 | 304) => Bytes::new(),
            (None, None) => self.rest().await,
        };
        Http1Reply { status, headers, body }
    }

    /// The next chunk of an answer; empty at its end.
    pub async fn chunk(&mut self) -> Bytes {
        let length = usize::from_str_radix(&self.line().await, 16).unwrap();
        let chunk = self.bytes(length).await;
        assert_eq!("", self.line().await);
        chunk
    }

    async fn chunks(&mut self) -> Bytes {
        let mut all = BytesMut::new();
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                return all.freeze();
            }
            all.extend_from_slice(&chunk);
        }
    }

    /// Everything up to the end of the connection.
    pub async fn rest(&mut self) -> Bytes {
        while self.fill().await {}
        self.unread.split().freeze()
    }

    /// Sends a request without a body and gives the whole answer.
    pub async fn fetch(&mut self, path: &str) -> Http1Reply {
        self.get(path).await;
        self.reply().await
    }

    /// Waits until the front has closed the connection, without another byte.
    pub async fn closed(&mut self) {
        assert_eq!("", self.rest().await);
    }
}

impl Http1Reply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Answers a plain HTTP request with 200 and this body.
pub fn answer(mut incoming: Incoming, body: impl Into<Bytes>) {
    let body = body.into();
    let response = Response::builder().header("content-type", "text/plain").body(()).unwrap();
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    stream.send_data(body, true).unwrap();
}

/// Answers a plain HTTP request with a head only.
pub fn answer_head(mut incoming: Incoming, status: u16, headers: &[(&str, &str)]) {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    incoming.respond.send_response(response.body(()).unwrap(), true).unwrap();
}

/// A plain request over HTTP/2.
pub fn http_request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("http://test{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}
