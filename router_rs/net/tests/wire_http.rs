//! Plain HTTP from a client through the ingress to a server and back, over the wire.

mod front_support;
#[allow(dead_code)] // its own part, as in every test file
mod http_support;
#[allow(unused_imports)] // as above
mod server_support;
mod support;
mod wire_support;

use std::time::Duration;

use front_support::Http1;
use http_support::{WHOLE_BYTES_MAX, finish, respond, start_response, write};
use router_net::grpc::Code;
use router_net::link::Mailbox;
use router_net::server::ServerConfig;
use support::until;
use wire_support::{config, one_app, one_app_with, post, stat, take_body};

#[tokio::test]
async fn a_call_comes_with_its_head_and_body_and_is_answered() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.send(post("ping", "x-a: 1\r\nx-a: 2\r\n")).await;
    let (served_call, body) = fixture.next_call().await;
    assert_eq!(Some(b"ping".to_vec()), body);
    let head = served_call.http_head().expect("plain HTTP");
    assert_eq!(("POST", "/app/x?y=1", "1.1"), (head.method(), head.target(), head.version()));
    assert_eq!(("http", "/app"), (head.scheme(), head.root_path()));
    let mut values = Vec::new();
    head.for_each_header(|name, value| {
        if matches!(name, "x-a" | "host") {
            values.push((name.to_owned(), value.to_vec()));
        }
    });
    let expected = [("host", "h:1"), ("x-a", "1"), ("x-a", "2")];
    values.sort();
    assert_eq!(expected.map(|(n, v)| (n.to_owned(), v.as_bytes().to_vec())), values[..]);
    respond(&served_call, 201, &[("x-b", "c"), ("x-b", "d")], b"pong");
    let reply = client.reply().await;
    assert_eq!((201, "pong", "c, d"), (reply.status, reply.text(), &reply.headers["x-b"][..]));
    assert!(!reply.headers.contains_key("pyserve-load"));
    front.settle().await;
    fixture.settle().await;
    let reported = front.table.stats()[0].router.replicas[0].reported.expect("its load");
    assert_eq!(0, reported.in_flight);
    assert_eq!((1, 1), (stat(&fixture.server, "wire_calls"), stat(&fixture.server, "calls")));
}

#[tokio::test]
async fn answers_of_each_kind_come_whole() {
    let large: Vec<u8> = (0..3_000_000_usize).map(|at| (at / 1000) as u8).collect();
    for size in [0, 1, 4096, 4097, 16_384, 16_385, 262_144, 3_000_000] {
        for is_whole in [true, false] {
            let (mut fixture, front) = one_app();
            let mut client = Http1::connect(&front).await;
            client.get("/app").await;
            let (served_call, _) = fixture.next_call().await;
            if is_whole {
                respond(&served_call, 200, &[], &large[..size]);
            } else {
                start_response(&served_call, 200, &[]);
                large[..size].chunks(100_000).for_each(|piece| write(&served_call, piece));
                finish(&served_call, Code::Ok, "", &[]);
            }
            assert!(client.reply().await.body == large[..size], "{size}, whole: {is_whole}");
            front.settle().await;
            assert_eq!(1, stat(&fixture.server, "wire_calls"));
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_come_whole() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.send("HEAD /app HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (served_call, _) = fixture.next_call().await;
    respond(&served_call, 200, &[("content-length", "77")], b"");
    assert_eq!("77", client.head().await.1["content-length"]);
    for status in [204, 304] {
        client.get("/app").await;
        let (served_call, _) = fixture.next_call().await;
        respond(&served_call, status, &[], b"");
        assert_eq!(status, client.reply().await.status);
    }
    front.settle().await;
    assert_eq!(3, stat(&fixture.server, "wire_calls"));
}

#[tokio::test]
async fn bodies_come_with_their_head_or_after_it() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    for (size, calls) in [(WHOLE_BYTES_MAX, 1), (16_384, 2), (16_385, 3), (100_000, 4)] {
        client.send(post(&"b".repeat(size), "")).await;
        let (served_call, body) = fixture.next_call().await;
        if size <= WHOLE_BYTES_MAX {
            assert_eq!(Some(size), body.map(|body| body.len()));
        } else {
            assert_eq!(size, take_body(&mut fixture, &served_call).await);
        }
        respond(&served_call, 200, &[], b"");
        assert_eq!(200, client.reply().await.status);
        assert_eq!(calls, stat(&fixture.server, "wire_calls"), "{size}");
    }
    front.settle().await;
}

#[tokio::test]
async fn a_head_beyond_the_servers_limit_is_refused_as_over_http2() {
    let small = ServerConfig { metadata_bytes_max: 4096, ..config("replica-1") };
    let (mut fixture, front) = one_app_with(small);
    let mut client = Http1::connect(&front).await;
    client.send(post("", &format!("x-long: {}\r\n", "v".repeat(4096)))).await;
    assert_eq!(431, client.reply().await.status);
    assert_eq!(0, stat(&fixture.server, "wire_calls"));
    client.get("/app").await;
    respond(&fixture.next_call().await.0, 200, &[], b"");
    assert_eq!(200, client.reply().await.status);
    assert_eq!(1, stat(&fixture.server, "wire_calls"));
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_own_answer_only() {
    let (mut fixture, front) = one_app();
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        others.push((client, fixture.next_call().await.0));
    }
    let mut slow = Http1::connect(&front).await;
    slow.get("/app").await;
    let (streaming, _) = fixture.next_call().await;
    start_response(&streaming, 200, &[]);
    let piece = vec![7; 64 << 10];
    let mut written = 0;
    while streaming.link().is_writable() {
        write(&streaming, &piece);
        written += piece.len();
        // Until the sockets' buffers and the call's credit are full.
        let waits = tokio::time::timeout(Duration::from_millis(300), async {
            until("it was sent", || streaming.link().is_writable()).await;
        });
        if waits.await.is_err() {
            break;
        }
    }
    for (client, served_call) in &mut others {
        respond(served_call, 200, &[], b"quick");
        assert_eq!("quick", client.reply().await.text());
    }
    assert_eq!(
        (11, 1),
        (stat(&fixture.server, "wire_calls"), stat(&fixture.server, "connections"))
    );
    finish(&streaming, Code::Ok, "", &[]);
    assert_eq!(written, slow.reply().await.body.len());
    front.settle().await;
}

#[tokio::test]
async fn an_answer_that_is_not_as_long_as_it_says_is_broken() {
    let (mut fixture, front) = one_app();
    for (said, body) in [("9", "short"), ("3", "longer")] {
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        respond(&fixture.next_call().await.0, 200, &[("content-length", said)], body.as_bytes());
        client.head().await;
        assert!(client.rest().await.len() < said.parse().unwrap(), "{said}");
        // The connection goes on.
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        respond(&fixture.next_call().await.0, 200, &[], b"whole");
        assert_eq!("whole", client.reply().await.text());
    }
    front.settle().await;
    assert_eq!(1, stat(&fixture.server, "connections"));
}
