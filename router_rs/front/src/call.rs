//! One call: the task that takes it through the exchange, for any kind of client.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use router_call::{ClientEnd, Door, Failure};
use router_dispatch::{Awaited, Deployment, End, Ending, Exchange, Head, Limits, Seen, Upload};
use router_protocol::grpc::Status;
use tokio::time::timeout;

use crate::connection::{ConnectionState, StopListener};
use crate::counters::CallCount;
use crate::mirror;
use crate::own_call::CallFuture;
use crate::upstream::Upstream;

/// A well-formed request with a route.
pub(super) struct Call<E> {
    pub head: Head,
    pub deadline: Option<Instant>,
    pub upstream: Upstream,
    /// The deployment that gets a copy, if the body is complete at the start.
    pub mirror: Option<Arc<Deployment>>,
    /// The request has no body.
    pub is_bodiless: bool,
    /// How much of the body is awaited before a replica is asked for a place.
    pub awaited: Awaited,
    pub client: E,
}

/// Runs the call, in its own task or in that of its connection.
///
/// A panic in it ends only that task: the guards release everything, and the client sees an aborted
/// answer.
pub(super) fn start<E: ClientEnd + 'static>(connection: &Rc<ConnectionState>, call: Call<E>) {
    connection.run(carry(connection, call));
}

/// The call's future, which counts as in flight from now on.
pub(super) fn carry<E: ClientEnd + 'static>(
    connection: &Rc<ConnectionState>,
    call: Call<E>,
) -> CallFuture {
    let Call { head, deadline, upstream, mirror, is_bodiless, awaited, mut client } = call;
    let door = head.door;
    let in_flight = CallCount::new(&connection.front.counters, door);
    let connection = Rc::clone(connection);
    // A block that captures its parts, not a function that would move them. Boxed, since tokio
    // copies a task of 2 KiB when it is created, when it ends and when it is dropped.
    Box::pin(async move {
        let _in_flight = in_flight;
        // The connection reads on before this runs: a flood of calls that are reset at once costs
        // nothing but this check.
        if poll_fn(|cx| Poll::Ready(client.poll_cancelled(cx).is_ready())).await {
            return conclude(&connection, &mut client, door, Ending::Cancelled, Seen::default())
                .await;
        }
        connection.earn_by_call();
        let stop = StopListener::new(&connection);
        let upload = Upload::new(upstream.replay_buffer(), is_bodiless);
        let limits = Limits::new(deadline, &stop);
        let mut exchange = Exchange::new(&mut client, head, upload, limits);
        let ending = if let Err(ending) = exchange.collect(awaited).await {
            match &upstream {
                Upstream::Deployment(deployment) => {
                    exchange.never_offered(&deployment.entry, ending).await
                }
                Upstream::Server(_) => ending,
            }
        } else {
            if let (Some(mirror), Some(body)) = (mirror, exchange.upload.whole()) {
                mirror::start(mirror, &exchange.head, body.to_vec(), deadline);
            }
            match &upstream {
                Upstream::Deployment(deployment) => {
                    exchange.head.ranked = deployment.rank(&exchange.head.parts).await;
                    exchange.listener = deployment.listener();
                    exchange.through(&deployment.entry).await
                }
                Upstream::Server(server) => exchange.to(&server.target).await,
            }
        };
        let seen = exchange.seen;
        conclude(&connection, &mut client, door, ending, seen).await;
    })
}

/// Answers a request that does not become a call, in the client's protocol.
pub(super) fn fail<E: ClientEnd + 'static>(
    connection: &Rc<ConnectionState>,
    mut client: E,
    door: Door,
    status: Status,
) {
    let in_flight = CallCount::new(&connection.front.counters, door);
    let connection = Rc::clone(connection);
    tokio::task::spawn_local(async move {
        let _in_flight = in_flight;
        let failure = Failure::new(status, true);
        let ending = Ending::Failed(failure);
        conclude(&connection, &mut client, door, ending, Seen::default()).await;
    });
}

/// Counts the outcome, sends the client what it has not been sent, and hands over data that it has
/// not taken.
pub(super) async fn conclude<E: ClientEnd>(
    connection: &ConnectionState,
    client: &mut E,
    door: Door,
    ending: Ending,
    seen: Seen,
) {
    let counters = &connection.front.counters;
    let end = End::of(&ending, client.refused(), &seen, door);
    counters.doors.count(door, end.http());
    match ending {
        Ending::Answered | Ending::Cancelled if client.refused().is_some() => {
            counters.answered_here.count();
        }
        Ending::Answered => counters.forwarded.count(),
        Ending::Cancelled => counters.cancelled_by_client.count(),
        Ending::Failed(failure) => {
            counters.answered_here.count();
            client.fail(&failure);
        }
    }
    // A client that takes nothing for this long is disconnected.
    let finish = poll_fn(|cx| client.poll_finish(cx));
    let _finished_or_given_up = timeout(connection.front.limits().body_timeout, finish).await;
}
