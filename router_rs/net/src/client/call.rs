//! A client's call, as its user sees it from any thread.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use router_dispatch::{CallOptions, Placement};
use router_io::Recipient;
use router_protocol::grpc::{Encoding, Message, Status, subtype};

use crate::link::{Link, Mailbox};

/// A call that a user wants to make.
#[derive(Debug)]
pub struct NewCall {
    /// `/pkg.Service/Method`
    pub path: String,
    /// User metadata, ready for a header block.
    pub metadata: HeaderMap,
    pub timeout: Option<Duration>,
    /// Names the codec of the messages, see `grpc::content_type`.
    pub content_type: HeaderValue,
    /// The only request message, half-close included; `None`: messages come as commands.
    pub message: Option<Message>,
    /// The compression of messages; `None`: the channel's default.
    pub encoding: Option<Encoding>,
    /// Wait for a connection instead of failing when the server cannot be reached.
    pub wait_for_ready: bool,
    /// Restricts the replicas to which a call to a deployment may go.
    pub placement: Placement,
    /// Options for the router. A caller of 0 stands for the channel.
    pub options: CallOptions,
    /// Messages come as events. If false, the only message comes with `Done`.
    pub is_response_streaming: bool,
}

/// A reservation that a user wants before the call itself is known.
#[derive(Clone, Debug, Default)]
pub struct NewChoice {
    pub timeout: Option<Duration>,
    /// Empty: none.
    pub model: String,
    /// Empty: none.
    pub session: String,
    /// The cache entries that the call would like to find.
    pub cache_keys: Vec<u64>,
    pub options: CallOptions,
}

/// One call. The task on the I/O thread fills a field in before it sends the event that announces
/// it.
#[derive(Debug)]
pub struct ClientCall {
    link: Link,
    pub(super) peer: OnceLock<Arc<str>>,
    pub(super) head: OnceLock<HeaderMap>,
    pub(super) end: OnceLock<End>,
}

/// How a call ended.
#[derive(Debug)]
pub struct End {
    pub status: Status,
    pub trailers: HeaderMap,
}

impl Recipient for ClientCall {
    fn look(&self) {
        self.link.wake();
    }
}

impl Mailbox for ClientCall {
    fn link(&self) -> &Link {
        &self.link
    }
}

impl ClientCall {
    pub(super) fn new(link: Link) -> Self {
        Self { link, peer: OnceLock::new(), head: OnceLock::new(), end: OnceLock::new() }
    }

    /// As grpc writes it; empty until the answer begins.
    pub fn peer(&self) -> &str {
        self.peer.get().map_or("", |peer| peer)
    }

    /// The head of the answer, protocol headers included; `None` until it has come.
    pub fn initial_metadata(&self) -> Option<&HeaderMap> {
        self.head.get()
    }

    /// The codec of the answer's messages; `None` until its head has come.
    pub fn subtype(&self) -> Option<Cow<'_, str>> {
        // An answer without messages is all trailers.
        let block = match (self.head.get(), self.end.get()) {
            (Some(head), _) if !head.is_empty() => head,
            (_, Some(end)) => &end.trailers,
            _ => return None,
        };
        Some(subtype(block.get(CONTENT_TYPE)))
    }

    /// `None` until the call is over.
    pub fn status(&self) -> Option<&Status> {
        self.end.get().map(|end| &end.status)
    }

    /// The trailers, protocol headers included; `None` until the call is over.
    pub fn trailing_metadata(&self) -> Option<&HeaderMap> {
        self.end.get().map(|end| &end.trailers)
    }
}
