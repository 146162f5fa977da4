//! Bodies that come slowly: a request is offered to a replica when enough of it is here.

mod front_support;
mod support;

use std::time::Duration;

use front_support::{Http1, answer, http_deployment, http_request, one_app_limited};
use http::StatusCode;
use router_net::ingress::{IngressConfig, IngressLimits};
use support::{Front, Replica, TOKEN, table, until};

/// Short enough to wait for, long enough for a busy machine to do something in between.
const SHORT: Duration = Duration::from_millis(300);

/// The longest body that is awaited whole.
const SMALL_BYTES: usize = 64 * 1024;

fn limits() -> IngressLimits {
    IngressLimits::default()
}

/// A replica that takes one request at a time, and a front that lets no request queue for it.
async fn one_place() -> (Replica, Front) {
    let replica = Replica::start("r-1").await;
    let mut route = http_deployment(&replica, "/app");
    route.replicas = vec![replica.route(1)];
    route.max_queued_requests = 0;
    (replica, Front::start(vec![route]))
}

async fn serve_another(replica: &mut Replica, front: &Front) {
    let mut other = Http1::connect(front).await;
    other.get("/app/other").await;
    let incoming = replica.next().await;
    assert_eq!("/app/other", incoming.head.uri.path());
    answer(incoming, "other");
    assert_eq!("other", other.reply().await.text());
    until("its place to be free", || front.table.stats()[0].router.in_flight == 0).await;
}

#[tokio::test]
async fn a_slow_http1_client_takes_no_place_before_its_body_is_here() {
    let (mut replica, front) = one_place().await;
    let mut slow = Http1::connect(&front).await;
    slow.send("POST /app/slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n").await;
    for part in ["", "hal", "f"] {
        slow.send(part).await;
        until("the slow request to be seen", || front.stat("in_flight") == 1).await;
        serve_another(&mut replica, &front).await;
    }
    slow.send("whole!").await;
    let mut incoming = replica.next().await;
    assert_eq!("halfwhole!", incoming.read_all().await);
    answer(incoming, "served");
    assert_eq!("served", slow.reply().await.text());
    front.settle().await;
}

#[tokio::test]
async fn a_slow_http2_client_takes_no_place_before_its_body_is_here() {
    let (mut replica, front) = one_place().await;
    let client = front.client().await;
    let head = http_request("POST", "/app/slow", &[("content-length", "10")]);
    let mut slow = client.start(head, false);
    for part in ["", "hal", "f"] {
        slow.body.send_data(part.into(), false).unwrap();
        until("the slow request to be seen", || front.stat("in_flight") == 1).await;
        serve_another(&mut replica, &front).await;
    }
    slow.body.send_data("whole!".into(), true).unwrap();
    let mut incoming = replica.next().await;
    assert_eq!("halfwhole!", incoming.read_all().await);
    answer(incoming, "served");
    assert_eq!("served", slow.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn a_client_that_is_told_to_go_on_goes_on() {
    let (mut replica, front) = one_place().await;
    let mut client = Http1::connect(&front).await;
    let head = "POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    client.send(head).await;
    assert_eq!(100, client.head().await.0);
    serve_another(&mut replica, &front).await;
    client.send("body").await;
    let mut incoming = replica.next().await;
    assert_eq!("body", incoming.read_all().await);
    answer(incoming, "served");
    assert_eq!("served", client.reply().await.text());
    front.settle().await;
}

#[tokio::test]
async fn a_long_body_is_asked_for_when_a_replica_takes_it() {
    let (mut replica, front) = one_place().await;
    let mut holder = Http1::connect(&front).await;
    holder.get("/app").await;
    let held = replica.next().await;
    let head =
        "POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\nexpect: 100-continue\r\n\r\n";
    let mut client = Http1::connect(&front).await;
    client.send(head).await;
    assert_eq!(503, client.reply().await.status, "it is not told to go on");
    answer(held, "");
    holder.reply().await;
    front.settle().await;

    let mut client = Http1::connect(&front).await;
    client.send(head).await;
    let mut incoming = replica.next().await;
    assert_eq!(100, client.head().await.0);
    client.send(vec![b'x'; 100_000]).await;
    assert_eq!(100_000, incoming.read_all().await.len());
    answer(incoming, "served");
    assert_eq!("served", client.reply().await.text());
    front.settle().await;
}

#[tokio::test]
async fn a_small_body_that_stops_coming_reaches_no_replica() {
    let limits = IngressLimits { body_timeout: SHORT, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf").await;
    let reply = client.reply().await;
    assert_eq!(408, reply.status);
    assert!(reply.text().contains("nothing of the request's body"), "{}", reply.text());
    let call = front
        .client()
        .await
        .start(http_request("POST", "/app", &[("content-length", "10")]), false);
    assert_eq!(StatusCode::REQUEST_TIMEOUT, call.reply().await.http);
    front.settle().await;
    assert_eq!(2, front.stat("body_timeouts"));
    assert!(replica.calls.try_recv().is_err(), "a replica was asked");
}

#[tokio::test]
async fn a_client_that_goes_away_in_a_small_body_reaches_no_replica() {
    let (mut replica, front) = one_app_limited(limits()).await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf").await;
    let http2 = front.client().await;
    let call = http2.start(http_request("POST", "/app", &[("content-length", "10")]), false);
    until("both to be seen", || front.stat("in_flight") == 2).await;
    drop((client, call));
    front.settle().await;
    assert_eq!(2, front.stat("cancelled_by_client"));
    assert_eq!(2, front.stat("http_499"));
    assert!(replica.calls.try_recv().is_err(), "a replica was asked");
}

#[tokio::test]
async fn the_deadline_holds_while_a_body_is_awaited() {
    let (mut replica, front) = one_app_limited(limits()).await;
    let mut client = Http1::connect(&front).await;
    client
        .send(
            "POST /app HTTP/1.1\r\nhost: x\r\nx-request-timeout-seconds: 0.05\r\n\
             content-length: 10\r\n\r\nhalf",
        )
        .await;
    let reply = client.reply().await;
    assert_eq!((408, "the deadline has passed\n"), (reply.status, reply.text()));
    front.settle().await;
    assert!(replica.calls.try_recv().is_err(), "a replica was asked");
}

#[tokio::test]
async fn a_long_body_is_passed_on_from_its_first_piece() {
    let (mut replica, front) = one_app_limited(limits()).await;
    // At the limit all is awaited, above it the start.
    for (length, is_awaited) in [(SMALL_BYTES, true), (SMALL_BYTES + 1, false)] {
        let body = vec![b'x'; length];
        let mut client = Http1::connect(&front).await;
        let head = format!("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        client.send(head).await;
        client.send(&body[..length - 1]).await;
        let early = if is_awaited {
            let early = tokio::time::timeout(SHORT, replica.calls.recv()).await;
            assert!(early.is_err(), "offered without its last byte");
            None
        } else {
            Some(replica.next().await)
        };
        client.send(&body[length - 1..]).await;
        let mut incoming = match early {
            Some(incoming) => incoming,
            None => replica.next().await,
        };
        assert_eq!(body, incoming.read_all().await);
        answer(incoming, "served");
        assert_eq!("served", client.reply().await.text());
    }
    // Of unknown length, and with the pieces of a client that waits for answers in between.
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.send("4\r\nfirs\r\n").await;
    let mut incoming = replica.next().await;
    client.send("1\r\nt\r\n0\r\n\r\n").await;
    assert_eq!("first", incoming.read_all().await);
    answer(incoming, "served");
    assert_eq!("served", client.reply().await.text());
    front.settle().await;
}

#[tokio::test]
async fn who_wants_to_hear_first_is_offered_and_may_wait_for_a_place() {
    let mut replica = Replica::start("r-1").await;
    let mut route = http_deployment(&replica, "/app");
    route.replicas = vec![replica.route(1)];
    let table = table(TOKEN);
    table.apply(vec![route]);
    let limits = IngressLimits { body_timeout: SHORT, ..limits() };
    let front = Front::configured(table, IngressConfig { limits, ..IngressConfig::default() });
    let mut holder = Http1::connect(&front).await;
    holder.get("/app").await;
    let held = replica.next().await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    until("it to wait for a place", || front.parked() == 1).await;
    client.send("5\r\nfirst\r\n").await;
    // Now the wait is not the client's fault.
    tokio::time::sleep(2 * SHORT).await;
    answer(held, "");
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    assert_eq!(200, client.head().await.0);
    client.send("0\r\n\r\n").await;
    assert_eq!("first", incoming.read_all().await);
    stream.send_data("served".into(), true).unwrap();
    assert_eq!("served", client.chunk().await);
    assert_eq!(200, holder.reply().await.status);
    front.settle().await;
    assert_eq!(0, front.stat("body_timeouts"));
}
