//! One request over a kept HTTP/1.1 connection: send, receive, check.

use std::rc::Rc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use crate::call::Ended;
use crate::options::CallPlan;
use crate::sampling::Outcome;

/// A connection; a call that finds it busy waits.
#[derive(Clone, Debug)]
pub struct Connection {
    sender: Rc<Mutex<SendRequest<Full<Bytes>>>>,
}

// === impl Connection ===

impl Connection {
    pub async fn open<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Its end reaches the calls that use it, as their own errors.
        spawn_local(async move { connection.await.ok() });
        Ok(Self { sender: Rc::new(Mutex::new(sender)) })
    }

    pub async fn call(&self, plan: &CallPlan) -> Ended {
        let mut sender = self.sender.lock().await;
        let result = converse(&mut sender, plan).await;
        let (received_bytes, error, connection_lost) = match result {
            Err(_) => (0, Some("transport: connection lost".to_owned()), true),
            Ok((status, body)) => {
                let is_expected = plan.expected_body.as_ref().is_none_or(|wanted| *wanted == body);
                let error = if status != StatusCode::OK {
                    Some(format!("bad answer: http {}", status.as_u16()))
                } else if is_expected {
                    None
                } else {
                    Some("bad answer: other body".to_owned())
                };
                (body.len() as u64, error, false)
            }
        };
        let outcome = Outcome { messages: 1, received_bytes, error };
        Ended { outcome, connection_lost }
    }
}

async fn converse(
    sender: &mut SendRequest<Full<Bytes>>,
    plan: &CallPlan,
) -> Result<(StatusCode, Bytes), hyper::Error> {
    sender.ready().await?;
    let path = plan.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Full::new(plan.body.clone().unwrap_or_default()));
    *request.method_mut() = if plan.body.is_some() { Method::POST } else { Method::GET };
    *request.uri_mut() = path.parse().expect("invariant: it was a part of a URI");
    *request.headers_mut() = plan.headers.clone();
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok((head.status, body.collect().await?.to_bytes()))
}
