//! Flow control, cancellation, deadlines and failures of plain HTTP.

mod front_support;
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use front_support::{
    Http1, answer, answer_head, http_deployment, http_request, one_app, one_app_with,
};
use h2::Reason;
use http::{HeaderName, HeaderValue};
use router_net::grpc::parse_timeout;
use router_net::ingress::IngressConfig;
use support::{Front, Incoming, Replica, room, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Without room for this long, a stream counts as stalled.
const STALLED: Duration = Duration::from_millis(200);

/// Far more than all buffers between a replica and a client hold.
const FAR_TOO_MUCH_BYTES: usize = 64 << 20;

/// Sends until no more is accepted; returns how much was.
async fn fill(incoming: &mut Incoming) -> (h2::SendStream<Bytes>, usize) {
    let mut stream = incoming.begin();
    let mut sent = 0;
    while let Some(room) = room(&mut stream, STALLED).await {
        stream.send_data(vec![b'x'; room].into(), false).unwrap();
        sent += room;
        assert!(sent < FAR_TOO_MUCH_BYTES, "nothing holds the replica back");
    }
    (stream, sent)
}

#[tokio::test]
async fn an_http1_client_that_does_not_read_stalls_the_replica() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let mut incoming = replica.next().await;
    let (mut stream, sent) = fill(&mut incoming).await;
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(sent, client.reply().await.body.len());
    front.settle().await;
}

#[tokio::test]
async fn an_http2_client_that_does_not_read_stalls_the_replica() {
    let (mut replica, front) = one_app().await;
    let client = front.client().await;
    let call = client.start(http_request("GET", "/app", &[]), true);
    let mut incoming = replica.next().await;
    let (mut stream, sent) = fill(&mut incoming).await;
    assert!(sent <= (1 << 20) + (512 << 10), "{sent} bytes beyond two windows");
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(sent, call.reply().await.body.len());
    front.settle().await;
}

#[tokio::test]
async fn a_replica_that_does_not_read_stalls_an_http1_client() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n").await;
    let incoming = replica.next().await;
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    while let Ok(written) = tokio::time::timeout(STALLED, client.stream.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < FAR_TOO_MUCH_BYTES, "nothing holds the client back");
    }
    drop(client);
    drop(incoming);
    front.settle().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_request() {
    let (mut replica, front) = one_app().await;
    // Over HTTP/1.1: before the answer, and in it.
    for has_begun in [false, true] {
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        let mut incoming = replica.next().await;
        let reason = if has_begun {
            let mut stream = incoming.begin();
            client.head().await;
            drop(client);
            incoming.reset_of(&mut stream).await
        } else {
            drop(client);
            incoming.reset().await
        };
        assert_eq!(Reason::CANCEL, reason);
    }
    // Over HTTP/2 as well, on a connection that stays.
    let client = front.client().await;
    for has_begun in [false, true] {
        let call = client.start(http_request("GET", "/app", &[]), true);
        let mut incoming = replica.next().await;
        let reason = if has_begun {
            let mut stream = incoming.begin();
            let answer = within("the head", call.response).await.unwrap();
            drop((answer, call.body));
            incoming.reset_of(&mut stream).await
        } else {
            drop(call);
            incoming.reset().await
        };
        assert_eq!(Reason::CANCEL, reason);
    }
    front.settle().await;
    assert_eq!(4, front.stat("cancelled_by_client"));
    assert_eq!((2, 2), (front.stat("http_499"), front.stat("http_2xx")));
}

#[tokio::test]
async fn a_client_that_goes_away_in_its_body_cancels_its_request() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nhalf").await;
    let mut incoming = replica.next().await;
    drop(client);
    assert_eq!(Reason::CANCEL, incoming.reset().await);
    front.settle().await;
}

#[tokio::test]
async fn a_request_may_go_on_without_its_client() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("GET /app HTTP/1.1\r\nhost: x\r\nx-request-disconnect-disabled: ?1\r\n\r\n").await;
    let first = replica.next().await;
    drop(client);
    let client = front.client().await;
    let headers = [("x-request-disconnect-disabled", "?1")];
    let call = client.start(http_request("GET", "/app", &headers), true);
    let second = replica.next().await;
    drop(call);
    until("the first connection to be closed", || front.stat("connections") == 1).await;
    for mut incoming in [first, second] {
        let mut stream = incoming.begin();
        for _ in 0..64 {
            let room = room(&mut stream, Duration::from_secs(10)).await.expect("it goes on");
            stream.send_data(vec![b'x'; room].into(), false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
    }
    front.settle().await;
    assert_eq!((2, 0), (front.stat("forwarded"), front.stat("cancelled_by_client")));
    assert_eq!(2, front.stat("http_499"));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_to_be_incomplete() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    stream.send_data("some".into(), false).unwrap();
    client.head().await;
    assert_eq!("some", client.chunk().await);
    stream.send_reset(Reason::INTERNAL_ERROR);
    assert_eq!("", client.rest().await, "no last chunk");

    let client = front.client().await;
    let call = client.start(http_request("GET", "/app", &[]), true);
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    let mut body = within("the head", call.response).await.unwrap().into_body();
    stream.send_reset(Reason::INTERNAL_ERROR);
    let broken = within("the end", body.data()).await.expect("an end").unwrap_err();
    assert_eq!(Some(Reason::INTERNAL_ERROR), broken.reason());
    front.settle().await;
}

#[tokio::test]
async fn what_was_written_before_a_break_arrives() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    stream.send_data("some".into(), false).unwrap();
    let broken = [(HeaderName::from_static("pyserve-broken"), HeaderValue::from_static("1"))];
    stream.send_trailers(broken.into_iter().collect()).unwrap();
    client.head().await;
    assert_eq!("some", client.chunk().await);
    assert_eq!("", client.rest().await, "no last chunk");
    front.settle().await;
}

#[tokio::test]
async fn a_replica_may_work_on_after_its_whole_answer() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let mut incoming = replica.next().await;
    let response = http::Response::builder().header("content-length", "4").body(()).unwrap();
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    stream.send_data("done".into(), false).unwrap();
    assert_eq!("done", client.reply().await.text());
    // The connection serves the next request while this one has not ended at the replica.
    client.get("/app/next").await;
    answer(replica.next().await, "next");
    assert_eq!("next", client.reply().await.text());
    let mut trailers = http::HeaderMap::new();
    trailers.insert("pyserve-load", HeaderValue::from_static("0;9"));
    stream.send_trailers(trailers).unwrap();
    front.settle().await;
    assert_eq!((2, 0), (front.stat("forwarded"), front.stat("cancelled_by_client")));
}

fn timeout_at_replica(incoming: &Incoming) -> Option<f64> {
    let value = incoming.head.headers.get("grpc-timeout")?;
    Some(parse_timeout(value.as_bytes()).unwrap().as_secs_f64())
}

#[tokio::test]
async fn the_clients_timeout_wins_over_the_deployments_and_that_over_the_ingresss() {
    let mut replica = Replica::start("r-1").await;
    let mut bounded = http_deployment(&replica, "/bounded");
    bounded.request_timeout = Some(Duration::from_secs(20));
    bounded.application = "bounded".to_owned();
    let front = Front::start(vec![http_deployment(&replica, "/free"), bounded]);
    let mut client = Http1::connect(&front).await;
    front.ingress.set_request_timeout(Some(Duration::from_secs(50)));
    for (path, header, expected) in [
        ("/free", "", Some(50.0)),
        ("/bounded", "", Some(20.0)),
        ("/bounded", "x-request-timeout-seconds: 30\r\n", Some(30.0)),
        ("/bounded", "x-request-timeout-seconds: 10\r\n", Some(10.0)),
        ("/bounded", "x-request-timeout-seconds: 0\r\n", None),
        ("/free", "X-Request-Timeout-Seconds: -1\r\n", None),
        // A duration that reaches further than the clock can count.
        ("/bounded", "x-request-timeout-seconds: 1e19\r\n", None),
        ("/free", "grpc-timeout: 5S\r\n", Some(5.0)),
    ] {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n{header}\r\n")).await;
        let incoming = replica.next().await;
        let left = timeout_at_replica(&incoming);
        match (expected, left) {
            (None, None) => {}
            (Some(expected), Some(left)) => {
                assert!(left <= expected && left > expected - 2.0, "{path} {header}: {left}");
            }
            other => panic!("{path} {header}: {other:?}"),
        }
        answer(incoming, "");
        client.reply().await;
    }
    front.ingress.set_request_timeout(None);
    client.get("/free").await;
    let incoming = replica.next().await;
    assert_eq!(None, timeout_at_replica(&incoming));
    answer(incoming, "");
    client.reply().await;
    front.settle().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_408() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("GET /app HTTP/1.1\r\nhost: x\r\nx-request-timeout-seconds: 0.05\r\n\r\n").await;
    let mut incoming = replica.next().await;
    let reply = client.reply().await;
    assert_eq!((408, "the deadline has passed\n"), (reply.status, reply.text()));
    assert_eq!("ingress", reply.headers["pyserve-answered-by"]);
    assert_eq!(Reason::CANCEL, incoming.reset().await);
    // The connection is as good as before.
    client.get("/app").await;
    answer(replica.next().await, "again");
    assert_eq!("again", client.reply().await.text());
    front.settle().await;
    assert_eq!(1, front.stat("http_4xx"));
}

#[tokio::test]
async fn a_full_queue_is_answered_as_the_deployment_wishes() {
    let mut replica = Replica::start("r-1").await;
    for (status, expected) in [(503, 503), (429, 429)] {
        let mut route = http_deployment(&replica, "/app");
        route.replicas = vec![replica.route(1)];
        route.max_queued_requests = 0;
        route.queue_full_status = http::StatusCode::from_u16(status).unwrap();
        let front = Front::start(vec![route]);
        let mut holder = Http1::connect(&front).await;
        holder.get("/app").await;
        let held = replica.next().await;
        let reply = Http1::connect(&front).await.fetch("/app").await;
        assert_eq!(expected, reply.status);
        assert_eq!("1", reply.headers["retry-after"]);
        assert!(reply.text().contains("max_queued_requests"), "{}", reply.text());
        answer(held, "");
        holder.reply().await;
        front.settle().await;
    }
}

#[tokio::test]
async fn a_refused_request_goes_elsewhere_with_its_body() {
    let mut first = Replica::start("r-1").await;
    let mut second = Replica::start("r-2").await;
    let mut route = http_deployment(&first, "/app");
    route.replicas.push(second.route(100));
    let front = Front::start(vec![route]);
    let mut client = Http1::connect(&front).await;
    // Which one is asked first is random; in the end each is.
    for _ in 0..8 {
        client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody").await;
        let mut incoming = within("a call", async {
            tokio::select! {
                refused = first.next() => { refused.refuse(); second.next().await }
                taken = second.next() => taken,
            }
        })
        .await;
        assert_eq!("body", incoming.read_all().await);
        answer(incoming, "taken");
        assert_eq!("taken", client.reply().await.text());
    }
    front.settle().await;
}

#[tokio::test]
async fn a_replica_that_cannot_be_reached_is_answered_503() {
    let replica = Replica::start("r-1").await;
    let mut route = http_deployment(&replica, "/app");
    // The port is bound, so that no other process gets it meanwhile, but not listening.
    let nobody = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    nobody.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = nobody.local_addr().unwrap().as_socket().unwrap();
    route.replicas[0].address = address.to_string();
    route.request_timeout = Some(Duration::from_millis(300));
    let front = Front::start(vec![route]);
    let reply = Http1::connect(&front).await.fetch("/app").await;
    assert!(matches!(reply.status, 503 | 408), "{reply:?}");
    assert_eq!("ingress", reply.headers["pyserve-answered-by"]);
    front.settle().await;
}

#[tokio::test]
async fn what_the_replicas_native_half_says_in_its_own_name_comes_through() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    for (said, expected) in [("replica", Some("replica")), ("impostor", None)] {
        client.get("/app").await;
        let headers = [("pyserve-answered-by", said), ("pyserve-load", "1;2")];
        answer_head(replica.next().await, 503, &headers);
        let reply = client.reply().await;
        assert_eq!(503, reply.status);
        let answered_by = reply.headers.get("pyserve-answered-by").map(String::as_str);
        assert_eq!(expected, answered_by);
        assert!(!reply.headers.contains_key("pyserve-load"));
    }
    front.settle().await;
}

#[tokio::test]
async fn draining_closes_connections_that_wait_and_lets_requests_end() {
    let (mut replica, front) = one_app_with(IngressConfig::default()).await;
    let mut used = Http1::connect(&front).await;
    used.get("/app").await;
    answer(replica.next().await, "");
    used.reply().await;
    let mut fresh = Http1::connect(&front).await;
    let mut busy = Http1::connect(&front).await;
    busy.get("/app").await;
    let held = replica.next().await;
    until("three connections", || front.stat("connections") == 3).await;
    front.ingress.drain();
    used.closed().await;
    fresh.closed().await;
    answer(held, "last");
    let reply = busy.reply().await;
    assert_eq!((200, "last", "close"), (reply.status, reply.text(), &*reply.headers["connection"]));
    busy.closed().await;
    front.settle().await;
    let is_closed = || std::net::TcpStream::connect(&front.address).is_err();
    until("the port to be closed", is_closed).await;
}

#[tokio::test]
async fn health_can_be_denied_while_all_else_is_served() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    front.ingress.set_healthy(false);
    assert_eq!(503, client.fetch("/-/healthz").await.status);
    client.get("/app").await;
    answer(replica.next().await, "served");
    assert_eq!("served", client.reply().await.text());
    front.ingress.set_healthy(true);
    assert_eq!(200, client.fetch("/-/healthz").await.status);
}

#[tokio::test]
async fn stopping_answers_what_is_left() {
    let (mut replica, front) = one_app().await;
    let mut waiting = Http1::connect(&front).await;
    waiting.get("/app").await;
    let mut first = replica.next().await;
    let mut reading = Http1::connect(&front).await;
    reading.get("/app").await;
    let mut second = replica.next().await;
    let mut stream = second.begin();
    reading.head().await;
    front.ingress.stop();
    let reply = waiting.reply().await;
    assert_eq!((503, "the ingress is shutting down\n"), (reply.status, reply.text()));
    assert_eq!("", reading.rest().await, "no last chunk");
    first.reset().await;
    second.reset_of(&mut stream).await;
    until("all connections to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn one_connection_cannot_keep_its_neighbours_waiting() {
    // A client that opens calls and resets them at once, as fast as it can.
    let (mut replica, front) = one_app().await;
    let flood = front.client().await;
    let task = tokio::spawn(async move {
        for _ in 0..20_000 {
            let call = flood.send.clone().ready().await;
            let Ok(mut send) = call else { break };
            let (response, _body) =
                send.send_request(support::request("/pkg.Echo/Call"), true).unwrap();
            drop(response);
            tokio::task::yield_now().await;
        }
    });
    let mut client = Http1::connect(&front).await;
    for _ in 0..50 {
        client.get("/app").await;
        answer(replica.next().await, "fine");
        assert_eq!("fine", client.reply().await.text());
    }
    task.abort();
    let _aborted = task.await;
    front.settle().await;
    let mut buffer = [0; 1];
    let idle =
        tokio::time::timeout(Duration::from_millis(1), client.stream.read(&mut buffer)).await;
    assert!(idle.is_err(), "nothing else was sent");
}

#[tokio::test]
async fn a_call_without_an_end_goes_on_beside_the_next_and_after_its_connection() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    let mut streams = Vec::new();
    for body in ["first", "later"] {
        client.get("/app").await;
        let mut incoming = replica.next().await;
        let head = http::Response::builder().header("content-length", "5").body(()).unwrap();
        let mut stream = incoming.respond.send_response(head, false).unwrap();
        stream.send_data(Bytes::from(body), false).unwrap();
        // The client has all that was announced; the replica may have more to do.
        assert_eq!(body, client.reply().await.text());
        streams.push(stream);
    }
    client.get("/app").await;
    answer(replica.next().await, "between");
    assert_eq!("between", client.reply().await.text());
    until("two calls", || front.ingress.in_flight() == 2).await;
    drop(client);
    until("the connection to be closed", || front.stat("connections") == 0).await;
    assert_eq!(2, front.ingress.in_flight());
    for mut stream in streams {
        stream.send_data(Bytes::new(), true).unwrap();
    }
    front.settle().await;
    assert_eq!(3, front.stat("forwarded"));
}
