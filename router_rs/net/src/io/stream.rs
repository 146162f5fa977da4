//! One byte stream over TCP, TLS or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::unix::QuietUnixStream;

/// Who is at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl Peer {
    /// As grpc writes it: `ipv4:127.0.0.1:1`, `ipv6:[::1]:1`, `unix:`.
    pub fn uri(&self) -> String {
        match self {
            Peer::Tcp(address @ SocketAddr::V4(_)) => format!("ipv4:{address}"),
            Peer::Tcp(address @ SocketAddr::V6(_)) => format!("ipv6:{address}"),
            Peer::Unix => "unix:".to_owned(),
        }
    }
}

/// What a TLS peer proved about itself: the DER certificates it presented, leaf first.
pub type PeerCertificates = Arc<[rustls_pki_types::CertificateDer<'static>]>;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(QuietUnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub fn peer_certificates(&self) -> Option<PeerCertificates> {
        let Stream::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        session.peer_certificates().map(Arc::from)
    }

    /// The protocol that both sides agreed on in the TLS handshake (ALPN): `h2`, `http/1.1`.
    /// `None` without TLS, and for a peer that named none.
    pub fn negotiated(&self) -> Option<&[u8]> {
        let Stream::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        session.alpn_protocol()
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

macro_rules! on_each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_each!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
