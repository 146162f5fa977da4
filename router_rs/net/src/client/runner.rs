//! The task of one client call.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, request};
use router_call::{Door, Failure};
use router_dispatch::{
    Deployment, Ending, Exchange, Head, Limits, Placement, ReplayBuffer, Upload, Wish, choose,
    deadline_exceeded,
};
use router_protocol::grpc::{Code, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, Status};
use router_protocol::names;
use router_upstream::connection::Connection;
use router_upstream::pool::{Acquired, acquire};
use router_upstream::target::{DialError, Target};
use tokio::time::sleep_until;

use super::call::{ClientCall, NewCall, NewChoice};
use super::connectivity::Connectivity;
use super::shared::{ChannelShared, CloseListener, Destination, closed};
use super::user::{MessageRules, User};
use crate::link::{Event, EventSink, Mailbox};

/// Attempts of a call that the server reports as not processed (gRPC: transparent retries).
const UNSEEN_ATTEMPTS_MAX: u32 = 2;

/// Makes the call and reports its outcome to its user.
pub(super) async fn run(channel: Arc<ChannelShared>, call: Arc<ClientCall>, new: NewCall) {
    let encoding = new.encoding.unwrap_or(channel.config.default_encoding);
    let rules = MessageRules {
        received: channel.config.receive_limit(),
        sent: channel.config.send_limit(),
        encoding,
        encodings: channel.config.encodings,
        is_response_streaming: new.is_response_streaming,
    };
    let received = Instant::now();
    let mut user = User::new(Arc::clone(&call), rules);
    let parts = match head(&channel, &new.path, new.metadata, new.content_type, encoding) {
        Ok(parts) => parts,
        Err(status) => return user.finish(Some(status)),
    };
    if channel.is_closed() {
        return user.finish(Some(closed()));
    }
    if call.link().deadline.is_some_and(|deadline| deadline <= received) {
        return user.finish(Some(deadline_exceeded()));
    }
    if let Some(message) = new.message {
        user.push_only(message);
    }
    let mut options = channel.options(new.options);
    match names::cost(&parts.headers) {
        Ok(told) => options.cost = options.cost.or(told),
        Err(text) => return user.finish(Some(Status::new(Code::InvalidArgument, text))),
    }
    let head = match Head::new(parts, Door::Handle, received, options) {
        Ok(head) => head,
        Err(invalid) => {
            return user.finish(Some(Status::new(Code::InvalidArgument, invalid.to_string())));
        }
    };
    let stop = CloseListener::new(&channel);
    let limits = Limits::new(call.link().deadline, &stop);
    let ending = match &channel.destination {
        Destination::Address(target) => {
            let replay = ReplayBuffer::new(Arc::clone(&channel.budget), 0);
            let upload = Upload::new(replay, false);
            let mut exchange = Exchange::new(&mut user, head, upload, limits);
            to_address(&channel, target, &mut exchange, new.wait_for_ready).await
        }
        Destination::Deployment { .. } => match deployment(&channel) {
            Err(status) => Ending::Failed(Failure::new(status, true)),
            Ok(deployment) => {
                let budget = Arc::clone(&deployment.entry.budget);
                let upload =
                    Upload::new(ReplayBuffer::new(budget, deployment.request_bytes_max), false);
                let mut exchange = Exchange::new(&mut user, head, upload, limits);
                // The deployment's settings for its method apply here as they do at the ingress.
                let is_idempotent =
                    deployment.repeatable.has_method(exchange.head.parts.uri.path());
                exchange.head.options.is_idempotent |= is_idempotent;
                if matches!(new.placement, Placement::Any) {
                    exchange.head.ranked = deployment.rank(&exchange.head.parts).await;
                    exchange.listener = deployment.listener();
                }
                exchange.placed(&deployment.entry, new.placement).await
            }
        },
    };
    match ending {
        Ending::Failed(failure) => user.fail_with(failure),
        Ending::Answered | Ending::Cancelled => user.finish(None),
    }
}

/// Reserves a place for a user's call and reports it to the user.
pub(super) async fn choose_place(channel: Arc<ChannelShared>, choice: Choice) {
    let Choice { token, sink, deadline, new } = choice;
    let stop = CloseListener::new(&channel);
    let chosen = match deployment(&channel) {
        _ if channel.is_closed() => Err(closed()),
        Err(status) => Err(status),
        Ok(deployment) => {
            let limits = Limits::new(deadline, &stop);
            let options = channel.options(new.options);
            let NewChoice { model, session, cache_keys, .. } = &new;
            let ranked = &deployment.rank_place(session, model).await;
            let wish =
                Wish { deadline, model, session, cache_keys, options, ranked, ..Wish::default() };
            choose(&deployment.entry, &wish, limits).await
        }
    };
    sink.push(token, Event::Chosen(chosen.map(Arc::new)));
}

/// A reservation that a user asks for.
#[derive(Debug)]
pub(super) struct Choice {
    pub token: u64,
    pub sink: Arc<dyn EventSink>,
    pub deadline: Option<Instant>,
    pub new: NewChoice,
}

/// Dials if nothing is connected, for a user who waits for the channel to be ready.
pub(super) async fn connect(channel: Arc<ChannelShared>) {
    match &channel.destination {
        Destination::Address(target) => match acquire(target) {
            Acquired::Open(connection) => on_connected(&channel, &connection),
            Acquired::Dialling(dialling) => {
                channel.tracker.enter(Connectivity::Connecting);
                on_dialled(&channel, &dialling.await);
            }
        },
        Destination::Deployment { .. } => channel.tracker.enter(Connectivity::Ready),
    }
}

async fn to_address(
    channel: &Arc<ChannelShared>,
    target: &Arc<Target>,
    exchange: &mut Exchange<'_, User>,
    wait_for_ready: bool,
) -> Ending {
    let mut attempts = 0;
    loop {
        if let Err(ending) = reach(channel, target, exchange, wait_for_ready).await {
            return ending;
        }
        let ending = exchange.to(target).await;
        attempts += 1;
        match &ending {
            Ending::Failed(failure)
                if failure.did_not_start
                    && exchange.upload.may_repeat()
                    && attempts < UNSEEN_ATTEMPTS_MAX => {}
            _ => return ending,
        }
    }
}

/// Waits for an open connection, within the call's deadline.
async fn reach(
    channel: &Arc<ChannelShared>,
    target: &Arc<Target>,
    exchange: &mut Exchange<'_, User>,
    wait_for_ready: bool,
) -> Result<(), Ending> {
    loop {
        if let Some(backoff) = channel.tracker.backoff(Instant::now()) {
            if !wait_for_ready {
                return Err(unavailable(backoff.reason));
            }
            let mut pause = Box::pin(sleep_until(backoff.until.into()));
            poll_fn(|cx| exchange.poll_or_end(cx, |cx| pause.as_mut().poll(cx))).await?;
        }
        let mut dialling = match acquire(target) {
            Acquired::Open(connection) => {
                on_connected(channel, &connection);
                return Ok(());
            }
            Acquired::Dialling(dialling) => dialling,
        };
        channel.tracker.enter(Connectivity::Connecting);
        let dialled =
            poll_fn(|cx| exchange.poll_or_end(cx, |cx| Pin::new(&mut dialling).poll(cx))).await?;
        on_dialled(channel, &dialled);
        match dialled {
            Ok(_) => return Ok(()),
            Err(error) if !wait_for_ready => return Err(unavailable(error.to_string())),
            Err(_) => {}
        }
    }
}

fn on_dialled(channel: &Arc<ChannelShared>, dialled: &Result<Rc<Connection>, DialError>) {
    match dialled {
        Ok(connection) => on_connected(channel, connection),
        Err(error) => channel.tracker.on_failed(error.to_string(), Instant::now()),
    }
}

/// Notes that the channel is ready, and that it no longer is when the connection ends.
fn on_connected(channel: &Arc<ChannelShared>, connection: &Rc<Connection>) {
    if channel.tracker.state() == Connectivity::Ready {
        return;
    }
    channel.tracker.enter(Connectivity::Ready);
    let (channel, ended) = (Arc::downgrade(channel), connection.ended());
    tokio::task::spawn_local(async move {
        ended.await;
        if let Some(channel) = channel.upgrade() {
            channel.tracker.on_closed();
        }
    });
}

fn unavailable(reason: String) -> Ending {
    let status = Status::new(Code::Unavailable, reason);
    Ending::Failed(Failure::new(status, true))
}

fn deployment(channel: &ChannelShared) -> Result<Arc<Deployment>, Status> {
    let Destination::Deployment { table, application, deployment } = &channel.destination else {
        return Err(Status::new(Code::Internal, "the channel leads to an address"));
    };
    channel.tracker.enter(Connectivity::Ready);
    table.find_deployment(application, deployment).ok_or_else(|| {
        Status::new(Code::Unavailable, format!("{application}/{deployment} is not deployed"))
    })
}

/// The request's head, but for its timeout.
fn head(
    channel: &ChannelShared,
    path: &str,
    metadata: HeaderMap,
    content_type: HeaderValue,
    encoding: Encoding,
) -> Result<request::Parts, Status> {
    let path = PathAndQuery::try_from(path).map_err(|_| {
        let text = format!("{path:?} is no method path, write /pkg.Service/Method");
        Status::new(Code::Internal, text)
    })?;
    let uri = Uri::builder()
        .scheme(channel.scheme.clone())
        .authority(channel.authority.clone())
        .path_and_query(path)
        .build()
        .map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = uri;
    parts.headers = metadata;
    let headers = &mut parts.headers;
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_ACCEPT_ENCODING, channel.config.encodings.header());
    if let Some(value) = encoding.header() {
        headers.insert(GRPC_ENCODING, value);
    }
    let user_agent = channel.config.user_agent.as_str();
    if let Some(Ok(value)) = (!user_agent.is_empty()).then(|| HeaderValue::try_from(user_agent)) {
        headers.insert(USER_AGENT, value);
    }
    Ok(parts)
}
