//! The copy of a call that goes to a mirror: it is sent once, and its answer is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, response};
use router_call::{Caller, Cancelled, Door, Piece};
use router_dispatch::{
    CallOptions, Deployment, Exchange, Head, Limits, ReplayBuffer, Stop, Upload,
};
use router_protocol::grpc::Status;

/// Tells the mirror that its answer is not awaited.
const MIRROR: HeaderName = HeaderName::from_static("x-pyserve-mirror");
/// Copies that one deployment may have at once; further calls are not copied. Arbitrary: unwanted
/// answers must not fill the memory of the ingress.
const IN_FLIGHT_MAX: u32 = 256;
/// The timeout of calls without a deadline.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Sends a copy of a call to `mirror`, unless that has too many already.
pub(super) fn start(
    mirror: Arc<Deployment>,
    head: &Head,
    body: Vec<Bytes>,
    deadline: Option<Instant>,
) {
    let Some(place) = Place::take(&mirror) else { return };
    let mut parts = head.parts.clone();
    parts.headers.insert(MIRROR, HeaderValue::from_static("1"));
    let until = Instant::now() + TIMEOUT_MAX;
    let deadline = deadline.map_or(until, |deadline| deadline.min(until));
    tokio::task::spawn_local(async move {
        let _place = place;
        let replay = ReplayBuffer::new(Arc::clone(&mirror.entry.budget), mirror.request_bytes_max);
        let upload = Upload::new(replay, body.is_empty());
        let ranked = mirror.rank(&parts).await;
        let options = CallOptions { priority: i8::MIN, ..CallOptions::default() };
        let head = Head::new(parts, Door::Mirror, Instant::now(), options);
        let head = head.expect("invariant: the call itself was admitted with these headers");
        let head = Head { ranked, ..head };
        let limits = Limits::new(Some(deadline), &Forever);
        let mut mirrored = MirroredCall { body: body.into_iter().peekable() };
        let mut exchange = Exchange::new(&mut mirrored, head, upload, limits);
        // The outcome of a mirrored call is reported to no client.
        let _dropped = exchange.through(&mirror.entry).await;
    });
}

/// A count that is given back when the copy has ended.
#[derive(Debug)]
struct Place(Arc<AtomicU32>);

impl Place {
    fn take(mirror: &Deployment) -> Option<Self> {
        let count = Arc::clone(&mirror.mirrored);
        let place = (count.fetch_add(1, Ordering::Relaxed) < IN_FLIGHT_MAX).then_some(());
        let taken = Self(count);
        place.map(|()| taken)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The copy continues when its original's connection is gone.
#[derive(Debug)]
struct Forever;

impl Stop for Forever {
    fn poll_stop(&self, _cx: &mut Context<'_>) -> Poll<Status> {
        Poll::Pending
    }
}

/// A client end that has a whole body and accepts everything.
#[derive(Debug)]
struct MirroredCall {
    body: std::iter::Peekable<std::vec::IntoIter<Bytes>>,
}

impl Caller for MirroredCall {
    fn on_sent(&mut self, _peer: &Arc<str>) {}

    fn poll_piece(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        let bytes = self.body.next().unwrap_or_default();
        Poll::Ready(Ok(Piece { bytes, is_last: self.body.peek().is_none() }))
    }

    fn accepted(&mut self, _bytes: usize) {}

    fn poll_cancelled(&mut self, _cx: &mut Context<'_>) -> Poll<Cancelled> {
        Poll::Pending
    }

    fn head(&mut self, _head: response::Parts, _is_last: bool) -> Result<(), Cancelled> {
        Ok(())
    }

    fn poll_room(
        &mut self,
        wanted: usize,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Cancelled>> {
        Poll::Ready(Ok(wanted))
    }

    fn body(&mut self, _bytes: Bytes) -> Result<(), Cancelled> {
        Ok(())
    }

    fn trailers(&mut self, _trailers: HeaderMap) -> Result<(), Cancelled> {
        Ok(())
    }
}
