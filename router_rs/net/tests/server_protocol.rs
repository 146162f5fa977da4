//! The server against well-behaved and broken clients, over real sockets.

mod server_support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use router_net::link::CancelReason;
use router_net::mesh::proof;
use router_net::names;
use router_net::server::ServerConfig;
use server_support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn check(extra: &[(&str, &str)], body: Bytes, status: &str, text: &str) {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let answer = call(&mut client, request(UNARY, extra), body).await;
    assert_eq!(Some(status), answer.status.as_deref(), "{}", answer.message);
    assert!(answer.message.contains(text), "{:?} lacks {text:?}", answer.message);

    // The connection's other calls live on.
    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"after")).await;
    assert_eq!((Some("0"), &b"after"[..]), (answer.status.as_deref(), &answer.body[5..]));
    fixture.settle().await;
}

#[tokio::test]
async fn a_unary_message_comes_back() {
    check(&[], frame(0, b"hello"), "0", "").await;
    check(&[], frame(0, b""), "0", "").await;
}

#[tokio::test]
async fn none_or_two_messages_on_a_unary_call_are_unimplemented() {
    check(&[], Bytes::new(), "12", "has none").await;
    let two = [frame(0, b"a"), frame(0, b"b")].concat();
    check(&[], two.into(), "12", "has more").await;
}

#[tokio::test]
async fn broken_frames_and_timeouts_are_internal() {
    check(&[], frame(7, b"x"), "13", "flag is 7").await;
    check(&[], frame(0, b"cut short").slice(..9), "13", "inside a message").await;
    check(&[], frame(1, b"x"), "13", "flagged as compressed").await;
    check(&[("grpc-encoding", "gzip")], frame(1, b"x"), "13", "decompress").await;
    for timeout in ["", "5", "5x", "123456789S", "-1S"] {
        check(&[("grpc-timeout", timeout)], frame(0, b"x"), "13", "grpc-timeout").await;
    }
}

#[tokio::test]
async fn an_unknown_compression_is_unimplemented_and_names_the_known() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let head = request(UNARY, &[("grpc-encoding", "br")]);
    let answer = call(&mut client, head, frame(1, b"x")).await;
    assert_eq!(Some("12"), answer.status.as_deref());
    assert_eq!("identity,deflate,gzip", answer.headers["grpc-accept-encoding"]);
}

#[tokio::test]
async fn another_content_type_is_415_and_another_method_405() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let head = request(UNARY, &[("content-type", "application/json")]);
    assert_eq!(415, call(&mut client, head, Bytes::new()).await.http.as_u16());
    let mut head = request(UNARY, &[]);
    *head.method_mut() = http::Method::PUT;
    assert_eq!(405, call(&mut client, head, Bytes::new()).await.http.as_u16());
}

#[tokio::test]
async fn messages_over_a_limit_are_refused_with_size_and_limit() {
    let replica = ServerConfig { receive_bytes_max: 10, send_bytes_max: 5, ..config() };
    let server = ServerConfig { replica_id: String::new(), ..replica.clone() };
    let sent = "sent message of 6 bytes is larger than the limit of 5 bytes; to allow more, raise";
    let received =
        "received message of 11 bytes is larger than the limit of 10 bytes; to allow more, raise";
    for (limits, size, status, text) in [
        (&server, 5, "0", String::new()),
        (&server, 6, "8", format!("{sent} grpc.max_send_message_length of the server")),
        (&server, 11, "8", format!("{received} grpc.max_receive_message_length of the server")),
        (&replica, 6, "8", format!("{sent} max_send_message_bytes of the deployment")),
        (&replica, 11, "8", format!("{received} max_receive_message_bytes of the deployment")),
    ] {
        let fixture = Fixture::start(limits.clone());
        let mut client = fixture.connect().await;
        let answer = call(&mut client, request(UNARY, &[]), frame(0, &vec![0; size])).await;
        assert_eq!((Some(status), &*text), (answer.status.as_deref(), answer.message.as_str()));
        fixture.settle().await;
    }
}

#[tokio::test]
async fn resets_of_unseen_calls_do_not_end_the_connection_of_a_router() {
    let fixture = Fixture::start(ServerConfig { concurrent_streams_max: 10, ..config() });
    let mut stream = TcpStream::connect(("127.0.0.1", fixture.port)).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(http2_frame(4, 0, 0, b""));
    for id in (1..4_000).step_by(2) {
        bytes.extend(http2_frame(1, 4, id, &header_block(SILENT)));
        bytes.extend(http2_frame(3, 0, id, &8_u32.to_be_bytes()));
    }
    bytes.extend(http2_frame(6, 0, 0, b"are you?"));
    let (mut reader, mut writer) = stream.split();
    let answered = async {
        let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
        let pong = http2_frame(6, 1, 0, b"are you?");
        while !seen.windows(pong.len()).any(|window| window == pong) {
            let size = reader.read(&mut chunk).await.unwrap();
            assert_ne!(0, size, "the server closed: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&chunk[..size]);
        }
    };
    let both = async { tokio::join!(async { writer.write_all(&bytes).await.unwrap() }, answered) };
    timeout(PATIENCE, both).await.expect("a pong in time");
    fixture.settle().await;
}

#[tokio::test]
async fn metadata_over_the_limit_fails_its_call_alone() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    for (what, status, text) in [
        ("i10000", "10", "as asked"),
        ("t10000", "10", "as asked"),
        ("i50000", "8", "initial metadata of 50033 bytes is larger than the limit of 49152 bytes"),
        ("t50000", "8", "trailing metadata of 50033 bytes is larger than the limit of 49152 bytes"),
        ("t1000000", "8", "trailing metadata of 1000033 bytes is larger"),
    ] {
        let answer = call(&mut client, request(BULKY, &[]), frame(0, what.as_bytes())).await;
        assert_eq!(Some(status), answer.status.as_deref(), "{what}");
        assert!(answer.message.starts_with(text), "{what}: {}", answer.message);
        fixture.settle().await;
    }
}

#[tokio::test]
async fn a_deadline_is_answered_without_the_user() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let start = Instant::now();
    let head = request(SILENT, &[("grpc-timeout", "50m")]);
    let answer = call(&mut client, head, frame(0, b"x")).await;
    assert_eq!(Some("4"), answer.status.as_deref());
    assert!(start.elapsed() >= Duration::from_millis(50));
    fixture.settle().await;
    assert_eq!(vec![CancelReason::Deadline], *fixture.user.cancelled.lock());
}

#[tokio::test]
async fn a_reset_and_a_lost_connection_cancel_the_user() {
    let fixture = Fixture::start(config());
    for is_reset in [true, false] {
        let mut client = fixture.connect().await;
        let (response, mut stream) = client.send_request(request(SILENT, &[]), false).unwrap();
        stream.send_data(frame(0, b"x"), true).unwrap();
        let arrived = async {
            while fixture.server.in_flight() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, arrived).await.expect("the call arrives");
        if is_reset {
            stream.send_reset(h2::Reason::CANCEL);
        }
        drop((response, stream, client));
        fixture.settle().await;
    }
    assert!(fixture.user.cancelled.lock().iter().all(|reason| *reason == CancelReason::Client));
}

#[tokio::test]
async fn a_reset_frees_a_call_whose_end_waits_behind_a_message() {
    let fixture = Fixture::start(config());
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", fixture.port)).await.unwrap();
    // Without a window no message leaves, and what comes after it waits.
    let mut builder = h2::client::Builder::new();
    let handshake = builder.initial_window_size(0).handshake::<_, Bytes>(socket);
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    for _ in 0..3 {
        let (response, mut stream) = client.send_request(request(STREAM, &[]), false).unwrap();
        let two = [frame(0, b"a"), frame(0, b"b")].concat();
        stream.send_data(two.into(), true).unwrap();
        let (_, body) = timeout(PATIENCE, response).await.expect("a head").unwrap().into_parts();
        stream.send_reset(h2::Reason::CANCEL);
        drop(body);
        fixture.settle().await;
    }
    assert!(fixture.user.cancelled.lock().is_empty());
}

#[tokio::test]
async fn the_gate_refuses_the_call_beyond_its_limit() {
    let fixture = Fixture::start(ServerConfig { concurrent_calls_max: Some(1), ..config() });
    let mut client = fixture.connect().await;
    let (_held, mut stream) = client.send_request(request(SILENT, &[]), false).unwrap();
    stream.send_data(frame(0, b"x"), true).unwrap();
    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"x")).await;
    assert_eq!(Some("8"), answer.status.as_deref());
    assert!(!answer.headers.contains_key(names::REFUSED), "only routers see the marker");
    stream.send_reset(h2::Reason::CANCEL);
    fixture.settle().await;
    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"x")).await;
    assert_eq!(Some("0"), answer.status.as_deref());
}

#[tokio::test]
async fn only_a_proven_connection_sees_the_load() {
    for (token, is_trusted) in [(&b"secret"[..], true), (b"wrong", false)] {
        let fixture = Fixture::start(config());
        let mut client = fixture.connect().await;
        let hello = call(&mut client, request(names::HELLO_PATH, &[]), Bytes::new()).await;
        assert_eq!("replica-1", hello.headers[names::REPLICA_ID]);
        let nonce = proof::from_hex(hello.headers[names::NONCE].to_str().unwrap()).unwrap();
        let claim = proof::proof(token, &nonce, "replica-1");
        for expected in [if is_trusted { 200 } else { 403 }, 403] {
            let head = request(names::PROVE_PATH, &[("pyserve-proof", &claim)]);
            let answer = call(&mut client, head, Bytes::new()).await;
            assert_eq!(expected, answer.http.as_u16(), "a nonce serves once");
        }
        let answer = call(&mut client, request(UNARY, &[]), frame(0, b"x")).await;
        let load = answer.trailers.get(names::LOAD).map(|value| value.to_str().unwrap());
        // The calls that are left, the limit, and the microseconds inside.
        let is_told = load.is_some_and(|load| load.starts_with("0;4294967295;"));
        assert_eq!((is_trusted, is_trusted), (load.is_some(), is_told), "{load:?}");
    }
}

#[tokio::test]
async fn a_user_that_is_behind_stops_the_reading() {
    let fixture = Fixture::start(config());
    fixture.user.is_stalled.store(true, Ordering::SeqCst);
    let mut client = fixture.connect().await;
    let (_response, mut stream) = client.send_request(request(STREAM, &[]), false).unwrap();
    let message = frame(0, &[0; 10_000]);
    let sent = async {
        for _ in 0..1000 {
            let mut message = message.clone();
            while !message.is_empty() {
                stream.reserve_capacity(message.len());
                let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
                let room = room.expect("open").expect("open");
                stream.send_data(message.split_to(room.min(message.len())), false).unwrap();
            }
        }
    };
    assert!(timeout(Duration::from_millis(500), sent).await.is_err(), "the sender has to wait");
    let taken = fixture.user.taken_bytes.load(Ordering::SeqCst);
    assert!((64 * 1024..64 * 1024 + 10_000 + 1).contains(&taken), "{taken} bytes were delivered");
}

#[tokio::test]
async fn a_stream_is_echoed_in_order() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let messages: Vec<Bytes> = (0..300_u32).map(|i| frame(0, &vec![i as u8; 700])).collect();
    let body = messages.concat();
    let answer = call(&mut client, request(STREAM, &[]), body.clone().into()).await;
    assert_eq!(Some("0"), answer.status.as_deref());
    assert!(body == answer.body, "{} bytes for {}", answer.body.len(), body.len());
    fixture.settle().await;
}

#[tokio::test]
async fn a_call_that_comes_after_the_end_did_not_start() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"x")).await;
    assert_eq!(Some("0"), answer.status.as_deref());
    fixture.settle().await;
    assert!(fixture.server.finish());
    let (response, _stream) = client.send_request(request(UNARY, &[]), true).unwrap();
    let error = timeout(PATIENCE, response).await.expect("in time").expect_err("refused");
    assert_eq!(Some(h2::Reason::REFUSED_STREAM), error.reason());
}

#[tokio::test]
async fn draining_lets_calls_end_and_stopping_ends_them() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let (response, mut stream) = client.send_request(request(SILENT, &[]), false).unwrap();
    stream.send_data(frame(0, b"x"), true).unwrap();
    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"x")).await;
    assert_eq!(Some("0"), answer.status.as_deref());

    fixture.server.drain();
    let refused = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", fixture.port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("nobody listens any more");
    assert_eq!(1, fixture.server.in_flight());

    assert!(!fixture.server.finish(), "a call is in flight");
    fixture.server.stop();
    let response = timeout(PATIENCE, response).await.expect("in time").expect("a head");
    assert_eq!("14", response.headers()["grpc-status"]);
    fixture.settle().await;
    assert_eq!(vec![CancelReason::Shutdown], *fixture.user.cancelled.lock());
}

#[tokio::test]
async fn a_panic_ends_one_call_and_its_user_is_told() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    let (response, mut stream) = client.send_request(request(FAULTY, &[]), false).expect("stream");
    stream.send_data(frame(0, b"x"), false).expect("an open stream");
    let ended = timeout(PATIENCE, response).await.expect("an end in time");
    assert!(ended.expect_err("no answer").is_reset());
    fixture.settle().await;
    assert_eq!(vec![CancelReason::Client], *fixture.user.cancelled.lock());

    let answer = call(&mut client, request(UNARY, &[]), frame(0, b"after")).await;
    assert_eq!((Some("0"), &b"after"[..]), (answer.status.as_deref(), &answer.body[5..]));
}
