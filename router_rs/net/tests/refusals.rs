//! The error for a client whose call no replica takes: the deployment, the limit, and, on request,
//! which replicas there were.

mod front_support;
mod support;

use std::time::Duration;

use front_support::{Http1, http_deployment};
use http::HeaderMap;
use router_net::dispatch::DeploymentRoute;
use serde_json::{Value, json};
use support::{Call, Client, Front, PATH, Replica, deployment, request, request_with, until};

const EXPLAIN: (&str, &str) = ("x-pyserve-explain", "1");

const RESOURCE_EXHAUSTED: u32 = 8;
const DEADLINE_EXCEEDED: u32 = 4;
const UNAVAILABLE: u32 = 14;

/// A deployment whose replicas have one place each, without a queue.
fn impatient(replicas: &[&Replica]) -> DeploymentRoute {
    let replicas = replicas.iter().map(|replica| replica.route(1)).collect();
    DeploymentRoute { max_queued_requests: 0, ..deployment(replicas) }
}

fn ask(client: &Client, headers: &[(&str, &str)]) -> Call {
    client.unary(request_with(PATH, &[&[EXPLAIN], headers].concat()), "x")
}

fn explained(headers: &HeaderMap) -> Value {
    serde_json::from_slice(headers["x-pyserve-explain"].as_bytes()).unwrap()
}

#[tokio::test]
async fn a_full_queue_names_its_deployment_its_limit_and_who_is_full() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let front = Front::start(vec![impatient(&[&first, &second])]);
    let client = front.client().await;
    let calls = [0, 1].map(|_| client.unary(request(PATH), "x"));
    let held = [first.next().await, second.next().await];

    let reply = ask(&client, &[]).reply().await;
    assert_eq!(RESOURCE_EXHAUSTED, reply.status());
    let text = "app/Echo: none of its 2 replicas is free, and 0 requests wait already \
                (max_queued_requests=0)";
    assert_eq!(text, reply.message());
    let seen = explained(&reply.headers);
    assert_eq!((&Value::Null, &json!("queue_full")), (&seen["chosen"], &seen["refused"]));
    let outs: Vec<&Value> =
        seen["replicas"].as_array().unwrap().iter().map(|each| &each["out"]).collect();
    assert_eq!(["full", "full"], outs[..]);

    // A client that does not ask for an explanation gets the reason and no more.
    let reply = client.call("x").await;
    assert_eq!((RESOURCE_EXHAUSTED, text), (reply.status(), reply.message()));
    assert!(!reply.headers.contains_key("x-pyserve-explain"));
    for incoming in held {
        incoming.reply("1");
    }
    for call in calls {
        assert_eq!(0, call.reply().await.status());
    }
    front.settle().await;
}

#[tokio::test]
async fn without_a_replica_that_is_what_is_told() {
    let front = Front::start(vec![impatient(&[])]);
    let client = front.client().await;
    let reply = ask(&client, &[]).reply().await;
    assert_eq!(RESOURCE_EXHAUSTED, reply.status());
    assert!(reply.message().starts_with("app/Echo: there is no replica"), "{}", reply.message());
    assert_eq!(json!([]), explained(&reply.headers)["replicas"]);
    front.settle().await;
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_says_so() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "x");
    let incoming = replica.next().await;
    let other = client.unary(request(PATH), "x");
    until("one waits", || front.parked() == 1).await;

    let reply = ask(&client, &[("grpc-timeout", "300m")]).reply().await;
    assert_eq!(DEADLINE_EXCEEDED, reply.status());
    let text = "app/Echo: the deadline passed before a replica was free (1 replica, 1 other \
                request waiting)";
    assert_eq!(text, reply.message());
    let seen = explained(&reply.headers);
    assert_eq!((&json!("deadline"), &json!(1)), (&seen["refused"], &seen["waiting"]));
    assert_eq!("full", seen["replicas"][0]["out"]);
    incoming.reply("1");
    replica.next().await.reply("2");
    for call in [call, other] {
        assert_eq!(0, call.reply().await.status());
    }
    front.settle().await;
}

#[tokio::test]
async fn plain_http_is_told_as_much() {
    let mut replica = Replica::start("r-1").await;
    let route = http_deployment(&replica, "/app");
    let route = DeploymentRoute { replicas: vec![replica.route(1)], ..route };
    let front = Front::start(vec![DeploymentRoute { max_queued_requests: 0, ..route }]);
    let mut first = Http1::connect(&front).await;
    first.get("/app").await;
    let incoming = replica.next().await;

    let mut second = Http1::connect(&front).await;
    second.send("GET /app HTTP/1.1\r\nhost: x\r\nx-pyserve-explain: 1\r\n\r\n").await;
    let reply = second.reply().await;
    assert_eq!(503, reply.status);
    let text = "app/Echo: its replica is not free, and 0 requests wait already \
                (max_queued_requests=0)\n";
    assert_eq!(text, reply.text());
    let seen: Value = serde_json::from_str(&reply.headers["x-pyserve-explain"]).unwrap();
    assert_eq!(
        (&json!("queue_full"), &json!("r-1")),
        (&seen["refused"], &seen["replicas"][0]["id"])
    );

    assert!(!second.fetch("/app").await.headers.contains_key("x-pyserve-explain"));
    front_support::answer(incoming, "done");
    assert_eq!("done", first.reply().await.text());
    front.settle().await;
}

/// The router needs this many answers to learn how long calls take.
const LEARNT: usize = 70;
const WORK: Duration = Duration::from_millis(20);
/// A call behind this many others waits for longer than their common deadline.
const CROWD: usize = 400;

#[tokio::test]
async fn a_call_that_could_only_be_late_is_refused_at_once() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    for _ in 0..LEARNT {
        let call = client.unary(request(PATH), "x");
        let incoming = replica.next().await;
        // The replica's work on it.
        tokio::time::sleep(WORK).await;
        incoming.reply("1");
        assert_eq!(0, call.reply().await.status());
    }
    let _held = client.unary(request(PATH), "x");
    let _incoming = replica.next().await;
    let deadline = ("grpc-timeout", "5S");
    let mut calls: Vec<Call> = (0..CROWD).map(|_| ask(&client, &[deadline])).collect();

    let last = calls.pop().unwrap().reply().await;
    // A client whose deadline has passed gets DEADLINE_EXCEEDED.
    assert_eq!(RESOURCE_EXHAUSTED, last.status(), "{}", last.message());
    assert!(last.message().starts_with("app/Echo: its replica is not free"), "{}", last.message());
    assert!(last.message().contains("too long for a deadline in"), "{}", last.message());
    let pushback = last.headers["grpc-retry-pushback-ms"].to_str().unwrap();
    assert!(pushback.parse::<u32>().unwrap() > 0, "{pushback}");
    let seen = explained(&last.headers);
    assert_eq!(json!("too_late"), seen["refused"]);
    assert!(seen["predicted_wait_ms"].as_f64().unwrap() > 0.0, "{seen}");
    drop(calls);
    client.connection.abort();
    front.settle().await;
}

#[tokio::test]
async fn without_replicas_by_configuration_no_call_waits() {
    let mut replica = Replica::start("r-1").await;
    let scaled = |replicas| DeploymentRoute { is_scaled_to_zero: true, ..deployment(replicas) };
    let front = Front::start(vec![deployment(Vec::new())]);
    let client = front.client().await;
    let parked = client.unary(request(PATH), "x");
    until("it waits", || front.parked() == 1).await;

    front.table.apply(vec![scaled(Vec::new())]);
    let text = "app/Echo has no replicas, as it is configured (num_replicas=0)";
    let reply = parked.reply().await;
    assert_eq!((UNAVAILABLE, text), (reply.status(), reply.message()));
    let reply = ask(&client, &[]).reply().await;
    assert_eq!((UNAVAILABLE, text), (reply.status(), reply.message()));
    assert_eq!("scaled_to_zero", explained(&reply.headers)["refused"]);

    // A replica started by another deploy serves as well.
    front.table.apply(vec![scaled(vec![replica.route(1)])]);
    let call = client.unary(request(PATH), "x");
    replica.next().await.reply("1");
    assert_eq!(0, call.reply().await.status());
    front.settle().await;
}
