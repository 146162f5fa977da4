//! The whole generator against a small HTTP/2 server that answers rightly and in every wrong way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use loadgen::drive::run;
use loadgen::framing::frame;
use loadgen::options::Options;
use loadgen::report::Report;
use tokio::net::{TcpListener, TcpStream};

/// How long `/t.T/Stall` blocks the whole server, once, at its `STALL_AT_CALL`th call.
const STALL: Duration = Duration::from_millis(400);
const STALL_AT_CALL: usize = 200;

// === The server ===

/// Start the server on a thread of its own; it ends with the test process.
fn serve() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::task::spawn_local(serve_connection(socket));
            }
        });
    });
    receiver.recv_timeout(Duration::from_secs(5)).unwrap()
}

async fn serve_connection(socket: TcpStream) {
    let mut builder = h2::server::Builder::new();
    let handshake = builder.initial_window_size(4 << 20).initial_connection_window_size(16 << 20);
    let mut connection = handshake.handshake::<_, Bytes>(socket).await.unwrap();
    let mut calls = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls += 1;
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/t.T/Drop" => return,
            // Blocks on purpose: nothing on this server moves meanwhile.
            "/t.T/Stall" if calls == STALL_AT_CALL => std::thread::sleep(STALL),
            _ => {}
        }
        tokio::task::spawn_local(answer(path, request.into_body(), respond));
    }
}

async fn answer(path: String, mut body: RecvStream, mut respond: SendResponse<Bytes>) {
    match path.as_str() {
        "/t.T/Hang" => std::future::pending().await,
        "/t.T/Reset" => respond.send_reset(Reason::INTERNAL_ERROR),
        "/t.T/Http" => drop(respond.send_response(head(503), true)),
        "/t.T/TrailersOnly" => {
            let mut response = head(200);
            response.headers_mut().insert("grpc-status", HeaderValue::from_static("8"));
            respond.send_response(response, true).unwrap();
        }
        "/t.T/PingPong" => {
            let mut stream = respond.send_response(head(200), false).unwrap();
            while let Some(piece) = body.data().await {
                let piece = piece.unwrap();
                body.flow_control().release_capacity(piece.len()).unwrap();
                // The one that ends the request is empty: h2 takes a hundred of these at most, and
                // there are more calls than that where the machine is slow to end the warm-up.
                if !piece.is_empty() {
                    stream.send_data(piece, false).unwrap();
                }
            }
            end(stream, "0");
        }
        _ => {
            let request = read(&mut body).await;
            let stream = respond.send_response(head(200), false).unwrap();
            send_answer(&path, request, stream);
        }
    }
}

fn send_answer(path: &str, request: Bytes, mut stream: SendStream<Bytes>) {
    match path {
        "/t.T/Silent" => end(stream, "0"),
        "/t.T/NoStatus" => stream.send_data(request, true).unwrap(),
        "/t.T/Fails" => {
            stream.send_data(request, false).unwrap();
            end(stream, "14");
        }
        "/t.T/Stream" => {
            stream.send_data(frame(b"abc").repeat(100).into(), false).unwrap();
            end(stream, "0");
        }
        "/t.T/Altered" => {
            let mut altered = request.to_vec();
            *altered.last_mut().unwrap() ^= 1;
            stream.send_data(altered.into(), false).unwrap();
            end(stream, "0");
        }
        "/t.T/Sum" => {
            stream.send_data(frame(&[1]), false).unwrap();
            end(stream, "0");
        }
        _ => {
            stream.send_data(request, false).unwrap();
            end(stream, "0");
        }
    }
}

async fn read(body: &mut RecvStream) -> Bytes {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { break };
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    all.into()
}

fn head(status: u16) -> Response<()> {
    Response::builder().status(status).header("content-type", "application/grpc").body(()).unwrap()
}

fn end(mut stream: SendStream<Bytes>, status: &'static str) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    stream.send_trailers(trailers).unwrap();
}

// === The checks ===

fn drive(method: &str, arguments: &str) -> Report {
    let base = format!("pyserve-loadgen --target {} --path /t.T/{method}", serve());
    let words = base.split_whitespace().chain(arguments.split_whitespace());
    run(&Options::parse_from(words).plan().unwrap(), |_| {}).unwrap()
}

fn check_all_right(method: &str, arguments: &str, requests: u64, messages: u64) {
    let report = drive(method, &format!("{arguments} --requests {requests} --warmup-s 0.01"));
    assert_eq!(BTreeMap::new(), report.errors);
    assert_eq!((requests, requests, messages), (report.requests, report.ok, report.messages));
    assert!(report.all_right() && report.latency_ms.p50 > 0.0);
}

fn check_all_wrong(method: &str, arguments: &str, error: &str) {
    let report = drive(method, &format!("{arguments} --requests 20 --warmup-s 0 --drain-s 0.1"));
    assert_eq!(BTreeMap::from([(error.to_owned(), report.requests)]), report.errors);
    assert!(report.requests > 0 && report.ok == 0 && !report.all_right());
}

#[test]
fn all_four_kinds_are_driven_and_counted() {
    let many = "--in-flight 16 --connections 3";
    check_all_right("Echo", &format!("{many} --payload-bytes 100 --expect-echo"), 500, 500);
    check_all_right("Echo", &format!("{many} --timeout-s 5"), 500, 500);
    let stream = "--kind server-streaming --expect-messages 100 --expect-bytes 3";
    check_all_right("Stream", &format!("{many} {stream}"), 50, 5_000);
    let sum = "--kind client-streaming --messages 7 --payload-bytes 50 --expect-bytes 1";
    check_all_right("Sum", &format!("{many} {sum}"), 50, 50);
    let ping = "--kind bidi --messages 9 --payload-bytes 50 --expect-echo";
    check_all_right("PingPong", &format!("{many} {ping}"), 50, 450);
}

#[test]
fn messages_larger_than_every_default_window_pass() {
    check_all_right("Echo", "--in-flight 4 --payload-bytes 1048576 --expect-echo", 20, 20);
    let ping = "--kind bidi --messages 3 --payload-bytes 1048576 --expect-echo";
    check_all_right("PingPong", ping, 5, 15);
}

#[test]
fn every_wrong_answer_has_its_name() {
    check_all_wrong("TrailersOnly", "", "RESOURCE_EXHAUSTED");
    check_all_wrong("Fails", "", "UNAVAILABLE");
    check_all_wrong("Http", "", "bad answer: http 503");
    check_all_wrong("Silent", "", "bad answer: message count");
    check_all_wrong("NoStatus", "", "bad answer: no grpc-status");
    check_all_wrong(
        "Stream",
        "--kind server-streaming --expect-messages 99",
        "bad answer: message count",
    );
    check_all_wrong("Echo", "--expect-bytes 1", "bad answer: message length");
    check_all_wrong("Altered", "--payload-bytes 9 --expect-echo", "bad answer: message content");
    check_all_wrong("Reset", "", "transport: INTERNAL_ERROR");
    check_all_wrong("Hang", "", "unanswered");
}

#[test]
fn a_lost_connection_ends_its_worker_and_is_counted() {
    let report = drive("Drop", "--in-flight 2 --connections 2 --duration-s 5 --warmup-s 0");
    assert_eq!(2, report.connections_lost);
    assert!(report.errors.keys().all(|name| name.starts_with("transport: ")), "{report:?}");
    assert!(report.window_s < 4.0, "the run ends when nobody is left: {}", report.window_s);
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_names_it() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = ["x", "--target", &closed.to_string(), "--path", "/a/b"].map(str::to_owned);
    let error = run(&Options::parse_from(words).plan().unwrap(), |_| {}).unwrap_err();
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
}

#[test]
fn an_open_loop_offers_its_rate_and_measures_a_stall_from_the_due_time() {
    let begun = Instant::now();
    let report = drive("Stall", "--rate 1000 --arrival fixed --duration-s 1 --warmup-s 0");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!((1_000, 1_000), (report.requests, report.ok), "{report:?}");
    // 400 of 1000 calls were due in the 400 ms of the stall: their waits fall evenly to zero.
    assert!(report.latency_ms.p90 > 200.0, "{report:?}");
    assert!(report.latency_ms.max >= 400.0, "{report:?}");
    // A closed loop with one call in flight meets the same stall in one call only.
    let closed = drive("Stall", "--requests 1000 --warmup-s 0");
    assert!(closed.latency_ms.p99 < 200.0 && closed.latency_ms.max >= 400.0, "{closed:?}");
}

#[test]
fn an_open_loop_counts_calls_that_find_no_room_and_calls_without_an_answer() {
    let limits = "--outstanding-max 10 --duration-s 0.2 --warmup-s 0 --drain-s 0.1";
    let report = drive("Hang", &format!("--rate 500 --arrival fixed {limits}"));
    let expected = BTreeMap::from([
        ("not started: too many outstanding".to_owned(), 90),
        ("unanswered".to_owned(), 10),
    ]);
    assert_eq!(expected, report.errors);
    assert_eq!(100, report.requests);
}

#[test]
fn the_command_prints_json_and_its_exit_code_tells_right_from_wrong() {
    let target = serve().to_string();
    let command = |method: &str, more: &[&str]| {
        let path = format!("/t.T/{method}");
        Command::new(env!("CARGO_BIN_EXE_pyserve-loadgen"))
            .args(["--target", &target, "--path", &path, "--warmup-s", "0"])
            .args(more)
            .output()
            .unwrap()
    };
    let right = command("Echo", &["--requests", "10", "--announce"]);
    let text = String::from_utf8(right.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Some(0), right.status.code());
    assert_eq!("measuring", lines[0]["event"]);
    assert_eq!("measured", lines[1]["event"]);
    assert_eq!(10, lines[2]["requests"]);
    assert_eq!(Some(1), command("Fails", &["--requests", "10"]).status.code());
    assert_eq!(Some(2), command("Echo", &["--rate", "-1"]).status.code());
}
