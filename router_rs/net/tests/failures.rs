//! Replicas that fail, freeze or are slow, and calls that may be retried.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use router_core::{EjectionConfig, Nanos, PolicyKind, RetryConfig, RouterStats};
use router_net::client::{Channel, ChannelConfig, ClientCall, NewCall, ReconnectBackoff};
use router_net::dispatch::{CallOptions, DeploymentRoute, Placement, RouterSettings, RoutingTable};
use router_net::grpc::{CONTENT_TYPE_GRPC, Code, CodeSet, Encoding, Encodings};
use router_net::io::IoThreads;
use router_net::link::{Event, EventSink, Mailbox};
use support::{Front, Incoming, PATH, Replica, TOKEN, deployment, request, table, until};
use tokio::time::Instant;

const UNAVAILABLE: u32 = 14;
const INVALID_ARGUMENT: u32 = 3;

/// "pong" as a gRPC message.
const PONG: Bytes = Bytes::from_static(b"\0\0\0\0\x04pong");

/// A channel to a deployment, whose calls may be retried.
struct Caller {
    channel: Channel,
    table: Arc<RoutingTable>,
    ends: Arc<Ends>,
    _threads: Arc<IoThreads>,
}

#[derive(Debug, Default)]
struct Ends(Mutex<Vec<u64>>);

impl EventSink for Ends {
    fn push(&self, token: u64, event: Event) {
        if let Event::Done(_) = event {
            self.0.lock().push(token);
        }
    }
}

impl Caller {
    fn of(replicas: &[&Replica], change: impl FnOnce(&mut RouterSettings)) -> Self {
        let mut route = deployment(replicas.iter().map(|replica| replica.route(100)).collect());
        route.router.config.retries = RetryConfig { attempts_max: 3, budget_percent: 20 };
        change(&mut route.router);
        Self::to(route)
    }

    fn to(route: DeploymentRoute) -> Self {
        let threads = IoThreads::start("test", 1).unwrap();
        let table = table(TOKEN);
        table.apply(vec![route]);
        let config = ChannelConfig {
            authority: None,
            user_agent: "test/1".to_owned(),
            receive_bytes_max: 1 << 20,
            send_bytes_max: 1 << 20,
            default_encoding: Encoding::Identity,
            encodings: Encodings::default(),
            tls: None,
            keepalive: None,
            reconnect: ReconnectBackoff::default(),
        };
        let to = Arc::clone(&table);
        let channel = Channel::to_deployment("app/Echo", to, config, Arc::clone(&threads)).unwrap();
        Self { channel, table, ends: Arc::default(), _threads: threads }
    }

    fn call(&self, is_idempotent: bool) -> Arc<ClientCall> {
        let new = NewCall {
            path: PATH.to_owned(),
            metadata: HeaderMap::new(),
            timeout: Some(Duration::from_secs(9)),
            message: Some(Bytes::from_static(b"ping").into()),
            content_type: CONTENT_TYPE_GRPC,
            encoding: None,
            wait_for_ready: false,
            placement: Placement::Any,
            options: CallOptions { is_idempotent, ..CallOptions::default() },
            is_response_streaming: false,
        };
        let call = self.channel.start(self.ends.clone(), new);
        self.channel.thread().wake();
        call
    }

    async fn code(&self, call: &ClientCall) -> Code {
        until("the call's end", || self.ends.0.lock().contains(&call.link().token)).await;
        call.status().unwrap().code
    }

    fn stats(&self) -> RouterStats {
        self.table.stats()[0].router.clone()
    }
}

/// Fails the call without sending anything first.
fn fail(mut incoming: Incoming, code: u32, headers: &[(&'static str, &str)]) {
    let mut response = support::grpc_response();
    response.headers_mut().insert("grpc-status", code.into());
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    incoming.respond.send_response(response, true).unwrap();
}

/// The next call, at either of two replicas, and the other replica.
async fn next<'a>(first: &'a mut Replica, second: &'a mut Replica) -> (Incoming, &'a mut Replica) {
    let came = tokio::select! {
        incoming = first.next() => Ok(incoming),
        incoming = second.next() => Err(incoming),
    };
    match came {
        Ok(incoming) => (incoming, second),
        Err(incoming) => (incoming, first),
    }
}

#[tokio::test]
async fn an_idempotent_call_that_fails_is_sent_elsewhere() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let caller = Caller::of(&[&first, &second], |_| {});
    let call = caller.call(true);
    let (incoming, other) = next(&mut first, &mut second).await;
    assert!(!incoming.head.headers.contains_key("grpc-previous-rpc-attempts"));
    fail(incoming, UNAVAILABLE, &[]);
    let mut incoming = other.next().await;
    assert_eq!("1", incoming.head.headers["grpc-previous-rpc-attempts"]);
    assert_eq!(&b"\0\0\0\0\x04ping"[..], incoming.read_all().await);
    incoming.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    let stats = caller.stats();
    assert_eq!((1, 1, 2), (stats.offered, stats.retries, stats.sent));
}

#[tokio::test]
async fn an_idempotent_call_of_a_lost_replica_is_sent_elsewhere() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let caller = Caller::of(&[&first, &second], |_| {});
    let call = caller.call(true);
    let is_at_first = tokio::select! {
        _incoming = first.next() => true,
        _incoming = second.next() => false,
    };
    let mut heir = if is_at_first {
        drop(first);
        second
    } else {
        drop(second);
        first
    };
    heir.next().await.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    assert_eq!((1, 1), (caller.stats().retries, caller.stats().failed));
}

#[tokio::test]
async fn a_call_is_sent_again_only_if_that_is_safe_and_asked_for() {
    let mut replica = Replica::start("r-1").await;
    let caller = Caller::of(&[&replica], |router| router.config.ejection.fall = 0);
    let never: [(&'static str, &str); 1] = [("grpc-retry-pushback-ms", "-1")];
    for (is_idempotent, code, headers) in
        [(false, UNAVAILABLE, &[][..]), (true, INVALID_ARGUMENT, &[]), (true, UNAVAILABLE, &never)]
    {
        let call = caller.call(is_idempotent);
        fail(replica.next().await, code, headers);
        assert_eq!(Code::from_number(code), caller.code(&call).await);
        assert!(call.trailing_metadata().unwrap().contains_key("grpc-status"));
    }
    // An answer that has begun is final.
    let call = caller.call(true);
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", UNAVAILABLE.into());
    stream.send_trailers(trailers).unwrap();
    assert_eq!(Code::Unavailable, caller.code(&call).await);
    assert_eq!((4, 0), (caller.stats().sent, caller.stats().retries));
}

#[tokio::test]
async fn a_deployment_names_the_codes_that_are_tried_again() {
    let mut replica = Replica::start("r-1").await;
    let caller = Caller::of(&[&replica], |router| {
        router.config.ejection.fall = 0;
        router.retry_codes = CodeSet::of(&[Code::InvalidArgument]);
    });
    let call = caller.call(true);
    fail(replica.next().await, INVALID_ARGUMENT, &[]);
    let mut again = replica.next().await;
    assert_eq!(&b"\0\0\0\0\x04ping"[..], again.read_all().await);
    again.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    let call = caller.call(true);
    fail(replica.next().await, UNAVAILABLE, &[]);
    assert_eq!(Code::Unavailable, caller.code(&call).await);
    assert_eq!((3, 1), (caller.stats().sent, caller.stats().retries));
}

#[tokio::test]
async fn pushback_is_honoured_and_the_last_answer_is_passed_on() {
    let mut replica = Replica::start("r-1").await;
    let caller = Caller::of(&[&replica], |router| router.config.ejection.fall = 0);
    let call = caller.call(true);
    let incoming = replica.next().await;
    let start = Instant::now();
    fail(incoming, UNAVAILABLE, &[("grpc-retry-pushback-ms", "300")]);
    let incoming = replica.next().await;
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    fail(incoming, UNAVAILABLE, &[]);
    fail(replica.next().await, UNAVAILABLE, &[("grpc-message", "third"), ("x-key", "v")]);
    assert_eq!(Code::Unavailable, caller.code(&call).await);
    assert_eq!("third", call.status().unwrap().message);
    assert_eq!("v", call.trailing_metadata().unwrap()["x-key"]);
    assert_eq!((3, 1), (caller.stats().sent, caller.stats().retries_refused));
}

#[tokio::test]
async fn replicas_that_all_fail_get_little_more_than_the_calls() {
    let mut replica = Replica::start("r-1").await;
    let caller = Caller::of(&[&replica], |router| {
        router.config.retries.attempts_max = 5;
        router.config.backoff_initial = Nanos::from_millis(1);
        router.config.ejection.fall = 0;
    });
    let calls: Vec<_> = (0..200).map(|_| caller.call(true)).collect();
    let failing = async {
        loop {
            fail(replica.next().await, UNAVAILABLE, &[]);
        }
    };
    let ends = async {
        for call in &calls {
            assert_eq!(Code::Unavailable, caller.code(call).await);
        }
    };
    tokio::select! {
        () = failing => {}
        () = ends => {}
    }
    let stats = caller.stats();
    assert_eq!((200, 40, 240), (stats.offered, stats.retries, stats.sent));
}

#[tokio::test]
async fn a_replica_that_fails_what_others_do_well_is_left_out() {
    let (mut bad, mut good) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let mut route = deployment(vec![bad.route(100), good.route(100)]);
    route.router.config.ejection = EjectionConfig { fall: 3, ..EjectionConfig::default() };
    // Learning policies avoid it before it is ejected.
    route.router.config.policy = PolicyKind::P2c;
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let (mut failed, mut done) = (0, 0);
    while done < 60 {
        let call = client.unary(request(PATH), "ping");
        tokio::select! {
            incoming = bad.next() => fail(incoming, UNAVAILABLE, &[]),
            incoming = good.next() => incoming.reply("pong"),
        }
        match call.reply().await.status() {
            0 => done += 1,
            _ => failed += 1,
        }
    }
    assert_eq!(3, failed);
    let stats = front.table.stats()[0].router.clone();
    assert_eq!(1, stats.ejections);
    assert_eq!(1, stats.replicas.iter().filter(|replica| replica.ejected_until.is_some()).count());
    front.settle().await;
}

#[tokio::test]
async fn a_frozen_replica_is_soon_left_out_and_comes_back() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let front = Front::start(vec![deployment(vec![first.route(1), second.route(100)])]);
    let client = front.client().await;
    // Both have a connection, and the first has a call.
    let mut waiting = Vec::new();
    let held = loop {
        waiting.push(client.unary(request(PATH), "ping"));
        tokio::select! {
            incoming = first.next() => break incoming,
            incoming = second.next() => incoming.reply("pong"),
        }
    };
    let start = Instant::now();
    first.freeze();
    let is_silent = || front.table.stats()[0].router.replicas.iter().any(|it| it.is_silent);
    until("it is known as silent", is_silent).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    for call in waiting.drain(..waiting.len() - 1) {
        assert_eq!(0, call.reply().await.status());
    }
    // Its own call ends, and no other call fails.
    let lost = waiting.remove(0).reply().await;
    assert_eq!(UNAVAILABLE, lost.status());
    for _ in 0..20 {
        let call = client.unary(request(PATH), "ping");
        second.next().await.reply("pong");
        assert_eq!(0, call.reply().await.status());
    }
    drop(held);
    // It goes on, as a process does after SIGCONT.
    first.freeze.send_replace(false);
    until("it is heard", || !is_silent()).await;
    front.table.apply(vec![deployment(vec![first.route(1)])]);
    let call = client.unary(request(PATH), "ping");
    first.next().await.reply("pong");
    assert_eq!(0, call.reply().await.status());
    front.settle().await;
}

#[tokio::test]
async fn a_replica_that_never_finishes_a_handshake_is_left_out() {
    let (frozen, mut good) = (Replica::start("r-1").await, Replica::start("r-2").await);
    frozen.freeze();
    let front = Front::start(vec![deployment(vec![frozen.route(100), good.route(100)])]);
    let client = front.client().await;
    let start = Instant::now();
    let is_silent = || front.table.stats()[0].router.replicas.iter().any(|it| it.is_silent);
    let mut calls = Vec::new();
    while !is_silent() {
        calls.push(client.unary(request(PATH), "ping"));
        tokio::time::sleep(Duration::from_millis(20)).await;
        while let Ok(incoming) = good.calls.try_recv() {
            incoming.reply("pong");
        }
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    // No call that waited for it is lost: they did not start.
    let answering = async {
        loop {
            good.next().await.reply("pong");
        }
    };
    let ends = async {
        for call in calls {
            assert_eq!(0, call.reply().await.status());
        }
    };
    tokio::select! {
        () = answering => {}
        () = ends => {}
    }
    front.settle().await;
}

#[tokio::test]
async fn a_refusal_says_at_once_when_to_come_again() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(1)]);
    route.max_queued_requests = 0;
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let first = client.unary(request(PATH), "a");
    let incoming = replica.next().await;
    let mut waits = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        let reply = client.call("b").await;
        waits.push(start.elapsed());
        assert_eq!(8, reply.status());
        let pushback = reply.headers["grpc-retry-pushback-ms"].to_str().unwrap();
        assert!((1..=60_000).contains(&pushback.parse::<u32>().unwrap()), "{pushback}");
    }
    waits.sort_unstable();
    assert!(waits[10] < Duration::from_millis(20), "{waits:?}");
    incoming.reply("1");
    assert_eq!(0, first.reply().await.status());
    front.settle().await;
}

/// Answers as many calls, one after the other, as the router needs to learn how long calls take;
/// then both replicas have connections.
async fn learn(caller: &Caller, first: &mut Replica, second: &mut Replica) {
    for _ in 0..40 {
        let call = caller.call(true);
        next(first, second).await.0.reply(PONG);
        assert_eq!(Code::Ok, caller.code(&call).await);
    }
}

#[tokio::test]
async fn a_late_call_is_answered_by_a_second_replica_and_the_loser_is_cancelled() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let caller = Caller::of(&[&first, &second], |router| router.config.hedging = true);
    learn(&caller, &mut first, &mut second).await;
    let before = caller.stats();
    assert_eq!(0, before.retries);

    let call = caller.call(true);
    let (mut late, other) = next(&mut first, &mut second).await;
    let mut hedge = other.next().await;
    assert_eq!(&b"\0\0\0\0\x04ping"[..], hedge.read_all().await);
    hedge.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    assert_eq!(h2::Reason::CANCEL, late.reset().await);
    until("both places are free", || caller.stats().in_flight == 0).await;
    let stats = caller.stats();
    assert_eq!(before.hedges + 1, stats.hedges);
    assert_eq!(before.cancelled + 1, stats.cancelled);

    // The first may win all the same, and a second that breaks changes nothing.
    for is_broken in [false, true] {
        let call = caller.call(true);
        let (late, other) = next(&mut first, &mut second).await;
        let mut hedge = other.next().await;
        if is_broken {
            hedge.respond.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        late.reply(PONG);
        assert_eq!(Code::Ok, caller.code(&call).await);
    }
    // If the first attempt breaks, the second takes over the call.
    let call = caller.call(true);
    let (mut late, other) = next(&mut first, &mut second).await;
    let hedge = other.next().await;
    late.respond.send_reset(h2::Reason::INTERNAL_ERROR);
    hedge.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    until("all places are free", || caller.stats().in_flight == 0).await;
}

#[tokio::test]
async fn calls_that_may_not_be_repeated_have_no_second_place() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let caller = Caller::of(&[&first, &second], |router| router.config.hedging = true);
    learn(&caller, &mut first, &mut second).await;
    let before = caller.stats().hedges;
    let call = caller.call(false);
    let (late, other) = next(&mut first, &mut second).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(other.calls.try_recv().is_err());
    late.reply(PONG);
    assert_eq!(Code::Ok, caller.code(&call).await);
    assert_eq!(before, caller.stats().hedges);
}

#[tokio::test]
async fn a_call_that_asks_is_told_what_the_router_saw() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let explained = || support::request_with(PATH, &[("x-pyserve-explain", "1")]);
    let call = client.unary(explained(), "a");
    let incoming = replica.next().await;
    let parked = client.unary(explained(), "b");
    until("one call is parked", || front.parked() == 1).await;
    incoming.reply("1");
    let reply = call.reply().await;
    let read = |value: &http::HeaderValue| -> serde_json::Value {
        serde_json::from_slice(value.as_bytes()).unwrap()
    };
    let first = read(&reply.trailers["x-pyserve-explain"]);
    assert_eq!("r-1", first["chosen"]);
    assert_eq!("zone", first["replicas"][0]["tier"]);
    assert!(first["replicas"][0].get("out").is_none());
    // For the second call the replica was full; an explanation comes with a failure as well.
    loop {
        let incoming = replica.next().await;
        if incoming.head.uri.path() == PATH {
            fail(incoming, INVALID_ARGUMENT, &[]);
            break;
        }
    }
    let second = read(&parked.reply().await.headers["x-pyserve-explain"]);
    assert_eq!("r-1", second["replicas"][0]["id"]);
    assert_eq!("full", second["replicas"][0]["out"]);
    // Calls without the request header get no explanation.
    let call = client.unary(request(PATH), "c");
    replica.next().await.reply("3");
    assert!(!call.reply().await.trailers.contains_key("x-pyserve-explain"));
    front.settle().await;
}
