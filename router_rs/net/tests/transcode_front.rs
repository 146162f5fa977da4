//! gRPC methods in other protocols, through a whole front to a replica that speaks gRPC.

mod front_support;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use front_support::{Http1, Http1Reply, answer, http_deployment, http_request};
use http::{HeaderMap, HeaderValue};
use prost::Message;
use router_core::{AccessPolicy, AccessRule, PathPattern};
use router_net::dispatch::{CallRecord, CallRecords, DeploymentRoute, KeptFor, RoutingTable};
use router_net::ingress::{Access, IngressConfig};
use support::{
    Front, Incoming, Replica, TOKEN, deployment, ok_trailers, open_service, table, table_config,
    until,
};

/// `tests/mesh/doors/things.proto` with all that it imports, as a `FileDescriptorSet`.
const THINGS: &[u8] = include_bytes!("../../testdata/things.binpb");

const ECHO: &str = "/things.v1.Things/Echo";
const GET: &str = "/things.v1.Things/Get";

/// A `Thing` whose name is "a", as a gRPC frame.
const THING_A: &[u8] = b"\0\0\0\0\x03\x0a\x01a";

/// A `Thing` whose `made` lies beyond the years that JSON can have, as a gRPC frame.
const THING_OF_NO_TIME: &[u8] = b"\0\0\0\0\x0c\x62\x0a\x08\x80\x80\x80\x80\x80\x80\x80\x80\x10";

/// `google.protobuf.FileDescriptorSet`
#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

/// The deployment of a replica with one place.
fn things(replica: &Replica) -> DeploymentRoute {
    DeploymentRoute {
        services: vec![open_service("things.v1.Things")],
        file_descriptors: Files::decode(THINGS).unwrap().files,
        max_queued_requests: 0,
        ..deployment(vec![replica.route(1)])
    }
}

async fn one_thing() -> (Replica, Front) {
    let replica = Replica::start("r-1").await;
    let front = Front::start(vec![things(&replica)]);
    (replica, front)
}

/// Takes a call of `method` and answers it with a `Thing`; returns the request.
async fn serve(mut incoming: Incoming, method: &str) -> Bytes {
    assert_eq!(method, incoming.head.uri.path());
    assert_eq!("POST", incoming.head.method);
    assert_eq!("trailers", incoming.head.headers["te"]);
    let asked = incoming.read_all().await;
    incoming.reply(THING_A);
    asked
}

/// Answers a call with a status.
fn fail(mut incoming: Incoming, code: &'static str, message: &'static str) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    trailers.insert("grpc-message", HeaderValue::from_static(message));
    incoming.begin().send_trailers(trailers).unwrap();
}

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n");
    [head.as_bytes(), headers.as_bytes(), b"\r\n", body].concat()
}

#[tokio::test]
async fn a_grpc_web_client_is_served_over_http1() {
    let (mut replica, front) = one_thing().await;
    let mut client = Http1::connect(&front).await;
    client.send(post(ECHO, "content-type: application/grpc-web+proto\r\n", THING_A)).await;
    assert_eq!(THING_A, serve(replica.next().await, ECHO).await);
    let reply = client.reply().await;
    assert_eq!("application/grpc-web+proto", reply.headers["content-type"]);
    let (message, end) = reply.body.split_at(THING_A.len());
    assert_eq!(THING_A, message);
    assert_eq!(b"\x80\0\0\0\x10grpc-status: 0\r\n", end);
    front.settle().await;
    assert_eq!((1, 1), (front.stat("forwarded"), front.stat("http_2xx")));
    assert_eq!(BTreeMap::from([("2xx", 1)]), front.door("grpc-web"));
}

#[tokio::test]
async fn a_connect_client_is_served_with_json_over_http2() {
    let (mut replica, front) = one_thing().await;
    let client = front.client().await;
    let head = |path| {
        let headers = [("content-type", "application/json"), ("connect-protocol-version", "1")];
        http_request("POST", path, &headers)
    };
    let call = client.unary(head(ECHO), r#"{"name": "a"}"#);
    assert_eq!(THING_A, serve(replica.next().await, ECHO).await);
    let reply = call.reply().await;
    assert_eq!(200, reply.http);
    assert_eq!("application/json", reply.headers["content-type"]);
    assert_eq!(r#"{"name":"a"}"#, reply.body);
    front.settle().await;

    let call = client.unary(head(ECHO), "{}");
    fail(replica.next().await, "5", "no such thing");
    let reply = call.reply().await;
    assert_eq!(404, reply.http);
    assert_eq!(r#"{"code":"not_found","message":"no such thing"}"#, reply.body);
    front.settle().await;
    assert_eq!(BTreeMap::from([("2xx", 1), ("4xx", 1)]), front.door("connect"));
}

#[tokio::test]
async fn a_rest_client_is_served_by_the_path_of_a_method() {
    let (mut replica, front) = one_thing().await;
    let mut client = Http1::connect(&front).await;
    client.get("/v1/things/a").await;
    assert_eq!(THING_A, serve(replica.next().await, GET).await);
    let reply = client.reply().await;
    assert_eq!((200, r#"{"name":"a"}"#), (reply.status, reply.text()));
    front.settle().await;

    client.send(post("/v1/echo", "content-type: application/json\r\n", b"{\"name\": 1}")).await;
    let reply = client.reply().await;
    assert_eq!(400, reply.status, "{}", reply.text());
    front.settle().await;
    assert!(replica.calls.try_recv().is_err(), "a replica was asked");
    assert_eq!(1, front.stat("answered_here"));
    assert_eq!(BTreeMap::from([("2xx", 1), ("4xx", 1)]), front.door("rest"));
}

/// An application that takes everything below `prefix`.
fn application(replica: &Replica, prefix: &str) -> DeploymentRoute {
    DeploymentRoute { deployment: "Web".to_owned(), ..http_deployment(replica, prefix) }
}

#[tokio::test]
async fn a_misspelt_method_does_not_go_to_the_application_at_the_root() {
    let (things_replica, mut web) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let json = "content-type: application/json\r\n";
    let misspelt = post("/things.v1.Things/Ehco", json, b"{}");
    let front = Front::start(vec![things(&things_replica), application(&web, "/")]);
    let mut client = Http1::connect(&front).await;
    client.send(&misspelt).await;
    let reply = client.reply().await;
    assert_eq!(404, reply.status);
    assert!(reply.text().contains("did you mean /things.v1.Things/Echo?"), "{}", reply.text());
    assert!(web.calls.try_recv().is_err(), "the application was asked");

    // The application gets all requests that match no service, and those that no client of a
    // service sends.
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for request in
        [post("/other.Things/Ehco", json, b"{}"), post("/things.v1.Things/Ehco", form, b"")]
    {
        client.send(request).await;
        answer(web.next().await, "of the application");
        assert_eq!("of the application", client.reply().await.text());
    }
    front.settle().await;

    // A prefix of exactly that name takes precedence.
    let front = Front::start(vec![things(&things_replica), application(&web, "/things.v1.Things")]);
    let mut client = Http1::connect(&front).await;
    client.send(&misspelt).await;
    answer(web.next().await, "of the application");
    assert_eq!("of the application", client.reply().await.text());
    front.settle().await;
}

/// A front that admits only callers of `path`.
async fn guarded(path: &str) -> (Replica, Front) {
    let replica = Replica::start("r-1").await;
    let table = table(TOKEN);
    table.apply(vec![things(&replica)]);
    let rule = AccessRule {
        name: "some".to_owned(),
        paths: vec![PathPattern::parse(path).unwrap()],
        applications: None,
        identities: None,
        token_hashes: None,
        anonymous: true,
    };
    let access = Access::new(AccessPolicy::new(vec![rule], false).unwrap());
    let config = IngressConfig { access: Some(access), ..IngressConfig::default() };
    (replica, Front::configured(table, config))
}

async fn rest_echo(front: &Front) -> Http1Reply {
    let mut client = Http1::connect(front).await;
    client.send(post("/v1/echo", "content-type: application/json\r\n", b"{}")).await;
    client.reply().await
}

#[tokio::test]
async fn access_to_a_rest_path_is_that_to_its_method() {
    let (mut replica, front) = guarded(GET).await;
    let mut client = Http1::connect(&front).await;
    client.get("/v1/things/a").await;
    serve(replica.next().await, GET).await;
    assert_eq!(200, client.reply().await.status);
    assert_eq!(401, rest_echo(&front).await.status);
    front.settle().await;

    // No rule could allow its own path.
    let (mut other, front) = guarded("/v1/echo").await;
    assert_eq!(401, rest_echo(&front).await.status);
    front.settle().await;
    for replica in [&mut replica, &mut other] {
        assert!(replica.calls.try_recv().is_err(), "a replica was asked");
    }
}

#[tokio::test]
async fn a_slow_json_client_takes_no_place_before_its_message_is_here() {
    let (mut replica, front) = one_thing().await;
    let mut slow = Http1::connect(&front).await;
    slow.send(format!(
        "POST {ECHO} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n8\r\n{{\"name\":\r\n"
    ))
    .await;
    until("the slow request to be seen", || front.stat("in_flight") == 1).await;
    let mut other = Http1::connect(&front).await;
    other.get("/v1/things/a").await;
    serve(replica.next().await, GET).await;
    assert_eq!(200, other.reply().await.status);
    until("its place to be free", || front.table.stats()[0].router.in_flight == 0).await;
    slow.send("5\r\n \"a\"}\r\n0\r\n\r\n").await;
    assert_eq!(THING_A, serve(replica.next().await, ECHO).await);
    assert_eq!(r#"{"name":"a"}"#, slow.reply().await.text());
    front.settle().await;
    for door in ["json", "rest"] {
        assert_eq!(BTreeMap::from([("2xx", 1)]), front.door(door));
    }
}

/// A front that keeps records of failed calls and of those that are asked for.
struct Recording {
    replica: Replica,
    records: Arc<CallRecords>,
    front: Front,
    client: Http1,
}

impl Recording {
    async fn start() -> Self {
        let replica = Replica::start("r-1").await;
        let records = Arc::new(CallRecords::new(None, 0, false));
        let table = RoutingTable::recorded(table_config(TOKEN), Some(Arc::clone(&records)));
        table.apply(vec![things(&replica)]);
        let front = Front::over(table);
        let client = Http1::connect(&front).await;
        Self { replica, records, front, client }
    }

    async fn record(&mut self) -> CallRecord {
        self.front.settle().await;
        let mut records = self.records.take(usize::MAX);
        assert_eq!(1, records.len(), "{records:?}");
        CallRecord::clone(&records.remove(0))
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_recorded_as_the_client_was_told() {
    let mut mesh = Recording::start().await;
    let json = "content-type: application/json\r\n";
    let requests = [
        (post(ECHO, json, b"{}"), "json"),
        (post(ECHO, &format!("{json}connect-protocol-version: 1\r\n"), b"{}"), "connect"),
        (post("/v1/echo", json, b"{}"), "rest"),
    ];
    for (request, door) in requests {
        mesh.client.send(request).await;
        let mut incoming = mesh.replica.next().await;
        incoming.read_all().await;
        incoming.reply(THING_OF_NO_TIME);
        let reply = mesh.client.reply().await;
        assert_eq!(500, reply.status, "{}", reply.text());
        let record = mesh.record().await;
        assert_eq!((door, 13, KeptFor::Failed), (record.door, record.code, record.kept_for));
        assert!(record.reason.contains("a time is of the years"), "{}", record.reason);
        assert!(reply.text().contains(&record.reason), "{}", reply.text());
        // The replica has answered, though.
        assert_eq!(("ingress", "ok"), (record.answered_by, record.attempts[0].outcome));
        assert_eq!(BTreeMap::from([("5xx", 1)]), mesh.front.door(door));
    }
    assert_eq!((0, 3), (mesh.front.stat("forwarded"), mesh.front.stat("answered_here")));
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_recorded_as_such() {
    for is_complete in [true, false] {
        let mut mesh = Recording::start().await;
        mesh.client.get("/v1/things").await;
        let mut incoming = mesh.replica.next().await;
        let mut stream = incoming.begin();
        stream.send_data([THING_A, THING_OF_NO_TIME].concat().into(), false).unwrap();
        if is_complete {
            stream.send_trailers(ok_trailers()).unwrap();
        }
        let reply = mesh.client.reply().await;
        assert_eq!(200, reply.status);
        assert!(reply.text().contains("INTERNAL"), "{}", reply.text());
        let record = mesh.record().await;
        assert_eq!(("rest", 13, "ingress"), (record.door, record.code, record.answered_by));
        assert!(record.reason.contains("a time is of the years"), "{}", record.reason);
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_recorded_without_a_replica() {
    let mut mesh = Recording::start().await;
    let headers = "content-type: application/json\r\nx-pyserve-explain: 1\r\n";
    for path in [ECHO, "/v1/echo"] {
        mesh.client.send(post(path, headers, b"{\"name\": 1}")).await;
        let reply = mesh.client.reply().await;
        assert_eq!(400, reply.status, "{}", reply.text());
        let record = mesh.record().await;
        assert_eq!((ECHO, 3, KeptFor::Asked), (&*record.method, record.code, record.kept_for));
        assert_eq!(("ingress", 0), (record.answered_by, record.attempts.len()));
        assert_eq!("", record.reason, "payloads are not recorded");
        assert_eq!(("app", "Echo"), (&*record.application, &*record.deployment));
    }
    assert!(mesh.replica.calls.try_recv().is_err(), "a replica was asked");
}
