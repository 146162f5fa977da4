//! Opens connections: TCP or TLS below, HTTP/2 or HTTP/1.1 above.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::call::{Ended, call};
use crate::http1;
use crate::options::{CallPlan, Plan, Protocol};

/// Bounds the wait for a server that accepts and says nothing; generous for any loopback.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What grpcio's clients advertise as well: it holds the largest benchmarked message (1 MiB)
/// several times, so that the generator's windows never hold a server back.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Streams opened before the server's SETTINGS have come.
const STREAMS_AT_FIRST: usize = 100;

/// Connecting failed.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("cannot connect to {target}: {source}; is the server up?")]
    Connect { target: String, source: io::Error },
    #[error("no http/2 from {target}: {source}")]
    Handshake { target: String, source: h2::Error },
    #[error("no http/1.1 from {target}: {source}")]
    Http1 { target: String, source: hyper::Error },
    #[error("--tls-ca: {0}")]
    Roots(String),
}

/// Opens the connections of one plan.
pub struct Connector<'a> {
    plan: &'a Plan,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Connector<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connector")
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// One connection, as calls use it; clones share it.
#[derive(Clone, Debug)]
pub enum Client {
    Grpc(SendRequest<Bytes>),
    Http1(http1::Connection),
}

// === impl Connector ===

impl<'a> Connector<'a> {
    pub fn new(plan: &'a Plan) -> Result<Self, ConnectError> {
        let tls = plan.tls_ca.as_ref().map(|path| {
            let fail = |error: &dyn std::fmt::Display| ConnectError::Roots(error.to_string());
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| fail(&error))? {
                let certificate = certificate.map_err(|error| fail(&error))?;
                roots.add(certificate).map_err(|error| fail(&error))?;
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| fail(&error))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = vec![match plan.call.protocol {
                Protocol::Grpc => b"h2".to_vec(),
                Protocol::Http1 => b"http/1.1".to_vec(),
            }];
            Ok(TlsConnector::from(Arc::new(config)))
        });
        Ok(Self { plan, tls: tls.transpose()? })
    }

    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let target = &self.plan.target;
        let fail = |source| ConnectError::Connect { target: target.clone(), source };
        let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(target))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(fail)?;
        socket.set_nodelay(true).map_err(fail)?;
        match &self.tls {
            None => self.greet(socket).await,
            Some(tls) => {
                let host = target.rsplit_once(':').map_or(target.as_str(), |(host, _)| host);
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|error| ConnectError::Roots(error.to_string()))?;
                self.greet(tls.connect(name, socket).await.map_err(fail)?).await
            }
        }
    }

    async fn greet<S>(&self, stream: S) -> Result<Client, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let target = self.plan.target.clone();
        if self.plan.call.protocol == Protocol::Http1 {
            let connection = http1::Connection::open(stream).await;
            return connection
                .map(Client::Http1)
                .map_err(|source| ConnectError::Http1 { target, source });
        }
        let handshake = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_frame_size(self.plan.max_frame_bytes)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .enable_push(false)
            .handshake(stream);
        let (sender, connection) =
            handshake.await.map_err(|source| ConnectError::Handshake { target, source })?;
        // Its end reaches the calls that use it, as their own errors.
        spawn_local(async move { connection.await.ok() });
        Ok(Client::Grpc(sender))
    }
}

// === impl Client ===

impl Client {
    /// Make one call and check its answer.
    pub async fn call(&mut self, plan: &CallPlan) -> Ended {
        match self {
            Client::Grpc(sender) => call(sender, plan).await,
            Client::Http1(connection) => connection.call(plan).await,
        }
    }
}
