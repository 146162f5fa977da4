//! A raw gRPC client.

use super::{PATH, within};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;

pub struct Client {
    pub send: SendRequest<Bytes>,
    pub connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// A started call.
pub struct Call {
    pub response: h2::client::ResponseFuture,
    pub body: SendStream<Bytes>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub http: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

impl Client {
    pub async fn connect(address: &str) -> Self {
        let mut builder = h2::client::Builder::new();
        // Tests leave many small answers unread for a while.
        builder.initial_window_size(1 << 20).data_frame_budget(1 << 24);
        Self::connect_with(address, &builder).await
    }

    pub async fn connect_with(address: &str, builder: &h2::client::Builder) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        Self { send, connection: tokio::spawn(connection) }
    }

    pub fn start(&self, request: Request<()>, is_whole: bool) -> Call {
        let (response, body) = self.send.clone().send_request(request, is_whole).unwrap();
        Call { response, body }
    }

    /// Starts a call whose whole request is `data`.
    pub fn unary(&self, request: Request<()>, data: impl Into<Bytes>) -> Call {
        let mut call = self.start(request, false);
        call.body.send_data(data.into(), true).unwrap();
        call
    }

    /// A unary call from start to end.
    pub async fn call(&self, data: &'static str) -> Reply {
        self.unary(request(PATH), data).reply().await
    }
}

impl Call {
    pub async fn reply(self) -> Reply {
        within("the answer", self.try_reply()).await.unwrap()
    }

    pub async fn try_reply(self) -> Result<Reply, h2::Error> {
        // The request's half must live on: dropping it would reset an unfinished call.
        let _request = self.body;
        let (head, mut body) = self.response.await?.into_parts();
        let data = read_body(&mut body).await?;
        let trailers = body.trailers().await?.unwrap_or_default();
        Ok(Reply { http: head.status, headers: head.headers, body: data, trailers })
    }
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        let value = self.trailers.get(name).or_else(|| self.headers.get(name));
        value.map(|value| value.to_str().unwrap())
    }

    /// `grpc-status`, as a number.
    pub fn status(&self) -> u32 {
        self.field("grpc-status").expect("a status").parse().unwrap()
    }

    pub fn message(&self) -> &str {
        self.field("grpc-message").unwrap_or_default()
    }

    pub fn answered_by(&self) -> Option<&str> {
        self.field("pyserve-answered-by")
    }
}

pub fn request(path: &str) -> Request<()> {
    request_with(path, &[])
}

pub fn request_with(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder()
        .method("POST")
        .uri(format!("http://test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

pub async fn read_body(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut all = BytesMut::new();
    while let Some(piece) = within("a piece of a body", body.data()).await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}
