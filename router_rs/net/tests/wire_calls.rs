//! gRPC calls from a client through the ingress to a server and back, over the wire.

#[allow(dead_code)] // its own part, as in every test file
mod http_support;
mod server_support;
mod support;
mod wire_support;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use router_net::dispatch::{DeploymentRoute, ReplicaRoute};
use router_net::link::CancelReason;
use router_net::server::ServerConfig;
use server_support::{
    ABOUT, BULKY, Fixture, PARTS, PICKY, SILENT, STREAM, UNARY, frame, header_block, http2_frame,
};
use wire_support::{config, front_of, replica, stat};

use support::{Client, Front, Reply, deployment, open_service, request_with, until, within};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

fn start(config: ServerConfig) -> (Fixture, Front) {
    start_with(config, true)
}

/// A peer that does not prove itself is of a release that speaks only HTTP/2.
fn start_with(config: ServerConfig, proves_itself: bool) -> (Fixture, Front) {
    let fixture = Fixture::start(config);
    let replicas = vec![ReplicaRoute { proves_itself, ..replica("replica-1", fixture.port) }];
    let services = vec![open_service("test.T")];
    let front = front_of(DeploymentRoute { services, ..deployment(replicas) });
    (fixture, front)
}

/// A path, headers, and a body.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Bytes);

/// The parts of an answer that a client sees.
fn seen(reply: &Reply) -> (StatusCode, &HeaderMap, &Bytes, &HeaderMap) {
    (reply.http, &reply.headers, &reply.body, &reply.trailers)
}

async fn ask(client: &Client, path: &str, headers: &[(&str, &str)], body: &Bytes) -> Reply {
    client.unary(request_with(path, headers), body.clone()).reply().await
}

#[tokio::test]
async fn answers_are_those_of_http2() {
    let (by_wire, wired) = start(config("replica-1"));
    let (by_http2, other) = start_with(config("replica-1"), false);
    let (one, two) = (wired.client().await, other.client().await);
    let three = [frame(0, b"a"), frame(0, b""), frame(0, &[7; 9000])].concat().into();
    let cases: [Case<'_>; 22] = [
        (UNARY, &[], frame(0, b"ping")),
        (UNARY, &[], frame(0, b"")),
        (UNARY, &[("x-a", "1"), ("x-a", "2"), ("x-b-bin", "AAE=")], frame(0, b"ping")),
        (UNARY, &[], frame(0, &[5; 16_379])),
        (UNARY, &[("grpc-encoding", "gzip")], frame(0, b"plain")),
        (UNARY, &[("grpc-encoding", "gzip")], frame(1, b"no gzip")),
        (UNARY, &[("grpc-encoding", "unheard-of")], frame(0, b"ping")),
        (ABOUT, &[("multiplexed_model_id", "m-7")], frame(0, b"")),
        (UNARY, &[], Bytes::new()),
        (UNARY, &[], [frame(0, b"one"), frame(0, b"two")].concat().into()),
        (UNARY, &[], Bytes::from_static(&[0, 0, 0, 0, 9, 1])),
        (UNARY, &[], Bytes::from_static(&[7, 0, 0, 0, 0])),
        (STREAM, &[], three),
        (BULKY, &[], frame(0, b"i9000")),
        (BULKY, &[], frame(0, b"t9000")),
        (BULKY, &[], frame(0, b"t60000")),
        (PARTS, &[], frame(0, b"3,70000,1")),
        (PICKY, &[], frame(0, b"protobuf")),
        ("/test.T/Unheard", &[], frame(0, b"ping")),
        (PARTS, &[], frame(0, b"700000,1,100000")),
        (UNARY, &[], frame(0, &[5; 16_380])),
        (STREAM, &[], [frame(0, &vec![5; 900_000]), frame(0, b"last")].concat().into()),
    ];
    for (number, (path, headers, body)) in cases.iter().enumerate() {
        let by_wire_seen = ask(&one, path, headers, body).await;
        let by_http2_seen = ask(&two, path, headers, body).await;
        assert_eq!(seen(&by_http2_seen), seen(&by_wire_seen), "case {number}: {path} {headers:?}");
        let expected = number as u64 + 1;
        assert_eq!(expected, stat(&by_wire.server, "wire_calls"), "case {number}: {path}");
    }
    assert_eq!(0, stat(&by_http2.server, "wire_calls"));
    wired.settle().await;
    by_wire.settle().await;
}

#[tokio::test]
async fn what_is_long_or_not_over_goes_over_the_wire_too() {
    let (fixture, front) = start(config("replica-1"));
    let client = front.client().await;
    let long = ask(&client, UNARY, &[], &frame(0, &[5; 16_380])).await;
    assert_eq!((0, 16_385), (long.status(), long.body.len()));
    let mut call = client.start(request_with(STREAM, &[]), false);
    call.body.send_data(frame(0, b"first"), false).unwrap();
    let mut answer = within("the head", &mut call.response).await.unwrap().into_body();
    let first = within("the echo", answer.data()).await.unwrap().unwrap();
    assert_eq!(frame(0, b"first"), first);
    call.body.send_data(frame(0, b"last"), true).unwrap();
    assert_eq!(frame(0, b"last"), within("the echo", answer.data()).await.unwrap().unwrap());
    front.settle().await;
    assert_eq!((2, 2), (stat(&fixture.server, "wire_calls"), stat(&fixture.server, "calls")));
}

#[tokio::test]
async fn a_late_call_is_4_and_a_reset_one_cancels() {
    let (fixture, front) = start(config("replica-1"));
    let client = front.client().await;
    // It dials, and the next one's deadline is not meant for that.
    assert_eq!(0, ask(&client, UNARY, &[], &frame(0, b"x")).await.status());
    let late = ask(&client, SILENT, &[("grpc-timeout", "300m")], &frame(0, b"x")).await;
    assert_eq!(4, late.status());
    until("the user is told", || fixture.user.cancelled.lock().len() == 1).await;
    // Its user releases it a little later.
    fixture.settle().await;
    let mut call = client.unary(request_with(SILENT, &[]), frame(0, b"x"));
    until("the call is there", || fixture.server.in_flight() == 1).await;
    call.body.send_reset(h2::Reason::CANCEL);
    until("the user is told", || fixture.user.cancelled.lock().len() == 2).await;
    assert_eq!(CancelReason::Client, fixture.user.cancelled.lock()[1]);
    front.settle().await;
    fixture.settle().await;
    assert_eq!(3, stat(&fixture.server, "wire_calls"));
}

#[tokio::test]
async fn a_request_whose_end_comes_in_a_frame_of_its_own_is_whole() {
    let (fixture, front) = start(config("replica-1"));
    ask(&front.client().await, UNARY, &[], &frame(0, b"x")).await;
    let mut stream = TcpStream::connect(&front.address).await.unwrap();
    // In one write, so that it is read at once.
    let bytes = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        http2_frame(4, 0, 0, b""),
        http2_frame(1, 4, 1, &header_block(UNARY)),
        http2_frame(0, 0, 1, &frame(0, &[5; 2000])),
        http2_frame(0, 1, 1, b""),
    ];
    stream.write_all(&bytes.concat()).await.unwrap();
    until("the call is there", || stat(&fixture.server, "calls") == 2).await;
    assert_eq!(2, stat(&fixture.server, "wire_calls"));
    front.settle().await;
}
