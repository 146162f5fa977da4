//! Each limit of a front, at it and one above.

mod front_support;
mod support;

use std::time::Duration;

use bytes::Bytes;
use front_support::{Http1, answer, answer_head, http_request, one_app_limited};
use h2::Reason;
use router_net::ingress::IngressLimits;
use support::{Front, PATH, Replica, deployment, request, table, until, within};

/// Short enough to wait for, long enough for a busy machine to do something in between.
const SHORT: Duration = Duration::from_millis(500);

fn limits() -> IngressLimits {
    IngressLimits::default()
}

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once_while_all_others_are_at_work() {
    let limits = IngressLimits { connections_max: 2, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let mut first = Http1::connect(&front).await;
    let mut second = Http1::connect(&front).await;
    first.get("/app").await;
    let one = replica.next().await;
    second.get("/app").await;
    let other = replica.next().await;
    let mut third = Http1::connect(&front).await;
    third.closed().await;
    assert_eq!((2, 1), (front.stat("connections"), front.stat("connections_refused")));
    for (client, call) in [(&mut first, one), (&mut second, other)] {
        answer(call, "in");
        assert_eq!("in", client.reply().await.text());
    }
    until("both to be idle", || front.stat("rests") == 2).await;
    assert_eq!(200, Http1::connect(&front).await.fetch("/-/healthz").await.status);
    assert_eq!((1, 1), (front.stat("displaced"), front.stat("connections_refused")));
}

#[tokio::test]
async fn one_stream_too_many_is_refused_as_not_started() {
    let (mut replica, front) = one_app_limited(IngressLimits { streams_max: 2, ..limits() }).await;
    // A client that ignores the announced limit.
    let mut builder = h2::client::Builder::new();
    builder.initial_max_send_streams(3);
    let stream = tokio::net::TcpStream::connect(&front.address).await.unwrap();
    let (mut send, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let calls: Vec<_> = (0..3)
        .map(|_| send.send_request(http_request("GET", "/app", &[]), true).unwrap().0)
        .collect();
    tokio::spawn(connection);
    for _ in 0..2 {
        answer(replica.next().await, "in");
    }
    let mut ends = Vec::new();
    for call in calls {
        ends.push(match within("an end", call).await {
            Ok(response) => response.status().to_string(),
            Err(error) => error.reason().unwrap().to_string(),
        });
    }
    let refused = h2::Reason::REFUSED_STREAM.to_string();
    assert_eq!(vec!["200 OK".to_owned(), "200 OK".to_owned(), refused], ends);
}

#[tokio::test]
async fn a_head_may_be_as_large_as_the_limit_and_no_larger() {
    let limits = IngressLimits { header_bytes_max: 1000, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    for (length, expected) in [(1000, 200), (1001, 431)] {
        let mut head = "GET /app HTTP/1.1\r\nhost: x\r\nx-pad: ".to_owned();
        head += &"p".repeat(length - head.len() - 4);
        head += "\r\n\r\n";
        assert_eq!(length, head.len());
        let mut client = Http1::connect(&front).await;
        client.send(head).await;
        if expected == 200 {
            answer(replica.next().await, "");
        }
        let reply = client.reply().await;
        assert_eq!(expected, reply.status, "{length}");
        if expected == 431 {
            let limit = "larger than 1000 bytes (PYSERVE_INGRESS_MAX_HEADER_BYTES)";
            assert!(reply.text().contains(limit), "{}", reply.text());
            client.closed().await;
        }
    }
    until("the one to be counted", || front.stat("header_bytes_exceeded") == 1).await;
    front.settle().await;
}

/// What RFC 9113 (6.5.2) counts for the request of the next test, without the padding's value.
fn http2_head_bytes() -> usize {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", "/app"),
        ("x-pad", ""),
    ];
    fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
}

#[tokio::test]
async fn an_http2_head_may_be_as_large_as_the_limit_and_no_larger() {
    let limits = IngressLimits { header_bytes_max: 1000, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let client = front.client().await;
    // h2's client does not enforce the announced limit, so the front has to.
    for (length, expected) in [(1000, 200), (1001, 431), (4000, 431), (1000, 200)] {
        let padding = "p".repeat(length - http2_head_bytes());
        let call = client.start(http_request("GET", "/app", &[("x-pad", &padding)]), true);
        if expected == 200 {
            answer(replica.next().await, "");
        }
        assert_eq!(expected, call.reply().await.http, "{length}");
    }
    // h2's own bound: it accepts a limited amount to answer one stream.
    let padding = "p".repeat(5000 - http2_head_bytes());
    let call = client.start(http_request("GET", "/app", &[("x-pad", &padding)]), true);
    let error = within("the end of the connection", call.try_reply()).await.unwrap_err();
    assert!(error.is_go_away() && error.is_remote(), "{error}");
    assert_eq!(Some(Reason::ENHANCE_YOUR_CALM), error.reason());
    front.settle().await;
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let limits = IngressLimits { body_bytes_max: Some(10), ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    for (body, is_allowed) in [("0123456789", true), ("0123456789a", false)] {
        let length = body.len();
        for request in [
            format!("content-length: {length}\r\n\r\n{body}"),
            format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
        ] {
            let mut client = Http1::connect(&front).await;
            client.send(format!("POST /app HTTP/1.1\r\nhost: x\r\n{request}")).await;
            if is_allowed {
                let mut incoming = replica.next().await;
                assert_eq!(body, incoming.read_all().await);
                answer(incoming, "");
            }
            let reply = client.reply().await;
            assert_eq!(if is_allowed { 200 } else { 413 }, reply.status, "{request:?}");
            if !is_allowed {
                let expected =
                    "the request's body is larger than 10 bytes (PYSERVE_INGRESS_MAX_BODY_BYTES)\n";
                assert_eq!(expected, reply.text());
            }
        }
    }
    front.settle().await;
    assert_eq!(2, front.stat("body_bytes_exceeded"));
    // A streaming call is many messages, which have limits of their own.
    let replica = Replica::start("r-2").await;
    front.table.apply(vec![deployment(vec![replica.route(1)])]);
    let mut replica = replica;
    let call = front.client().await.unary(request(PATH), "0123456789abcdef");
    let mut incoming = replica.next().await;
    assert_eq!(16, incoming.read_all().await.len());
    incoming.reply("");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_ends_its_connection() {
    let limits = IngressLimits { header_timeout: SHORT, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let mut silent = Http1::connect(&front).await;
    let mut partial = Http1::connect(&front).await;
    partial.send("GET /app HTTP/1.1\r\nhost: ").await;
    let mut preface = Http1::connect(&front).await;
    preface.send("PRI * HTTP/2.0\r\n").await;
    for client in [&mut silent, &mut partial, &mut preface] {
        client.closed().await;
    }
    until("all three to be counted", || front.stat("header_timeouts") == 3).await;
    // A second head has its time, too; a request that is answered late does not count.
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let incoming = replica.next().await;
    tokio::time::sleep(2 * SHORT).await;
    answer(incoming, "late");
    assert_eq!("late", client.reply().await.text());
    client.send("GET /app").await;
    client.closed().await;
    until("the fourth to be counted", || front.stat("header_timeouts") == 4).await;
    until("all to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn a_connection_waits_for_its_next_request_for_its_time() {
    let limits = IngressLimits { keep_alive_timeout: SHORT, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let mut client = Http1::connect(&front).await;
    for _ in 0..3 {
        client.get("/app").await;
        answer(replica.next().await, "in time");
        assert_eq!("in time", client.reply().await.text());
        tokio::time::sleep(SHORT / 4).await;
    }
    client.closed().await;
    assert_eq!((1, 0), (front.stat("keep_alive_timeouts"), front.stat("header_timeouts")));
}

#[tokio::test]
async fn an_idle_http2_connection_is_told_to_go() {
    let limits = IngressLimits { idle_timeout: SHORT, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let client = front.client().await;
    let call = client.start(http_request("GET", "/app", &[]), true);
    let incoming = replica.next().await;
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(0, front.stat("idle_timeouts"), "a request is under way");
    answer(incoming, "");
    assert_eq!(200, call.reply().await.http);
    let end = within("the end of the connection", client.connection).await.unwrap();
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(1, front.stat("idle_timeouts"));
    until("it to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_answered_408() {
    let limits = IngressLimits { body_timeout: SHORT, ..limits() };
    let (mut replica, front) = one_app_limited(limits).await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nhalf").await;
    let mut incoming = replica.next().await;
    let reply = client.reply().await;
    assert_eq!(408, reply.status);
    assert!(reply.text().contains("nothing of the request's body"), "{}", reply.text());
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    assert_eq!(1, front.stat("body_timeouts"));
    // A client that has sent everything may wait as long as it likes.
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let incoming = replica.next().await;
    tokio::time::sleep(2 * SHORT).await;
    answer(incoming, "late");
    assert_eq!("late", client.reply().await.text());
    front.settle().await;
}

/// Keeps giving data to a call until the front resets it.
async fn give_until_reset(mut incoming: support::Incoming) {
    let mut stream = incoming.begin();
    let given = async {
        while let Some(room) = support::room(&mut stream, Duration::from_secs(10)).await {
            stream.send_data(vec![b'x'; room].into(), false).unwrap();
        }
    };
    // The stream ends in a panic of `room` or by its reset; the latter is what is waited for.
    let _not_awaited = tokio::time::timeout(SHORT / 2, given).await;
    let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
    within("the reset of the call", reset).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_nobody_takes_ends() {
    let limits = IngressLimits { body_timeout: 2 * SHORT, ..limits() };
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(100)]);
    route.http_prefixes = vec!["/app".to_owned()];
    let table = table(support::TOKEN);
    table.apply(vec![route]);
    let config = router_net::ingress::IngressConfig {
        limits,
        ..router_net::ingress::IngressConfig::default()
    };
    let front = Front::configured(table, config);

    let mut plain = Http1::connect(&front).await;
    plain.get("/app").await;
    give_until_reset(replica.next().await).await;
    assert_eq!(1, front.stat("body_timeouts"));

    let client = front.client().await;
    let plain = client.start(http_request("GET", "/app", &[]), true);
    give_until_reset(replica.next().await).await;
    assert_eq!(2, front.stat("body_timeouts"));

    let grpc = client.unary(request(PATH), "go");
    give_until_reset(replica.next().await).await;
    assert_eq!(3, front.stat("body_timeouts"));
    drop((plain, grpc));
    front.settle().await;
}

#[tokio::test]
async fn grpc_streams_may_rest_for_longer_than_any_body() {
    let limits = IngressLimits { body_timeout: SHORT, ..limits() };
    let (_replica, front) = one_app_limited(limits).await;
    let mut replica = Replica::start("r-2").await;
    front.table.apply(vec![deployment(vec![replica.route(1)])]);
    let mut call = front.client().await.start(request(PATH), false);
    let mut incoming = replica.next().await;
    tokio::time::sleep(2 * SHORT).await;
    call.body.send_data("late".into(), true).unwrap();
    assert_eq!("late", incoming.read_all().await);
    incoming.reply("ok");
    assert_eq!(0, call.reply().await.status());
    front.settle().await;
}

#[tokio::test]
async fn answers_without_a_body_count_by_their_class() {
    let (mut replica, front) = one_app_limited(limits()).await;
    let mut client = Http1::connect(&front).await;
    for status in [204, 304, 404, 500] {
        client.get("/app").await;
        answer_head(replica.next().await, status, &[]);
        let (answered, headers) = client.head().await;
        assert_eq!(status, answered);
        let expected = if status < 400 { None } else { Some("0") };
        assert_eq!(expected, headers.get("content-length").map(String::as_str), "{status}");
    }
    front.settle().await;
    for class in ["http_2xx", "http_3xx", "http_4xx", "http_5xx"] {
        assert_eq!(1, front.stat(class), "{class}");
    }
}
