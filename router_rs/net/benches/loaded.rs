//! How long calls take for their decision while four I/O threads of an ingress are busy:
//! `cargo bench -p pyserve-router-net --bench loaded --features stopwatch`.
//!
//! Clients keep calls in flight through an ingress with four threads to 64 replicas that answer
//! immediately. The measured time is each call's way through the lock and the router, including the
//! clock reads and the deployment's bookkeeping. `pick` measures the same with threads that only
//! make decisions. Prints a line of JSON for each policy; without the feature it only makes calls.
//! Without `--bench` (as `cargo test` runs it) it makes one short pass.
#![allow(clippy::print_stdout)] // the table is the purpose
#![allow(clippy::disallowed_types)] // a benchmark reads the clock

mod rounds;
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use rounds::{percentiles_json, policies};
use router_core::{PolicyKind, RouterConfig};
use router_net::dispatch::{DeploymentRoute, ReplicaRoute, RouterSettings};
use router_net::ingress::IngressConfig;
use router_net::names;
use support::{Client, Front, Incoming, Replica, deployment, ok_trailers, table};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const PING: &str = "\0\0\0\0\x04ping";
const PONG: Bytes = Bytes::from_static(b"\0\0\0\0\x04pong");
const REPLICAS: usize = 64;
const CAPACITY: u32 = 100;
const THREADS: usize = 4;
/// Spread over the threads in turn.
const CONNECTIONS: usize = 16;
const CALLS_EACH: usize = 8;
const ROUNDS: usize = 9;

fn main() {
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let round = if is_measuring { Duration::from_secs(1) } else { Duration::from_millis(20) };
    let (replicas, _replicas_run) = start_replicas();
    let runtime = runtime();
    for policy in policies() {
        let rounds: Vec<Round> = runtime.block_on(measure(policy, &replicas, round));
        println!("{{\"policy\": \"{policy:?}\", {}}}", json(rounds));
    }
}

/// The results of one second.
struct Round {
    calls_per_s: f64,
    /// In nanoseconds, in order; empty without the stopwatch.
    decisions: Vec<u64>,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Replicas on a thread of their own; they end when the second value is dropped.
fn start_replicas() -> (Vec<ReplicaRoute>, oneshot::Sender<()>) {
    let (started, routes) = mpsc::channel();
    let (alive, ended) = oneshot::channel::<()>();
    thread::spawn(move || {
        runtime().block_on(async {
            let mut answering = JoinSet::new();
            for index in 0..REPLICAS {
                let replica = Replica::start(&format!("r-{index}")).await;
                started.send(replica.route(CAPACITY)).expect("somebody waits for it");
                answering.spawn(answer_all(replica));
            }
            drop(started);
            // An error means the same: the bench is over.
            let _is_over = ended.await;
        });
    });
    (routes.iter().collect(), alive)
}

async fn answer_all(mut replica: Replica) {
    while let Some(mut incoming) = replica.calls.recv().await {
        tokio::spawn(async move {
            incoming.read_all().await;
            answer(incoming);
        });
    }
}

/// Replicas report their load with each answer.
fn answer(mut incoming: Incoming) {
    let mut trailers = ok_trailers();
    trailers.insert(names::LOAD, HeaderValue::from_static("1;100;50"));
    let mut stream = incoming.begin();
    stream.send_data(PONG, false).expect("the ingress listens");
    stream.send_trailers(trailers).expect("the ingress listens");
}

async fn measure(policy: PolicyKind, replicas: &[ReplicaRoute], round: Duration) -> Vec<Round> {
    let router = RouterSettings {
        config: RouterConfig { policy, ..RouterConfig::default() },
        ..RouterSettings::default()
    };
    let route = DeploymentRoute { router, ..deployment(replicas.to_vec()) };
    let table = table(support::TOKEN);
    table.apply(vec![route]);
    let front = Front::with_threads(table, IngressConfig::default(), THREADS);
    let mut rounds = Vec::new();
    call_for(&front, round).await;
    for _ in 0..ROUNDS {
        decisions();
        let begun = Instant::now();
        let calls = call_for(&front, round).await;
        let calls_per_s = calls as f64 / begun.elapsed().as_secs_f64();
        rounds.push(Round { calls_per_s, decisions: decisions() });
    }
    front.settle().await;
    rounds
}

/// Keeps calls in flight for this long and returns how many were made.
async fn call_for(front: &Front, time: Duration) -> usize {
    let until = Instant::now() + time;
    let mut callers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = Arc::new(front.client().await);
        for _ in 0..CALLS_EACH {
            callers.spawn(call_until(Arc::clone(&client), until));
        }
    }
    callers.join_all().await.into_iter().sum()
}

async fn call_until(client: Arc<Client>, until: Instant) -> usize {
    let mut calls = 0;
    while Instant::now() < until {
        assert_eq!(0, client.call(PING).await.status());
        calls += 1;
    }
    calls
}

/// The decisions since the last look.
#[cfg(feature = "stopwatch")]
fn decisions() -> Vec<u64> {
    let taken = router_net::dispatch::take_decisions();
    let mut taken: Vec<u64> = taken.into_iter().map(|each| each.as_nanos() as u64).collect();
    taken.sort_unstable();
    taken
}

#[cfg(not(feature = "stopwatch"))]
fn decisions() -> Vec<u64> {
    Vec::new()
}

/// Medians over the rounds, and the spread of the slowest hundredth.
fn json(rounds: Vec<Round>) -> String {
    let mut rates: Vec<f64> = rounds.iter().map(|round| round.calls_per_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let calls = format!("\"calls_per_s\": {:.0}", rates[ROUNDS / 2]);
    let decisions: Vec<_> = rounds.into_iter().map(|round| round.decisions).collect();
    if decisions.iter().any(Vec::is_empty) {
        return calls;
    }
    format!("{calls}, \"decision_ns\": {{{}}}", percentiles_json(&decisions))
}
