//! The ingress in front of the real replica server instead of a script.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use router_net::dispatch::ReplicaRoute;
use router_net::grpc::{Encoding, Encodings, Message};
use router_net::io::IoThreads;
use router_net::link::{CancelReason, Command, Event, EventSink, Mailbox};
use router_net::server::{CallSink, Method, ServedCall, Server, ServerConfig};
use support::{Front, PATH, TOKEN, deployment, request, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Keeps calls until the test answers them.
#[derive(Debug, Default)]
struct Held {
    calls: Mutex<Vec<Arc<ServedCall>>>,
    cancelled: Mutex<usize>,
}

impl CallSink for Held {
    fn begin(&self, served_call: Arc<ServedCall>, _message: Option<Message>) {
        self.calls.lock().push(served_call);
    }
}

impl EventSink for Held {
    fn push(&self, token: u64, event: Event) {
        match event {
            Event::Cancel(CancelReason::Client) => {
                *self.cancelled.lock() += 1;
                let mut calls = self.calls.lock();
                let place = calls.iter().position(|call| call.link().token == token);
                let call = calls.swap_remove(place.expect("a known call"));
                call.link().deliver(Command::Release);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}

struct Fixture {
    held: Arc<Held>,
    server: Server,
    address: String,
    threads: Arc<IoThreads>,
    front: Front,
}

/// A server with room for `capacity` calls, for which the router assumes `assumed`.
fn start(capacity: u32, assumed: u32) -> Fixture {
    let held = Arc::new(Held::default());
    let threads = IoThreads::start("test", 1).unwrap();
    let config = ServerConfig {
        receive_bytes_max: 1 << 20,
        send_bytes_max: 1 << 20,
        metadata_bytes_max: 16 * 1024,
        concurrent_calls_max: Some(capacity),
        idle_streams_max: 10,
        concurrent_streams_max: 4096,
        default_encoding: Encoding::Identity,
        encodings: Encodings::default(),
        keepalive: None,
        connection_age_max: None,
        connection_grace: None,
        connection_idle_max: None,
        idle_bytes_max: 0,
        descriptors_max: u64::MAX,
        proxies: Arc::default(),
        replica_id: "r-1".to_owned(),
        token: TOKEN.to_vec(),
        call_token: Vec::new(),
        maps_arenas: true,
    };
    let server = Server::new(config, held.clone(), threads.clone());
    let method = Method {
        index: 0,
        is_request_streaming: false,
        is_response_streaming: false,
        weight: 1,
        subtypes: None,
        message_bytes_max: None,
        receive_bytes_max: None,
    };
    server.register(PATH, method);
    let bound = server.listen_tcp("127.0.0.1:0", None, false).unwrap();
    server.start();
    let route = ReplicaRoute {
        replica_id: "r-1".to_owned(),
        node: "elsewhere".to_owned(),
        zone: String::new(),
        address: bound.name(),
        unix_path: String::new(),
        max_ongoing_requests: assumed,
        proves_itself: true,
    };
    let front = Front::start(vec![deployment(vec![route])]);
    Fixture { held, server, address: bound.name(), threads, front }
}

impl Fixture {
    async fn answer_next(&self, payload: &'static str) {
        until("a call is held", || !self.held.calls.lock().is_empty()).await;
        let call = self.held.calls.lock().remove(0);
        self.threads.all()[0]
            .run(move || call.link().deliver(Command::Reply(Bytes::from(payload).into())));
    }
}

fn message(payload: &'static str) -> Bytes {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], &length[..], payload.as_bytes()].concat().into()
}

#[tokio::test]
async fn the_gates_refusals_are_seen_by_routers_only_and_cost_no_call() {
    let fixture = start(1, 10);
    let client = fixture.front.client().await;
    let calls: Vec<_> = (0..3).map(|_| client.unary(request(PATH), message("ping"))).collect();
    let router = || fixture.front.table.stats().remove(0).router;
    until("calls were refused and parked", || {
        let stats = router();
        stats.refusals > 0 && stats.parked == 2
    })
    .await;
    let mut replies = Vec::new();
    for answer in ["1", "2", "3"] {
        fixture.answer_next(answer).await;
        until("the call ended", || router().completed > replies.len() as u64).await;
        replies.push(answer);
    }
    for call in calls {
        let reply = call.reply().await;
        assert_eq!(0, reply.status());
        assert!(!reply.headers.keys().any(|name| name.as_str().starts_with("pyserve-")));
    }
    fixture.front.settle().await;
    let reported = router().replicas[0].reported.unwrap();
    assert_eq!((0, 1), (reported.in_flight, reported.limit));
    assert_eq!(0, fixture.server.in_flight());
}

/// A HEADERS frame of a call to `PATH`, followed by its RST_STREAM.
fn started_and_cancelled(stream_id: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, PATH.len() as u8]; // POST, http, the path
    block.extend_from_slice(PATH.as_bytes());
    let content_type = b"application/grpc";
    block.extend_from_slice(&[0x0f, 0x10, content_type.len() as u8]); // static name 31
    block.extend_from_slice(content_type);
    let (headers, reset, end_headers) = (1, 3, 4);
    let cancel = 8_u32.to_be_bytes();
    [frame(headers, end_headers, stream_id, &block), frame(reset, 0, stream_id, &cancel)].concat()
}

fn frame(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream_id.to_be_bytes()[..], payload].concat()
}

/// Starts and cancels `count` calls in one write; whether the peer then answers a PING.
async fn survives_cancels(address: &str, count: u32) -> bool {
    const PING: u8 = 6;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[])); // SETTINGS
    for index in 0..count {
        bytes.extend(started_and_cancelled(2 * index + 1));
    }
    bytes.extend(frame(PING, 0, 0, b"12345678"));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    loop {
        let mut head = [0; 9];
        if within("a frame", stream.read_exact(&mut head)).await.is_err() {
            return false;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        match head[3] {
            PING => return true,
            7 => return false, // GOAWAY
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_burst_of_cancels_costs_no_connection_and_a_flood_does() {
    let fixture = start(1000, 1000);
    assert!(survives_cancels(&fixture.address, 500).await, "the server");
    assert!(survives_cancels(&fixture.front.address, 500).await, "the ingress");
    assert!(!survives_cancels(&fixture.front.address, 5000).await, "a rapid reset");
    fixture.front.settle().await;
    until("the server is empty", || fixture.server.in_flight() == 0).await;
}
