//! One byte stream over TCP, TLS or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustls::crypto::SupportedKxGroup;
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::counted_tcp::CountedTcp;
use super::unix::QuietUnixStream;

/// The address of a peer.
#[derive(Clone, Debug)]
pub enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl Peer {
    /// In grpc's notation: `ipv4:127.0.0.1:1`, `ipv6:[::1]:1`, `unix:`.
    pub fn uri(&self) -> String {
        match self {
            Peer::Tcp(address @ SocketAddr::V4(_)) => format!("ipv4:{address}"),
            Peer::Tcp(address @ SocketAddr::V6(_)) => format!("ipv6:{address}"),
            Peer::Unix => "unix:".to_owned(),
        }
    }
}

/// The peer of a connection.
#[derive(Clone, Debug)]
pub struct Remote {
    pub peer: Peer,
    pub tls: Option<Arc<TlsSession>>,
}

impl Remote {
    pub fn of(peer: Peer, stream: &Stream) -> Self {
        Self { peer, tls: stream.tls_session().map(Arc::new) }
    }
}

/// What a TLS peer proved about itself: the DER certificates it presented, leaf first.
pub type PeerCertificates = Arc<[rustls_pki_types::CertificateDer<'static>]>;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(QuietUnixStream),
    Tls(Box<TlsStream<CountedTcp>>),
}

/// The result of a TLS handshake.
#[derive(Debug)]
pub struct TlsSession {
    pub certificates: Option<PeerCertificates>,
    /// The name that the client asked for (SNI); `None` at a client.
    pub server_name: Option<String>,
    pub version: Option<ProtocolVersion>,
    pub key_exchange_group: Option<NamedGroup>,
    pub is_resumed: bool,
}

impl Stream {
    /// `None` without TLS.
    pub fn tls_session(&self) -> Option<TlsSession> {
        let Stream::Tls(stream) = self else { return None };
        let server_name = match &**stream {
            TlsStream::Server(server) => server.get_ref().1.server_name().map(str::to_owned),
            TlsStream::Client(_) => None,
        };
        let (_, session) = stream.get_ref();
        Some(TlsSession {
            certificates: session.peer_certificates().map(Arc::from),
            server_name,
            version: session.protocol_version(),
            key_exchange_group: session.negotiated_key_exchange_group().map(SupportedKxGroup::name),
            is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    pub fn peer_certificates(&self) -> Option<PeerCertificates> {
        let Stream::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        session.peer_certificates().map(Arc::from)
    }

    /// The protocol that both sides agreed on in the TLS handshake (ALPN): `h2`, `http/1.1`. `None`
    /// without TLS, and for a peer that offered none.
    pub fn negotiated(&self) -> Option<&[u8]> {
        let Stream::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        session.alpn_protocol()
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Whether the peer has closed its side, however much of its data is still unread. Not known
    /// for a Unix stream.
    pub fn has_ended(&self) -> bool {
        self.tcp().is_some_and(has_ended)
    }

    /// Whether the connection was reset, however much of the peer's data is still unread. Not known
    /// for a Unix stream, nor once this side is shut down.
    pub fn is_reset(&self) -> bool {
        let readiness = |stream| readiness(stream, Interest::WRITABLE);
        self.tcp().and_then(readiness).is_some_and(Ready::is_write_closed)
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Tls(stream) => Some(stream.get_ref().0.get_ref()),
            Stream::Unix(_) => None,
        }
    }
}

/// A stream that may be a Unix socket, over which descriptors can be sent.
pub trait MayBeUnix {
    /// `None` for other streams.
    fn as_unix(&mut self) -> Option<&mut QuietUnixStream> {
        None
    }
}

impl MayBeUnix for Stream {
    fn as_unix(&mut self) -> Option<&mut QuietUnixStream> {
        if let Stream::Unix(stream) = self { Some(stream) } else { None }
    }
}

/// In memory.
impl MayBeUnix for tokio::io::DuplexStream {}

/// Like `Stream::has_ended`.
pub fn has_ended(stream: &TcpStream) -> bool {
    readiness(stream, Interest::READABLE).is_some_and(Ready::is_read_closed)
}

/// The readiness that the last turn of the poller has found.
fn readiness(stream: &TcpStream, interest: Interest) -> Option<Ready> {
    let readiness = pin!(stream.ready(interest));
    match readiness.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready.ok(),
        Poll::Pending => None,
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_end_is_seen_behind_what_is_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).await.expect("listening");
        let stream = Stream::Tcp(listener.accept().await.expect("a client").0);
        client.write_all(b"unread").await.expect("room");
        let Stream::Tcp(socket) = &stream else { unreachable!("made a line ago") };
        socket.readable().await.expect("something has come");
        assert!(!stream.has_ended());
        drop(client);
        while !stream.has_ended() {
            tokio::task::yield_now().await;
        }
        assert!(!stream.is_reset(), "it may still be written to");
    }

    #[tokio::test]
    async fn a_reset_is_seen_behind_what_is_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).await.expect("listening");
        let stream = Stream::Tcp(listener.accept().await.expect("a client").0);
        client.write_all(b"unread").await.expect("room");
        let Stream::Tcp(socket) = &stream else { unreachable!("made a line ago") };
        socket.readable().await.expect("something has come");
        assert!(!stream.is_reset());
        client.set_zero_linger().expect("an open socket");
        drop(client);
        while !stream.is_reset() {
            tokio::task::yield_now().await;
        }
    }
}
