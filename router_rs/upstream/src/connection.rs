//! One client connection and the task that drives it. It lives on one I/O thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::SendRequest;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Version, request};
use router_arena::Arena;
use router_protocol::grpc::CONTENT_TYPE_GRPC;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::answer::Answering;
use super::drive::Drive;
use super::http2;
use super::keepalive::KeepaliveConfig;
use super::request_body::RequestBody;
pub use super::watch::OnSilence;
use super::watch::{Act, Watch};
use super::wire::{Wire, WireDriver};

/// A connection that takes calls until it closes.
#[derive(Debug)]
pub struct Connection {
    transport: Transport,
    state: Rc<State>,
    /// The peer has proven nothing, but we have: it honours mesh metadata and we its load trailers.
    trusted: Cell<bool>,
    /// As grpc writes it, for example `ipv4:127.0.0.1:1234`.
    peer: Arc<str>,
}

#[derive(Debug)]
enum Transport {
    /// `None` once no new call may start.
    Http2(RefCell<Option<SendRequest<Bytes>>>),
    /// The connection is between members of the mesh.
    Wire(Rc<Wire>),
}

#[derive(Debug, Default)]
struct State {
    in_flight: Cell<u32>,
    /// Why the connection ended; `None` while it lives.
    ended: watch::Sender<Option<String>>,
}

/// The part of a body that is available when its call starts.
#[derive(Clone, Copy, Debug)]
pub enum Sends<'a> {
    Nothing,
    /// All of it, not empty; no more than [`router_wire::is_small`] says.
    All(&'a [Bytes]),
    /// It follows.
    Later,
}

/// A started request. The connection counts it until this is dropped.
#[derive(Debug)]
pub struct Started {
    pub response: Answering,
    /// Where the body goes; `None`: all of it went with the head.
    pub body: Option<RequestBody>,
    pub permit: Permit,
}

/// Counts one call of a connection.
#[derive(Debug)]
pub struct Permit {
    connection: Rc<Connection>,
}

// === impl Permit ===

impl Permit {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let in_flight = &self.connection.state.in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

// === impl Connection ===

impl Drop for Connection {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Connection {
    /// Starts HTTP/2 on `stream` and spawns the task that drives it on this thread.
    ///
    /// `on_silence` is called when a PING goes unanswered for a while, some time before the
    /// connection is given up.
    ///
    /// # Errors
    /// A violation by the peer in the preface or the settings.
    pub async fn open<S>(
        stream: S,
        peer: String,
        config: KeepaliveConfig,
        on_silence: Option<OnSilence>,
    ) -> Result<Rc<Self>, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (sender, driver) = http2::open(stream).await?;
        let transport = Transport::Http2(RefCell::new(Some(sender)));
        Ok(Self::drive(transport, peer, driver, Watch::new(config, on_silence)))
    }

    /// Like `open`, for a stream on which the greeting of the wire was exchanged.
    pub(super) fn over_wire<S>(
        (stream, arena): (S, Option<Arena>),
        peer: String,
        config: KeepaliveConfig,
        on_silence: Option<OnSilence>,
    ) -> Rc<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let wire = Wire::new(arena);
        let driver = WireDriver::new(Rc::clone(&wire), stream);
        Self::drive(Transport::Wire(wire), peer, driver, Watch::new(config, on_silence))
    }

    fn drive(
        transport: Transport,
        peer: String,
        driver: impl Drive + 'static,
        watch: Watch,
    ) -> Rc<Self> {
        let (state, trusted) = (Rc::new(State::default()), Cell::new(false));
        let opened = Rc::new(Self { transport, state, trusted, peer: peer.into() });
        let state = Rc::clone(&opened.state);
        tokio::task::spawn_local(drive(driver, Rc::downgrade(&opened), state, watch));
        opened
    }

    /// Starts a request.
    ///
    /// # Errors
    /// The connection takes no more requests; this one was not sent.
    pub fn start(
        self: &Rc<Self>,
        head: &request::Parts,
        sends: Sends<'_>,
    ) -> Result<Started, String> {
        let (response, body) = self.start_aside(head, sends)?;
        self.state.in_flight.set(self.state.in_flight.get() + 1);
        let permit = Permit { connection: Rc::clone(self) };
        Ok(Started { response, body, permit })
    }

    /// Starts a request that is not a call, and whose body may go on. It is not counted, so it
    /// neither keeps the connection from being idle nor makes it send PINGs.
    ///
    /// # Errors
    /// Like [`Connection::start`].
    pub fn start_aside(
        &self,
        head: &request::Parts,
        sends: Sends<'_>,
    ) -> Result<(Answering, Option<RequestBody>), String> {
        let started = match &self.transport {
            Transport::Http2(slot) => self.start_stream(slot, head, sends)?,
            Transport::Wire(wire) => {
                let body = match sends {
                    Sends::Nothing => Some(&[][..]),
                    Sends::All(body) => Some(body),
                    Sends::Later => None,
                };
                let started = wire.call(head, body);
                started.map(|(answer, upload)| {
                    (Answering::Wire(answer), upload.map(RequestBody::Wire))
                })
            }
        };
        let retired = || "the connection takes no more calls".to_owned();
        started.ok_or_else(|| self.end_reason().unwrap_or_else(retired))
    }

    /// `None`: no more calls.
    fn start_stream(
        &self,
        slot: &RefCell<Option<SendRequest<Bytes>>>,
        head: &request::Parts,
        sends: Sends<'_>,
    ) -> Result<Option<(Answering, Option<RequestBody>)>, String> {
        // The clone starts without memory of earlier streams that wait for the peer's limit.
        let Some(mut sender) = slot.borrow().clone() else { return Ok(None) };
        let request = Request::from_parts(head.clone(), ());
        let is_bodiless = matches!(sends, Sends::Nothing);
        let started = sender.send_request(request, is_bodiless).map_err(|error| {
            self.retire();
            error.to_string()
        });
        let (response, mut stream) = started?;
        let body = match sends {
            Sends::Nothing => None,
            Sends::Later => Some(RequestBody::Http2(stream)),
            Sends::All(pieces) => {
                for (before, piece) in pieces.iter().enumerate() {
                    // An error means that the stream is over: its answer has the reason.
                    drop(stream.send_data(piece.clone(), before + 1 == pieces.len()));
                }
                None
            }
        };
        Ok(Some((Answering::Http2(response), body)))
    }

    /// Accepts no more calls; those in flight continue, then the connection closes.
    pub fn retire(&self) {
        match &self.transport {
            Transport::Http2(sender) => drop(sender.borrow_mut().take()),
            Transport::Wire(wire) => wire.retire(),
        }
    }

    /// Whether a new call may start here.
    pub fn is_open(&self) -> bool {
        match &self.transport {
            Transport::Http2(sender) => sender.borrow().is_some(),
            Transport::Wire(wire) => wire.takes_calls(),
        }
    }

    pub fn in_flight(&self) -> u32 {
        self.state.in_flight.get()
    }

    /// How many streams the peer allows at once.
    pub fn streams_max(&self) -> usize {
        match &self.transport {
            Transport::Http2(sender) => {
                sender.borrow().as_ref().map_or(0, SendRequest::current_max_send_streams)
            }
            Transport::Wire(_) => router_wire::CALLS_MAX as usize,
        }
    }

    /// Whether a replica can say, before its answer, that it has begun to work on a call.
    pub fn tells_starts(&self) -> bool {
        matches!(self.transport, Transport::Wire(_))
    }

    pub fn is_trusted(&self) -> bool {
        self.trusted.get()
    }

    pub fn trust(&self) {
        self.trusted.set(true);
    }

    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Ends when the connection has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + 'static {
        let mut ended = self.state.ended.subscribe();
        // An error means that the connection's task is gone, which is an end too.
        async move { drop(ended.wait_for(Option::is_some).await) }
    }

    /// Why the connection ended; `None` while it lives.
    pub fn end_reason(&self) -> Option<String> {
        self.state.ended.borrow().clone()
    }
}

/// Drives the connection until it ends, and marks it ended.
async fn drive(
    mut driver: impl Drive,
    connection: Weak<Connection>,
    state: Rc<State>,
    mut watch: Watch,
) {
    let why = poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = driver.poll_end(cx) {
                return Poll::Ready(end);
            }
            match watch.poll(driver.signs_of_life(), state.in_flight.get(), cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::Die(why)) => return Poll::Ready(why.to_owned()),
                Poll::Ready(Act::Ping) => driver.ping(cx),
                // Without senders and streams, the connection announces its end and closes.
                Poll::Ready(Act::Retire) => {
                    connection.upgrade().iter().for_each(|connection| connection.retire());
                }
            }
        }
    })
    .await;
    if let Some(connection) = connection.upgrade() {
        connection.retire();
    }
    driver.end(&why);
    state.ended.send_replace(Some(why));
}

/// A request between two processes of the mesh has only a path: a host is not needed.
pub(super) fn post(path: &'static str) -> request::Builder {
    let request = Request::builder().method(Method::POST).uri(path).version(Version::HTTP_11);
    request.header(CONTENT_TYPE, CONTENT_TYPE_GRPC)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, duplex};
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::time::{sleep, timeout};

    use super::*;

    const CALLS: usize = 64;
    const BODY_BYTES: usize = 16 * 1024;
    /// So the peer accepts all of the bodies in ten seconds, several times the limit for silence.
    const READ_INTERVAL: Duration = Duration::from_millis(100);
    const READ_BYTES: usize = CALLS * BODY_BYTES / 100;

    /// The peer answers a PING only after it has read everything before it.
    #[test]
    fn a_peer_that_reads_slowly_is_there_and_one_that_reads_nothing_is_not() {
        let mut builder = Builder::new_current_thread();
        let builder = builder.enable_time().start_paused(true);
        let runtime = builder.build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (stream, mut peer) = duplex(READ_BYTES);
            let opened =
                Connection::over_wire((stream, None), "p".into(), KeepaliveConfig::MESH, None);
            let head = post("/a").body(()).unwrap().into_parts().0;
            let body = [Bytes::from(vec![0; BODY_BYTES])];
            let begin = || opened.start(&head, Sends::All(&body)).expect("an open connection");
            let _calls: Vec<Started> = (0..CALLS).map(|_| begin()).collect();
            let mut read = vec![0; READ_BYTES];
            for _ in 0..CALLS * BODY_BYTES / READ_BYTES {
                sleep(READ_INTERVAL).await;
                peer.read_exact(&mut read).await.unwrap();
                assert_eq!(None, opened.end_reason());
            }
            let gone = timeout(Duration::from_secs(3), opened.ended()).await;
            assert!(gone.is_ok(), "it reads nothing more");
        });
    }
}
