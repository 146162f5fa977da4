//! A WebSocket over HTTP/1.1: an ordinary answer or, once accepted, the connection itself.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::header::SEC_WEBSOCKET_KEY;
use http::{HeaderMap, HeaderValue, StatusCode, request, response};
use hyper::upgrade::OnUpgrade;
use router_call::{Caller, Cancelled, Piece};
use router_io::Alarm;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client_stream::{ClientStream, Gauge};
use crate::connection::ConnectionState;
use crate::ends::http1_end::Http1End;
use crate::ends::plain::Transport;
use crate::heads::websocket::switch;

/// Frames that have arrived are joined to pieces of up to this size.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// How long the client may take to close its side once ours is closed. Without the wait, its system
/// might discard data that it has not read. Arbitrary.
const LINGER: Duration = Duration::from_secs(2);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Http1Socket {
    http: Http1End,
    key: HeaderValue,
    phase: Phase,
    gauge: Arc<Gauge>,
    /// Accepted, but not yet written.
    unsent: Bytes,
    /// Waits for the acceptance before it reads on.
    reader: Option<Waker>,
    linger: Option<Alarm>,
    is_shut: bool,
}

#[derive(Debug)]
enum Phase {
    /// Not accepted (yet).
    Http(Option<OnUpgrade>),
    /// hyper is still sending the acceptance.
    Switching(OnUpgrade),
    /// `first` was read by hyper.
    Open {
        stream: Box<ClientStream>,
        first: Bytes,
    },
    Broken,
}

// === impl Http1Socket ===

impl Http1Socket {
    pub(crate) fn new(
        http: Http1End,
        upgrade: OnUpgrade,
        parts: &request::Parts,
        connection: &Rc<ConnectionState>,
    ) -> Self {
        let key = parts.headers.get(SEC_WEBSOCKET_KEY).cloned();
        Self {
            http,
            // Without a key the handshake is refused before it can be accepted.
            key: key.unwrap_or(HeaderValue::from_static("")),
            phase: Phase::Http(Some(upgrade)),
            gauge: Arc::clone(&connection.gauge),
            unsent: Bytes::new(),
            reader: None,
            linger: None,
            is_shut: false,
        }
    }

    /// The connection, once hyper has released it. `Pending` before the acceptance, too.
    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(&mut ClientStream, &mut Bytes), Cancelled>> {
        if let Phase::Switching(upgrade) = &mut self.phase {
            self.phase = match ready!(Pin::new(upgrade).poll(cx)) {
                Ok(upgraded) => match upgraded.downcast::<ClientStream>() {
                    Ok(parts) => Phase::Open { stream: Box::new(parts.io), first: parts.read_buf },
                    Err(_) => Phase::Broken,
                },
                Err(_) => Phase::Broken,
            };
        }
        match &mut self.phase {
            Phase::Open { stream, first } => Poll::Ready(Ok((stream, first))),
            Phase::Broken => Poll::Ready(Err(Cancelled)),
            Phase::Http(_) | Phase::Switching(_) => Poll::Pending,
        }
    }

    /// Ready when everything is written.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        while !self.unsent.is_empty() {
            let unsent = self.unsent.clone();
            let (stream, _) = ready!(self.poll_open(cx))?;
            match ready!(AsyncWrite::poll_write(Pin::new(stream), cx, &unsent)) {
                Ok(written) if written > 0 => self.unsent.advance(written),
                Ok(_) | Err(_) => return Poll::Ready(Err(Cancelled)),
            }
        }
        if let Phase::Open { stream, .. } = &mut self.phase {
            let flushed = ready!(AsyncWrite::poll_flush(Pin::new(&mut **stream), cx));
            return Poll::Ready(flushed.map_err(|_| Cancelled));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards until the client has closed its side, or its time is over.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Alarm::at(Instant::now() + LINGER));
        if linger.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while let Ok((bytes, _)) = ready!(self.poll_read(cx)) {
            if bytes.is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Bytes from the client; empty at its end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Bytes, bool)>> {
        self.gauge.begin_turn();
        let Ok((stream, first)) = ready!(self.poll_open(cx)) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if !first.is_empty() {
            return Poll::Ready(Ok((std::mem::take(first), false)));
        }
        let mut storage = [0; PIECE_BYTES_MAX];
        let mut buffer = ReadBuf::new(&mut storage);
        ready!(AsyncRead::poll_read(Pin::new(stream), cx, &mut buffer))?;
        let bytes = BytesMut::from(buffer.filled()).freeze();
        let is_last = bytes.is_empty();
        Poll::Ready(Ok((bytes, is_last)))
    }
}

impl Transport for Http1Socket {
    /// Its frames follow the acceptance.
    fn is_bodiless(&self) -> bool {
        false
    }

    fn abort(&mut self) {
        self.http.abort();
        self.unsent = Bytes::new();
        self.is_shut = true;
        self.phase = Phase::Broken;
    }

    fn finish_with(&mut self, last: Bytes) -> Result<(), Cancelled> {
        if matches!(self.phase, Phase::Http(_)) {
            self.http.body(last)?;
            return self.http.trailers(HeaderMap::new());
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.unsent = unsent.into_iter().chain(last).collect();
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.phase, Phase::Http(_)) {
            // The upgrade was refused, so no socket needs a close frame.
            return self.http.poll_finish(cx);
        }
        if ready!(self.poll_flush(cx)).is_err() {
            return Poll::Ready(());
        }
        if !self.is_shut {
            let Ok((stream, _)) = ready!(self.poll_open(cx)) else { return Poll::Ready(()) };
            let shut = ready!(AsyncWrite::poll_shutdown(Pin::new(stream), cx));
            self.is_shut = true;
            if shut.is_err() {
                return Poll::Ready(());
            }
        }
        self.poll_linger(cx)
    }
}

impl Caller for Http1Socket {
    fn on_sent(&mut self, _peer: &Arc<str>) {}

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        if matches!(self.phase, Phase::Http(_)) {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let read = ready!(self.poll_read(cx));
        Poll::Ready(read.map(|(bytes, is_last)| Piece { bytes, is_last }).map_err(|_| Cancelled))
    }

    /// Nothing more is read before the last piece was taken, so it has no flow-control window to
    /// return.
    fn accepted(&mut self, _bytes: usize) {}

    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        match self.phase {
            Phase::Http(_) => self.http.poll_cancelled(cx),
            // The messages that it left unread are not wanted: a replica may be long in taking them.
            Phase::Open { ref stream, .. } if stream.is_reset() => Poll::Ready(Cancelled),
            // Otherwise a client that is gone is noticed when reading or writing.
            Phase::Switching(_) | Phase::Open { .. } => match self.poll_flush(cx) {
                Poll::Ready(Err(Cancelled)) => Poll::Ready(Cancelled),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            },
            Phase::Broken => Poll::Ready(Cancelled),
        }
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        let Phase::Http(upgrade) = &mut self.phase else { return Err(Cancelled) };
        if head.status != StatusCode::OK {
            return self.http.head(head, is_last);
        }
        let upgrade = upgrade.take().ok_or(Cancelled)?;
        self.phase = Phase::Switching(upgrade);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        self.http.head(switch(head, &self.key), true)
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Cancelled>> {
        if matches!(self.phase, Phase::Http(_)) {
            return self.http.poll_room(wanted, cx);
        }
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(wanted))
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        if matches!(self.phase, Phase::Http(_)) {
            return self.http.body(bytes);
        }
        self.unsent = bytes;
        Ok(())
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        if matches!(self.phase, Phase::Http(_)) {
            return self.http.trailers(trailers);
        }
        // `poll_finish` writes the rest and shuts the connection down.
        Ok(())
    }
}
