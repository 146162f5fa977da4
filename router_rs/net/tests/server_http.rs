//! Plain HTTP requests at the server, as an ingress forwards them.

mod http_support;
mod server_support;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_support::*;
use router_net::grpc::Code;
use router_net::link::{CREDIT_BYTES, CancelReason, Command, Mailbox};
use router_net::names;
use router_net::server::{ServedCall, Server, ServerConfig};
use server_support::{PATIENCE, config, frame, request};
use tokio::time::timeout;

#[tokio::test]
async fn a_request_comes_with_its_head_and_is_answered_whole() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let head =
        plain("PATCH", "/app/x%20y?q=%26", &[("accept", "text/html"), ("grpc-timeout", "9S")]);
    let (response, _) = client.send_request(head, true).unwrap();

    let (served_call, body) = fixture.next_call().await;
    assert_eq!((Some(vec![]), 0, 1), (body, served_call.method, fixture.server.in_flight()));
    let head = served_call.http_head().expect("plain HTTP");
    assert_eq!(("PATCH", "/app/x%20y?q=%26"), (head.method(), head.target()));
    assert_eq!(("1.1", "https", "/app"), (head.version(), head.scheme(), head.root_path()));
    assert_eq!("192.0.2.7:5", head.client().unwrap().to_string());
    let mut names = Vec::new();
    head.for_each_header(|name, value| names.push((name.to_owned(), value.to_vec())));
    let expected = [("host", "shop.example"), ("accept", "text/html")];
    assert_eq!(expected.map(|(n, v)| (n.to_owned(), v.as_bytes().to_vec())), names[..]);
    assert!(served_call.link().deadline.is_some());

    respond(&served_call, 201, &[("content-type", "text/plain"), ("x-a", "b")], b"hello");
    let answer = read(response).await.unwrap();
    assert_eq!((201, &b"hello"[..]), (answer.http.as_u16(), &answer.body[..]));
    assert_eq!(Some("b"), text(&answer.headers, "x-a"));
    assert_eq!(Some("5"), text(&answer.headers, "content-length"));
    assert!(text(&answer.headers, "pyserve-load").unwrap().starts_with("0;4294967295;"));
    assert_eq!((4, 0), (answer.headers.len(), answer.trailers.len()));
    fixture.settle().await;
}

#[tokio::test]
async fn strangers_cannot_send_plain_http() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    assert_eq!(415, call(&mut client, plain("GET", "/", &[])).await.http.as_u16());
}

#[tokio::test]
async fn a_server_without_a_handler_says_so() {
    let fixture = server_support::Fixture::start(config());
    let mut client = prove(fixture.connect().await).await;
    let answer = call(&mut client, plain("GET", "/", &[])).await;
    assert_eq!(501, answer.http.as_u16());
    assert_eq!(b"this server takes no plain HTTP requests\n", &answer.body[..]);
    assert_eq!(Some("replica"), text(&answer.headers, "pyserve-answered-by"));
    fixture.settle().await;
    assert!(fixture.user.cancelled.lock().is_empty());
}

#[tokio::test]
async fn small_announced_bodies_come_whole() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    for size in [1, WHOLE_BYTES_MAX] {
        let head = plain("POST", "/", &[("content-length", &size.to_string())]);
        let (response, mut stream) = client.send_request(head, false).unwrap();
        let content: Vec<u8> = (0..size).map(|at| at as u8).collect();
        // In two pieces: the second may come once the first has been read.
        stream.send_data(Bytes::copy_from_slice(&content[..size / 2]), false).unwrap();
        stream.send_data(Bytes::copy_from_slice(&content[size / 2..]), true).unwrap();
        let (served_call, body) = fixture.next_call().await;
        assert!(body == Some(content), "{size}");
        respond(&served_call, 200, &[], b"");
        let answer = read(response).await.unwrap();
        assert_eq!(Some("0"), text(&answer.headers, "content-length"));
        assert!(answer.headers.contains_key("pyserve-load") && answer.trailers.is_empty());
    }
    fixture.settle().await;
}

#[tokio::test]
async fn other_bodies_come_in_pieces_and_wait_for_their_reader() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let too_long = (WHOLE_BYTES_MAX + 1).to_string();
    for headers in [&[][..], &[("content-length", &too_long[..])]] {
        let (response, mut stream) =
            client.send_request(plain("PUT", "/", headers), false).unwrap();
        let (served_call, body) = fixture.next_call().await;
        assert_eq!(None, body);
        stream.send_data(vec![1; 1001].into(), true).unwrap();
        assert_eq!(Told::Piece(vec![1; 1001]), fixture.next_of_call().await);
        assert_eq!(Told::HalfClose, fixture.next_of_call().await);
        respond(&served_call, 200, &[], b"ok");
        assert_eq!(b"ok", &read(response).await.unwrap().body[..]);
    }
    fixture.settle().await;
}

#[tokio::test]
async fn a_body_that_nobody_reads_stops() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, mut stream) = client.send_request(plain("PUT", "/", &[]), false).unwrap();
    let total = 4 << 20;
    stream.send_data(vec![7; total].into(), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    let (mut came, mut behind) = (0, 0);
    while came < total {
        match fixture.next_of_call().await {
            Told::Piece(piece) => {
                came += piece.len();
                behind += piece.len();
            }
            other => panic!("{other:?}"),
        }
        // The pieces of one credit and one more are all that come without being taken.
        if behind >= CREDIT_BYTES {
            assert!(fixture.told.try_recv().is_err(), "more came than there was credit for");
            if served_call.link().take(std::mem::take(&mut behind)) {
                send(&served_call, Command::Resume);
            }
        }
    }
    assert_eq!(Told::HalfClose, fixture.next_of_call().await);
    respond(&served_call, 200, &[], b"ok");
    assert_eq!(200, read(response).await.unwrap().http.as_u16());
    fixture.settle().await;
}

#[tokio::test]
async fn answers_without_a_body_are_one_block() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let length = ("content-length", "5");
    for (method, status, headers, is_whole) in [
        ("HEAD", 200, &[length][..], true),
        ("HEAD", 200, &[], true),
        ("GET", 304, &[length], true),
        ("GET", 204, &[], true),
        ("GET", 204, &[length], true),
        ("HEAD", 204, &[], true),
        ("HEAD", 204, &[length], true),
        ("HEAD", 304, &[], true),
        ("HEAD", 304, &[length], true),
        ("HEAD", 200, &[length], false),
        ("HEAD", 204, &[length], false),
        ("GET", 204, &[length], false),
        ("GET", 304, &[length], false),
    ] {
        let (response, _) = client.send_request(plain(method, "/", &[]), true).unwrap();
        let (served_call, _) = fixture.next_call().await;
        if is_whole {
            respond(&served_call, status, headers, b"12345");
        } else {
            start_response(&served_call, status, headers);
            write(&served_call, b"12345");
            finish(&served_call, Code::Ok, "", &[]);
        }
        let answer = read(response).await.expect("well-formed HTTP/2");
        let is_head = method == "HEAD";
        assert_eq!((status, &b""[..]), (answer.http.as_u16(), &answer.body[..]));
        let has_length = match status {
            204 => false,
            304 => !headers.is_empty(), // Only the application knows it.
            _ => is_head || !headers.is_empty(),
        };
        let expected = has_length.then_some("5");
        assert_eq!(expected, text(&answer.headers, "content-length"), "{method} {status}");
        assert!(answer.headers.contains_key("pyserve-load") && answer.trailers.is_empty());
        fixture.settle().await;
        // A handler is cancelled if its body has no reader, unless it has finished before.
        while let Ok((_, event)) = fixture.told.try_recv() {
            assert!(!is_whole && matches!(event, Told::Cancel(_)), "{event:?}");
        }
    }
    // Handlers that went on with a body were cancelled.
    assert_eq!(4, stat(&fixture.server, "cancelled_by_client"));
}

fn stat(server: &Server, name: &str) -> u64 {
    server.stats().into_iter().find(|(known, _)| *known == name).expect("a counter").1
}

#[tokio::test]
async fn an_answer_in_pieces_ends_with_the_load() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    start_response(&served_call, 200, &[("content-type", "text/event-stream")]);
    let (parts, mut body) =
        timeout(PATIENCE, response).await.expect("the head in time").unwrap().into_parts();
    assert_eq!(None, text(&parts.headers, "content-length"));
    for piece in [&b"data: 1\n\n"[..], b"data: 2\n\n"] {
        write(&served_call, piece);
        let chunk = timeout(PATIENCE, body.data()).await.expect("in time").expect("a piece");
        assert_eq!(piece, &chunk.unwrap()[..]);
    }
    finish(&served_call, Code::Ok, "", &[]);
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().expect("trailers");
    assert_eq!(1, trailers.len());
    assert!(text(&trailers, "pyserve-load").unwrap().starts_with("0;4294967295;"));
    fixture.settle().await;
}

#[tokio::test]
async fn a_writer_waits_for_a_client_that_does_not_read() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    start_response(&served_call, 200, &[]);
    // More than the client's window (64 KiB), a piece beyond it and the credit.
    for _ in 0..8 {
        write(&served_call, &vec![3; 32 * 1024]);
    }
    assert!(!served_call.link().is_writable());
    let reading = tokio::spawn(read(response));
    assert_eq!(Told::Writable, fixture.next_of_call().await);
    finish(&served_call, Code::Ok, "", &[]);
    assert_eq!(8 * 32 * 1024, reading.await.unwrap().unwrap().body.len());
    fixture.settle().await;
}

#[tokio::test]
async fn an_answer_that_is_broken_off_says_so_behind_what_was_written() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    start_response(&served_call, 200, &[]);
    write(&served_call, b"begun");
    finish(&served_call, Code::Internal, "", &[]);
    let (_, mut body) = timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
    assert_eq!("begun", timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap());
    assert!(timeout(PATIENCE, body.data()).await.unwrap().is_none());
    let trailers = timeout(PATIENCE, body.trailers()).await.unwrap().unwrap().expect("trailers");
    assert!(trailers.contains_key("pyserve-broken"));
    fixture.settle().await;
}

#[tokio::test]
async fn an_answer_that_is_late_is_reset() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    start_response(&served_call, 200, &[]);
    let (_, mut body) = timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
    finish(&served_call, Code::DeadlineExceeded, "", &[]);
    let error = timeout(PATIENCE, body.data()).await.unwrap().expect("an error").unwrap_err();
    assert_eq!((true, Some(h2::Reason::CANCEL)), (error.is_reset(), error.reason()));
    fixture.settle().await;
}

#[tokio::test]
async fn failures_before_the_head_have_the_status_that_stands_for_them() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let pushback = ("grpc-retry-pushback-ms", "1500");
    for (method, code, metadata, status, retry_after) in [
        ("GET", Code::NotFound, &[][..], 404, None),
        ("GET", Code::ResourceExhausted, &[pushback], 503, Some("2")),
        ("GET", Code::Unavailable, &[], 503, Some("1")),
        ("HEAD", Code::Internal, &[], 500, None),
        ("GET", Code::Ok, &[], 500, None),
    ] {
        let (response, _) = client.send_request(plain(method, "/", &[]), true).unwrap();
        let (served_call, _) = fixture.next_call().await;
        finish(&served_call, code, "it is so", metadata);
        let answer = read(response).await.expect("well-formed HTTP/2");
        assert_eq!(status, answer.http.as_u16(), "{code:?}");
        assert_eq!(retry_after, text(&answer.headers, "retry-after"), "{code:?}");
        assert_eq!(Some("replica"), text(&answer.headers, "pyserve-answered-by"));
        let expected: &[u8] = match (method, code) {
            ("HEAD", _) => b"",
            (_, Code::Ok) => b"the request was ended without an answer\n",
            _ => b"it is so\n",
        };
        assert_eq!(expected, &answer.body[..], "{code:?}");
    }
    fixture.settle().await;
}

type Mistake<'a> = (&'static str, &'a dyn Fn(&Arc<ServedCall>));

#[tokio::test]
async fn mistakes_of_the_user_are_answered_with_500() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let bulk = "v".repeat(60_000);
    let mistakes: [Mistake<'_>; 3] = [
        ("a body was sent before the head", &|served_call| write(served_call, b"x")),
        ("answered as gRPC", &|served_call| {
            let metadata = HeaderMap::new();
            let encoding = router_net::grpc::Encoding::Identity;
            send(served_call, Command::InitialMetadata(metadata, encoding));
        }),
        ("larger than the limit of 49152 bytes", &|served_call| {
            respond(served_call, 200, &[("x-bulk", &bulk)], b"");
        }),
    ];
    for (expected, make) in mistakes {
        let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
        let (served_call, _) = fixture.next_call().await;
        make(&served_call);
        let answer = read(response).await.unwrap();
        let body = String::from_utf8(answer.body).unwrap();
        assert!(answer.http == 500 && body.contains(expected), "{body}");
        send(&served_call, Command::Release);
        fixture.settle().await;
        // A handler that has not ended is cancelled before the client is answered.
        while let Ok((_, told)) = fixture.told.try_recv() {
            assert_eq!(Told::Cancel(CancelReason::Client), told);
        }
    }
}

#[tokio::test]
async fn a_deadline_is_408_or_breaks_the_answer_off() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    for has_begun in [false, true] {
        let head = plain("GET", "/", &[("grpc-timeout", "300m")]);
        let (response, _) = client.send_request(head, true).unwrap();
        let (served_call, _) = fixture.next_call().await;
        if has_begun {
            start_response(&served_call, 200, &[]);
        }
        match read(response).await {
            Ok(answer) => {
                assert_eq!((false, 408), (has_begun, answer.http.as_u16()));
                assert_eq!(b"the deadline has passed\n", &answer.body[..]);
                assert!(answer.headers.contains_key("pyserve-load"));
            }
            Err(error) => {
                assert_eq!((true, Some(h2::Reason::CANCEL)), (has_begun, error.reason()));
            }
        }
        assert_eq!(Told::Cancel(CancelReason::Deadline), fixture.next_of_call().await);
        assert_eq!(1, fixture.server.in_flight(), "its user has not ended");
        send(&served_call, Command::Release);
        fixture.settle().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_cancels() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (response, mut stream) = client.send_request(plain("PUT", "/", &[]), false).unwrap();
    let (served_call, _) = fixture.next_call().await;
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    assert_eq!(Told::Cancel(CancelReason::Client), fixture.next_of_call().await);
    send(&served_call, Command::Release);
    fixture.settle().await;
}

#[tokio::test]
async fn a_full_gate_refuses_as_it_refuses_calls() {
    let one = ServerConfig { concurrent_calls_max: Some(1), ..config() };
    let mut fixture = Fixture::start(one);
    let mut client = fixture.connect_as_router().await;
    let (response, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    let answer = call(&mut client, plain("GET", "/", &[])).await;
    assert_eq!(Some("1"), text(&answer.headers, "pyserve-refused"));
    assert_eq!(Some("8"), text(&answer.headers, "grpc-status"));
    let grpc = server_support::call(&mut client, request("/a.B/C", &[]), frame(0, b"")).await;
    assert_eq!(Some("1"), text(&grpc.headers, "pyserve-refused"), "calls and requests count alike");
    respond(&served_call, 200, &[], b"");
    let headers = read(response).await.unwrap().headers;
    assert!(text(&headers, "pyserve-load").unwrap().starts_with("0;1;"));
    fixture.settle().await;
}

#[tokio::test]
async fn a_drain_lets_requests_go_on_and_a_stop_answers_503() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let (first, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    let (served_call, _) = fixture.next_call().await;
    let (second, _) = client.send_request(plain("GET", "/", &[]), true).unwrap();
    fixture.next_call().await;
    fixture.server.drain();
    respond(&served_call, 200, &[], b"still here");
    assert_eq!(b"still here", &read(first).await.unwrap().body[..]);
    fixture.server.stop();
    let answer = read(second).await.unwrap();
    assert_eq!((503, Some("1")), (answer.http.as_u16(), text(&answer.headers, "retry-after")));
    assert_eq!(Told::Cancel(CancelReason::Shutdown), fixture.next_of_call().await);
}

#[tokio::test]
async fn a_websocket_streams_both_ways_whatever_its_head_says() {
    let mut fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    for status in [101, 200] {
        let head = plain("GET", "/ws", &[("pyserve-upgrade", "websocket")]);
        let (response, mut stream) = client.send_request(head, false).unwrap();
        let (served_call, body) = fixture.next_call().await;
        assert_eq!((None, true), (body, served_call.http_head().unwrap().is_websocket()));
        start_response(&served_call, status, &[("sec-websocket-protocol", "chat")]);
        let (parts, mut body) = timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
        assert_eq!(
            (200, Some("chat")),
            (parts.status.as_u16(), text(&parts.headers, "sec-websocket-protocol"))
        );
        stream.send_data(Bytes::from_static(b"\x81\x80mask"), false).unwrap();
        assert_eq!(Told::Piece(b"\x81\x80mask".to_vec()), fixture.next_of_call().await);
        write(&served_call, b"\x81\x00");
        assert_eq!(b"\x81\x00", &body.data().await.expect("a piece").unwrap()[..]);
        stream.send_data(Bytes::new(), true).unwrap();
        assert_eq!(Told::HalfClose, fixture.next_of_call().await);
        finish(&served_call, Code::Ok, "", &[]);
        assert!(body.data().await.is_none());
        fixture.settle().await;
    }
}

#[tokio::test]
async fn broken_heads_of_the_mesh_are_refused() {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect_as_router().await;
    let mut head = plain("GET", "/", &[]);
    head.headers_mut().insert(names::HTTP, HeaderValue::from_static("1.1"));
    assert_eq!(400, call(&mut client, head).await.http.as_u16());
    let head = plain("GET", "/", &[("grpc-timeout", "soon")]);
    assert_eq!(400, call(&mut client, head).await.http.as_u16());
    fixture.settle().await;
}
