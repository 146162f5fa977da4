//! Call records: which calls have one, its contents, and the trace that they belong to.

mod support;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use router_net::dispatch::{CallRecord, CallRecords, DeploymentRoute, KeptFor, RoutingTable};
use router_net::mesh::proof::to_hex;
use router_net::trace_context::{TRACEPARENT, TraceContext};
use support::{
    Client, Front, Incoming, PATH, Replica, TOKEN, deployment, grpc_response, request,
    request_with, table_config, until,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

struct Fixture {
    records: Arc<CallRecords>,
    front: Front,
    client: Client,
}

impl Fixture {
    async fn start(ratio: Option<f64>, slowest: usize, routes: Vec<DeploymentRoute>) -> Self {
        let records = Arc::new(CallRecords::new(ratio, slowest, true));
        let table = RoutingTable::recorded(table_config(TOKEN), Some(Arc::clone(&records)));
        table.apply(routes);
        let front = Front::over(table);
        let client = front.client().await;
        Self { records, front, client }
    }

    /// All records, once no call is left.
    async fn records(&self) -> Vec<CallRecord> {
        self.front.settle().await;
        self.records.take(usize::MAX).iter().map(|record| CallRecord::clone(record)).collect()
    }

    async fn record(&self) -> CallRecord {
        let mut records = self.records().await;
        assert_eq!(1, records.len(), "{records:?}");
        records.remove(0)
    }

    /// Makes a call with these headers, which `replica` answers; returns the headers that the
    /// replica got.
    async fn call(&self, replica: &mut Replica, headers: &[(&str, &str)]) -> HeaderMap {
        let call = self.client.unary(request_with(PATH, headers), "ping");
        let mut incoming = replica.next().await;
        let seen = incoming.head.headers.clone();
        incoming.read_all().await;
        incoming.reply("pong!");
        assert_eq!(0, call.reply().await.status());
        seen
    }
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn fail(mut incoming: Incoming, code: &'static str) {
    let mut response = grpc_response();
    response.headers_mut().insert("grpc-status", HeaderValue::from_static(code));
    incoming.respond.send_response(response, true).unwrap();
}

#[tokio::test]
async fn a_sampled_call_goes_on_in_the_span_of_its_attempt() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(Some(0.0), 0, vec![deployment(vec![replica.route(9)])]).await;
    let headers = [
        ("traceparent", &*traceparent("01")),
        ("tracestate", "vendor=1"),
        ("baggage", "user=7"),
        ("x-request-id", "it"),
        ("multiplexed_model_id", "m"),
    ];
    let seen = fixture.call(&mut replica, &headers).await;
    assert_eq!(("vendor=1", "user=7"), (seen["tracestate"].to_str().unwrap(), "user=7"));
    assert_eq!("user=7", seen["baggage"]);
    let sent = TraceContext::of(&seen).expect("a context");

    let record = fixture.record().await;
    let trace = record.trace.expect("it has a trace");
    assert_eq!(TRACE, to_hex(&trace.trace.to_bytes()));
    assert_eq!(PARENT, to_hex(&trace.parent.unwrap().to_bytes()));
    assert_eq!((sent.trace, sent.is_sampled), (trace.trace, true));
    let [attempt] = &record.attempts[..] else { panic!("one attempt: {record:?}") };
    assert_eq!(Some(sent.span), attempt.span);
    assert_ne!(trace.span, attempt.span);
    assert_eq!(("r-1", "first", "ok"), (&*attempt.replica_id, attempt.why, attempt.outcome));
    assert_eq!((KeptFor::Sampled, true), (record.kept_for, record.is_sampled));
    assert_eq!(
        ("vendor=1", "it", "m"),
        (&*record.tracestate, &*record.request_id, &*record.model_id)
    );
    assert_eq!(("grpc", PATH), (record.door, &*record.method));
    assert_eq!(("app", "Echo"), (&*record.application, &*record.deployment));
    assert!(record.peer.starts_with("ipv4:127.0.0.1:"), "{}", record.peer);
    assert_eq!((0, 0, ""), (record.code, record.http_status, record.refused));
    assert_eq!(
        ("replica", 4, 5),
        (record.answered_by, record.request_bytes, record.response_bytes)
    );
    assert!(record.explanation.contains("\"chosen\":\"r-1\""), "{}", record.explanation);
    let head = attempt.head.expect("its head came");
    assert_eq!(Some(head), record.first_byte);
    assert!(attempt.start <= head && head <= attempt.end && attempt.end <= record.duration);
    assert!(record.start_unix.0 > 1_700_000_000_000_000_000);
}

#[tokio::test]
async fn other_calls_go_on_with_what_they_came_with() {
    let mut replica = Replica::start("r-1").await;
    let route = deployment(vec![replica.route(9)]);
    let off = Fixture::start(None, 0, vec![route.clone()]).await;
    let parents = Fixture::start(Some(0.0), 0, vec![route]).await;
    let malformed = traceparent("01").to_uppercase();
    for (fixture, came) in [
        (&off, Some(traceparent("01"))),
        (&off, None),
        (&parents, Some(traceparent("00"))),
        (&parents, Some(malformed)),
        (&parents, None),
    ] {
        let headers: Vec<_> = came.iter().map(|came| ("traceparent", &**came)).collect();
        let seen = fixture.call(&mut replica, &headers).await;
        let went = seen.get(TRACEPARENT).map(|value| value.to_str().unwrap());
        assert_eq!(came.as_deref(), went);
        assert!(fixture.records().await.is_empty());
    }
}

#[tokio::test]
async fn a_call_without_a_trace_begins_one() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(Some(1.0), 0, vec![deployment(vec![replica.route(9)])]).await;
    let broken = traceparent("01").replace("00-", "ff-");
    let seen = fixture.call(&mut replica, &[("traceparent", &broken), ("tracestate", "a=1")]).await;
    assert!(TraceContext::of(&seen).is_some_and(|context| context.is_sampled), "{seen:?}");
    assert!(!seen.contains_key("tracestate"), "it belonged to the broken one");
    let record = fixture.record().await;
    assert_eq!(None, record.trace.expect("it has a trace").parent);
    // A call without a request id gets one of ours, which the replica sees too.
    assert_eq!(seen["x-request-id"], *record.request_id);
    assert_eq!(36, record.request_id.len());
}

#[tokio::test]
async fn each_attempt_has_its_span_and_its_reason() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let routes = vec![deployment(vec![first.route(9), second.route(9)])];
    let fixture = Fixture::start(Some(1.0), 0, routes).await;
    let call = fixture.client.unary(request(PATH), "ping");
    let (refusing, taking) = tokio::select! {
        incoming = first.next() => (incoming, &mut second),
        incoming = second.next() => (incoming, &mut first),
    };
    let refused_in = TraceContext::of(&refusing.head.headers).expect("a context");
    refusing.refuse();
    let taken = taking.next().await;
    let taken_in = TraceContext::of(&taken.head.headers).expect("a context");
    fail(taken, "13");
    assert_eq!(13, call.reply().await.status());

    let record = fixture.record().await;
    let attempts: Vec<_> = record.attempts.iter().map(|it| (it.span, it.why, it.outcome)).collect();
    let expected = [
        (Some(refused_in.span), "first", "refused"),
        (Some(taken_in.span), "refused_before", "failed"),
    ];
    assert_eq!(expected.to_vec(), attempts);
    assert_ne!(record.attempts[0].replica_id, record.attempts[1].replica_id);
    assert_eq!((taken_in.trace, refused_in.trace), (refused_in.trace, taken_in.trace));
    assert_eq!(13, record.code);
}

#[tokio::test]
async fn failed_calls_are_kept_and_answers_about_the_request_are_not() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(None, 0, vec![deployment(vec![replica.route(9)])]).await;
    for (code, is_kept) in [("13", true), ("5", false), ("14", true), ("3", false), ("8", true)] {
        let call = fixture.client.unary(request(PATH), "ping");
        fail(replica.next().await, code);
        call.reply().await;
        let kept: Vec<_> = fixture.records().await;
        assert_eq!(usize::from(is_kept), kept.len(), "{code}");
        assert!(kept.iter().all(|it| it.kept_for == KeptFor::Failed && it.trace.is_none()));
    }
}

#[tokio::test]
async fn a_call_that_nobody_took_says_why_and_how_long_it_waited() {
    let fixture = Fixture::start(None, 0, vec![deployment(vec![])]).await;
    let headers = [("grpc-timeout", "300m"), ("x-pyserve-explain", "1")];
    let reply = fixture.client.unary(request_with(PATH, &headers), "ping").reply().await;
    assert_eq!(4, reply.status());
    let record = fixture.record().await;
    assert_eq!((KeptFor::Failed, "deadline", 4), (record.kept_for, record.refused, record.code));
    assert_eq!(("ingress", None), (record.answered_by, record.first_byte));
    assert!(record.attempts.is_empty());
    assert!(record.parked.as_millis() >= 150 && record.parked <= record.duration, "{record:?}");
    assert!(record.explanation.contains("\"refused\":\"deadline\""), "{}", record.explanation);
}

#[tokio::test]
async fn a_wait_for_a_place_is_told_from_the_work() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(None, 0, vec![deployment(vec![replica.route(1)])]).await;
    fixture.records.set_keeps_all(true);
    let first = fixture.client.unary(request(PATH), "1");
    let incoming = replica.next().await;
    let second = fixture.client.unary(request(PATH), "2");
    until("it waits", || fixture.front.parked() == 1).await;
    // This test needs real time to pass.
    tokio::time::sleep(Duration::from_millis(20)).await;
    incoming.reply("1");
    first.reply().await;
    replica.next().await.reply("2");
    second.reply().await;
    let [one, other] = &fixture.records().await[..] else { panic!("two calls were made") };
    assert_eq!((KeptFor::All, 0), (one.kept_for, one.parked.0));
    assert!((20..10_000).contains(&other.parked.as_millis()), "{other:?}");
    assert!(other.parked <= other.attempts[0].start, "{other:?}");
}

#[tokio::test]
async fn the_slowest_are_kept_by_their_answers_and_streams_by_their_beginnings() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(None, 1, vec![deployment(vec![replica.route(9)])]).await;
    let slow = fixture.client.unary(request(PATH), "slow");
    let incoming = replica.next().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    incoming.reply("done");
    slow.reply().await;
    assert_eq!(KeptFor::Slow, fixture.record().await.kept_for);
    fixture.call(&mut replica, &[]).await;
    // A stream begins at once, and ends much later.
    let stream = fixture.client.unary(request(PATH), "stream");
    let mut answer = replica.next().await.begin();
    answer.send_data("x".into(), false).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    answer.send_trailers(support::ok_trailers()).unwrap();
    stream.reply().await;
    assert!(fixture.records().await.is_empty());
}

#[tokio::test]
async fn a_client_that_left_is_the_one_who_answered() {
    let mut replica = Replica::start("r-1").await;
    let fixture = Fixture::start(Some(1.0), 0, vec![deployment(vec![replica.route(9)])]).await;
    let call = fixture.client.unary(request(PATH), "ping");
    let mut incoming = replica.next().await;
    drop(call);
    incoming.reset().await;
    let record = fixture.record().await;
    assert_eq!(
        (1, "client", "cancelled"),
        (record.code, record.answered_by, record.attempts[0].outcome)
    );
}

#[tokio::test]
async fn plain_http_is_named_by_its_verb_and_prefix() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(9)]);
    route.http_prefixes = vec!["/shop".to_owned()];
    let fixture = Fixture::start(Some(1.0), 0, vec![route]).await;
    let get = http::Request::get("http://test/shop/tea?count=2").body(()).unwrap();
    let call = fixture.client.start(get, true);
    let response = http::Response::builder().status(503).body(()).unwrap();
    replica.next().await.respond.send_response(response, true).unwrap();
    assert_eq!(503, call.reply().await.http);
    let record = fixture.record().await;
    assert_eq!(("http", "GET /shop"), (record.door, &*record.method));
    assert_eq!((0, 503), (record.code, record.http_status));
    assert_eq!("failed", record.attempts[0].outcome);
}
