//! State that a channel and its calls share, and how calls notice its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use http::uri::{Authority, Scheme};
use parking_lot::Mutex;
use router_dispatch::Stop;
use router_dispatch::{CallOptions, ReplayBudget, RoutingTable};
use router_io::tls::ClientTls;
use router_io::{IoThread, IoThreads};
use router_protocol::grpc::size_limit::{CHANNEL_RECEIVES, CHANNEL_SENDS};
use router_protocol::grpc::{Code, Encoding, Encodings, SizeLimit, Status};
use router_upstream::target::Target;
use slab::Slab;

use super::connectivity::{ReconnectBackoff, Tracker};
use crate::server::Keepalive;

/// A user's settings for all calls of a channel.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    pub authority: Option<String>,
    pub user_agent: String,
    pub receive_bytes_max: usize,
    pub send_bytes_max: usize,
    pub default_encoding: Encoding,
    pub encodings: Encodings,
    /// Only for addresses.
    pub tls: Option<Arc<ClientTls>>,
    /// Only for addresses: the mesh has its own rules.
    pub keepalive: Option<Keepalive>,
    pub reconnect: ReconnectBackoff,
}

impl ChannelConfig {
    pub(super) fn receive_limit(&self) -> SizeLimit {
        SizeLimit { bytes_max: self.receive_bytes_max, option: CHANNEL_RECEIVES }
    }

    pub(super) fn send_limit(&self) -> SizeLimit {
        SizeLimit { bytes_max: self.send_bytes_max, option: CHANNEL_SENDS }
    }
}

#[derive(Debug)]
pub(super) struct ChannelShared {
    pub config: ChannelConfig,
    pub destination: Destination,
    pub scheme: Scheme,
    pub authority: Authority,
    pub tracker: Tracker,
    /// For calls that the server reports as not processed.
    pub budget: Arc<ReplayBudget>,
    /// The caller, if a call does not name one.
    pub caller: u64,
    /// All calls of a channel run on one thread and share its connections.
    pub thread: IoThread,
    /// The thread lives at least as long as its channels.
    pub _threads: Arc<IoThreads>,
    pub is_closed: AtomicBool,
    /// The tasks of calls that wait for something.
    pub waiting: Mutex<Slab<Waker>>,
}

#[derive(Debug)]
pub(super) enum Destination {
    Address(Arc<Target>),
    Deployment { table: Arc<RoutingTable>, application: String, deployment: String },
}

impl ChannelShared {
    /// `options`, with a caller filled in.
    pub(super) fn options(&self, options: CallOptions) -> CallOptions {
        match options.caller {
            0 => CallOptions { caller: self.caller, ..options },
            _ => options,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// The status with which the calls of a closed channel end.
pub(super) fn closed() -> Status {
    Status::new(Code::Cancelled, "the channel was closed")
}

/// Notifies one call of the end of its channel.
#[derive(Debug)]
pub(super) struct CloseListener {
    channel: Arc<ChannelShared>,
    /// Our place among the waiting tasks. It is taken when the call waits for the first time.
    place: Mutex<Option<usize>>,
}

impl CloseListener {
    pub(super) fn new(channel: &Arc<ChannelShared>) -> Self {
        Self { channel: Arc::clone(channel), place: Mutex::default() }
    }
}

impl Stop for CloseListener {
    fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<Status> {
        let mut place = self.place.lock();
        if place.is_none() {
            // A call stays in its task, so its waker remains valid.
            *place = Some(self.channel.waiting.lock().insert(cx.waker().clone()));
        }
        // Check after we are on the list; `close` does it in the opposite order.
        if self.channel.is_closed() {
            return Poll::Ready(closed());
        }
        Poll::Pending
    }
}

impl Drop for CloseListener {
    fn drop(&mut self) {
        if let Some(place) = self.place.get_mut().take() {
            self.channel.waiting.lock().remove(place);
        }
    }
}
