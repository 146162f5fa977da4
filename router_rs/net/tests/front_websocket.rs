//! The WebSocket protocol over HTTP/1.1 and HTTP/2: handshake, bytes both ways, and the ends.

mod front_support;
mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use front_support::{Http1, answer, one_app, one_app_limited};
use h2::ext::Protocol;
use h2::{Reason, SendStream};
use http::{Request, Response, Version};
use router_net::ingress::IngressLimits;
use support::{Front, Incoming, room, until, within};
use tokio::io::AsyncWriteExt;

/// The example of RFC 6455, 1.2, and its answer.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A text frame and a close with 1012, as a server sends them.
const TEXT: &[u8] = b"\x81\x03one";
const RESTART: &[u8] = b"\x88\x02\x03\xf4";

fn handshake(headers: &str) -> String {
    format!(
        "GET /app/ws?x=1 HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n{headers}\r\n"
    )
}

/// Accepts the handshake as a replica does; returns the stream to the client.
fn accept(incoming: &mut Incoming) -> SendStream<Bytes> {
    let response = Response::builder().header("sec-websocket-protocol", "chat").body(()).unwrap();
    incoming.respond.send_response(response, false).unwrap()
}

/// An accepted WebSocket over HTTP/1.1: the client, the replica's call and its stream.
async fn open(
    front: &Front,
    replica: &mut support::Replica,
) -> (Http1, Incoming, SendStream<Bytes>) {
    let mut client = Http1::connect(front).await;
    client.send(handshake("")).await;
    let mut incoming = replica.next().await;
    let stream = accept(&mut incoming);
    let (status, _) = client.head().await;
    assert_eq!(101, status);
    (client, incoming, stream)
}

async fn next(incoming: &mut Incoming) -> Option<Bytes> {
    let piece = within("a piece", incoming.body.data()).await?.unwrap();
    incoming.body.flow_control().release_capacity(piece.len()).unwrap();
    Some(piece)
}

#[tokio::test]
async fn an_http1_handshake_is_a_get_at_the_replica_and_a_switch_at_the_client() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send(handshake("sec-websocket-protocol: chat, other\r\ncookie: a=1\r\n")).await;
    let mut incoming = replica.next().await;
    let head = &incoming.head;
    assert_eq!("GET", head.method);
    assert_eq!("/app/ws?x=1", head.uri.path_and_query().unwrap().as_str());
    for (name, value) in [
        ("pyserve-upgrade", "websocket"),
        ("sec-websocket-protocol", "chat, other"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-version", "13"),
        ("cookie", "a=1"),
    ] {
        assert_eq!(value, head.headers[name], "{name}");
    }
    for name in ["upgrade", "connection", "grpc-timeout"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    assert!(head.headers["pyserve-http"].to_str().unwrap().starts_with("1.1 http "));
    let mut stream = accept(&mut incoming);
    let (status, headers) = client.head().await;
    assert_eq!(101, status);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-accept", ACCEPT),
        ("sec-websocket-protocol", "chat"),
    ] {
        assert_eq!(value, headers[name], "{name}");
    }
    for word in ["one", "two"] {
        client.send(word).await;
        assert_eq!(word, next(&mut incoming).await.unwrap());
        stream.send_data(word.into(), false).unwrap();
        assert_eq!(word, client.bytes(3).await);
    }
    assert_eq!((1, 1), (front.ingress.in_flight(), front.stat("connections")));
    // The client ends its direction, then the replica its own.
    client.stream.shutdown().await.unwrap();
    assert!(next(&mut incoming).await.is_none_or(|last| last.is_empty()));
    stream.send_data("bye".into(), true).unwrap();
    assert_eq!("bye", client.rest().await);
    front.settle().await;
    until("the connection to be closed", || front.stat("connections") == 0).await;
    assert_eq!((1, 0), (front.stat("forwarded"), front.stat("cancelled_by_client")));
}

#[tokio::test]
async fn what_follows_the_handshake_at_once_is_not_lost() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send(handshake("content-length: 0\r\n") + "ear\nly").await;
    let mut incoming = replica.next().await;
    let mut stream = accept(&mut incoming);
    stream.send_data("at once".into(), false).unwrap();
    assert_eq!(101, client.head().await.0);
    assert_eq!("at once", client.bytes(7).await);
    assert_eq!("ear\nly", next(&mut incoming).await.unwrap());
    stream.send_data(Bytes::new(), true).unwrap();
    client.closed().await;
    drop(client);
    front.settle().await;
}

#[tokio::test]
async fn a_replica_that_ends_first_closes_its_direction_and_then_the_connection() {
    let (mut replica, front) = one_app().await;
    let (mut client, _incoming, mut stream) = open(&front, &mut replica).await;
    stream.send_data("bye".into(), true).unwrap();
    assert_eq!("bye", client.rest().await);
    client.stream.shutdown().await.unwrap();
    front.settle().await;
    until("the connection to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn either_sides_reset_ends_both() {
    let (mut replica, front) = one_app().await;
    let (client, mut incoming, mut stream) = open(&front, &mut replica).await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(Reason::CANCEL, incoming.reset_of(&mut stream).await);
    front.settle().await;
    let _over = incoming.body.data().await;

    let (mut client, _incoming, mut stream) = open(&front, &mut replica).await;
    stream.send_reset(Reason::INTERNAL_ERROR);
    client.closed().await;
    front.settle().await;
    until("the connections to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn a_client_of_a_replica_that_dies_is_told_to_come_again() {
    let (mut replica, front) = one_app().await;
    let (mut client, _incoming, mut stream) = open(&front, &mut replica).await;
    stream.send_data(TEXT.into(), false).unwrap();
    assert_eq!(TEXT, client.bytes(TEXT.len()).await);
    drop(replica);
    assert_eq!(RESTART, client.rest().await);
    client.stream.shutdown().await.unwrap();
    front.settle().await;
    until("the connection to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn nothing_is_added_amid_a_message_or_behind_a_close() {
    for sent in [&TEXT[..3], b"\x88\x02\x03\xe8"] {
        let (mut replica, front) = one_app().await;
        let (mut client, _incoming, mut stream) = open(&front, &mut replica).await;
        stream.send_data(sent.into(), false).unwrap();
        assert_eq!(sent, client.bytes(sent.len()).await);
        drop(replica);
        client.closed().await;
        drop(client);
        front.settle().await;
    }
}

#[tokio::test]
async fn a_refusal_is_an_ordinary_answer() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send(handshake("")).await;
    let mut incoming = replica.next().await;
    let response = Response::builder().status(403).body(()).unwrap();
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    stream.send_data("no".into(), true).unwrap();
    let reply = client.reply().await;
    assert_eq!((403, "no"), (reply.status, reply.text()));
    assert!(!reply.headers.contains_key("sec-websocket-accept"));
    front.settle().await;
    assert_eq!(1, front.stat("http_4xx"));
}

#[tokio::test]
async fn handshakes_that_nobody_can_accept_are_refused_here() {
    let (_replica, front) = one_app().await;
    for (from, to, status) in [
        ("sec-websocket-version: 13", "sec-websocket-version: 8", 426),
        (KEY, "c2hvcnQ=", 400),
        ("\r\n\r\n", "\r\ncontent-length: 1\r\n\r\nx", 400),
        ("GET /app/ws", "POST /app/ws", 400),
        ("GET /app/ws", "GET /elsewhere", 404),
    ] {
        let mut client = Http1::connect(&front).await;
        client.send(handshake("").replace(from, to)).await;
        let reply = client.reply().await;
        assert_eq!(status, reply.status, "{to}");
        let version = reply.headers.get("sec-websocket-version").map(String::as_str);
        assert_eq!((status == 426).then_some("13"), version, "{to}");
        // What follows might be frames.
        client.closed().await;
    }
    front.settle().await;
}

#[tokio::test]
async fn a_stalled_reader_stalls_the_replica_and_nobody_else_waits() {
    let (mut replica, front) = one_app().await;
    let (mut client, mut incoming, mut stream) = open(&front, &mut replica).await;
    let mut sent = 0;
    while let Some(room) = room(&mut stream, Duration::from_millis(200)).await {
        stream.send_data(vec![b'x'; room].into(), false).unwrap();
        sent += room;
        assert!(sent < 64 << 20, "nothing holds the replica back");
    }
    // The other direction goes on meanwhile.
    client.send("still here").await;
    assert_eq!("still here", next(&mut incoming).await.unwrap());
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(sent, client.rest().await.len());
    drop(client);
    front.settle().await;
}

#[tokio::test]
async fn a_websocket_over_http2_is_an_extended_connect() {
    let (mut replica, front) = one_app().await;
    let mut client = front.client().await;
    until("the server's settings", || client.send.is_extended_connect_protocol_enabled()).await;
    let request = |protocol: &'static str| {
        let mut request = Request::builder()
            .method("CONNECT")
            .version(Version::HTTP_2)
            .uri("http://test/app/ws?x=1")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-protocol", "chat")
            .body(())
            .unwrap();
        request.extensions_mut().insert(Protocol::from_static(protocol));
        request
    };
    let (response, mut body) = client.send.send_request(request("websocket"), false).unwrap();
    let mut incoming = replica.next().await;
    assert_eq!("GET", incoming.head.method);
    assert_eq!("websocket", incoming.head.headers["pyserve-upgrade"]);
    assert_eq!("chat", incoming.head.headers["sec-websocket-protocol"]);
    assert!(incoming.head.headers["pyserve-http"].to_str().unwrap().starts_with("2 http "));
    let mut stream = accept(&mut incoming);
    let response = within("the head", response).await.unwrap();
    assert_eq!(200, response.status());
    assert_eq!("chat", response.headers()["sec-websocket-protocol"]);
    assert!(!response.headers().contains_key("sec-websocket-accept"));
    let mut answer = response.into_body();
    body.send_data("to".into(), false).unwrap();
    assert_eq!("to", next(&mut incoming).await.unwrap());
    stream.send_data("fro".into(), false).unwrap();
    assert_eq!("fro", within("a piece", answer.data()).await.unwrap().unwrap());
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!("", incoming.read_all().await);
    stream.send_data(Bytes::new(), true).unwrap();
    assert!(within("the end", answer.data()).await.is_none_or(|last| last.unwrap().is_empty()));
    front.settle().await;

    let (response, _body) = client.send.send_request(request("websocket"), false).unwrap();
    let mut incoming = replica.next().await;
    let _stream = accept(&mut incoming);
    let mut answer = within("the head", response).await.unwrap().into_body();
    drop(replica);
    assert_eq!(RESTART, within("a close", answer.data()).await.unwrap().unwrap());
    assert!(within("the end", answer.data()).await.is_none_or(|last| last.unwrap().is_empty()));
    front.settle().await;

    let (response, _body) = client.send.send_request(request("connect-udp"), false).unwrap();
    assert_eq!(501, within("the head", response).await.unwrap().status());
}

#[tokio::test]
async fn a_deadline_is_for_the_acceptance_unless_the_client_says_so() {
    let (mut replica, front) = one_app().await;
    front.ingress.set_request_timeout(Some(Duration::from_millis(500)));
    let (mut client, mut incoming, mut stream) = open(&front, &mut replica).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.send("late").await;
    assert_eq!("late", next(&mut incoming).await.unwrap());
    stream.send_data(Bytes::new(), true).unwrap();
    client.closed().await;
    drop(client);

    let mut client = Http1::connect(&front).await;
    client.send(handshake("")).await;
    let mut incoming = replica.next().await;
    let reply = client.reply().await;
    assert_eq!((408, "the WebSocket was not accepted in time\n"), (reply.status, reply.text()));
    incoming.reset().await;

    let mut client = Http1::connect(&front).await;
    client.send(handshake("x-request-timeout-seconds: 1.0\r\n")).await;
    let mut incoming = replica.next().await;
    assert!(incoming.head.headers.contains_key("grpc-timeout"));
    let mut stream = accept(&mut incoming);
    assert_eq!(101, client.head().await.0);
    client.closed().await;
    incoming.reset_of(&mut stream).await;
    drop(client);
    front.settle().await;
}

#[tokio::test]
async fn a_websocket_may_rest_for_longer_than_any_body() {
    let short = Duration::from_millis(100);
    let limits = IngressLimits {
        body_timeout: short,
        keep_alive_timeout: short,
        body_bytes_max: Some(1),
        ..IngressLimits::default()
    };
    let (mut replica, front) = one_app_limited(limits).await;
    let (mut client, mut incoming, mut stream) = open(&front, &mut replica).await;
    tokio::time::sleep(3 * short).await;
    client.send("still here").await;
    assert_eq!("still here", next(&mut incoming).await.unwrap());
    stream.send_data(Bytes::new(), true).unwrap();
    client.closed().await;
    drop(client);
    front.settle().await;
}

#[tokio::test]
async fn draining_leaves_websockets_open_and_stopping_ends_them() {
    let (mut replica, front) = one_app().await;
    let (mut client, mut incoming, mut stream) = open(&front, &mut replica).await;
    front.ingress.drain();
    client.send("during").await;
    assert_eq!("during", next(&mut incoming).await.unwrap());
    front.ingress.stop();
    assert_eq!(RESTART, client.rest().await);
    incoming.reset_of(&mut stream).await;
    drop(client);
    front.settle().await;
    until("the connection to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn an_upgrade_to_anything_else_is_an_ordinary_request() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client
        .send("GET /app HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")
        .await;
    let incoming = replica.next().await;
    assert!(!incoming.head.headers.contains_key("pyserve-upgrade"));
    assert!(!incoming.head.headers.contains_key("upgrade"));
    answer(incoming, "plain");
    assert_eq!("plain", client.reply().await.text());
    front.settle().await;
}

/// So many useless frames may come at once, and so many a second.
#[tokio::test]
async fn a_flood_of_frames_that_are_of_little_use_is_read_slowly() {
    for (frame, count) in [
        (&b"\x89\x80mask"[..], 10_000),
        (b"\x8a\x80mask", 10_000),
        (b"\x00\x80mask", 14_000),
        (b"\x00\x81maskx", 14_000),
    ] {
        let (mut replica, front) = one_app().await;
        let (mut client, mut incoming, _stream) = open(&front, &mut replica).await;
        let flood = frame.repeat(100_000);
        let begun = Instant::now();
        let flooding = tokio::spawn(async move {
            // It ends when the client is dropped, or with the front.
            let _is_cut_short = client.stream.write_all(&flood).await;
            client
        });
        let mut frames = 0;
        while frames < count {
            frames += next(&mut incoming).await.expect("it is read").len() / frame.len();
        }
        // 8 192 and one piece come at once, then 2 000 a second; of control frames half as many.
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(900), "{frames} {frame:?} in {took:?}");
        flooding.abort();
    }
}

#[tokio::test]
async fn messages_and_fragments_of_a_sensible_size_are_not_held_up() {
    let fragment = [&b"\x00\xfe\x10\x00mask"[..], &[0; 4096]].concat();
    for frame in [&b"\x81\x81maskx"[..], b"\x81\x80mask", &fragment] {
        let (mut replica, front) = one_app().await;
        let (mut client, mut incoming, _stream) = open(&front, &mut replica).await;
        let flood = frame.repeat(2_000_000 / frame.len());
        let length = flood.len();
        let begun = Instant::now();
        let sending = tokio::spawn(async move { client.stream.write_all(&flood).await });
        let mut received = 0;
        while received < length {
            received += next(&mut incoming).await.expect("it is read").len();
        }
        within("all is sent", sending).await.unwrap().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
