//! How soon a waiting call follows one that ends: `cargo bench -p pyserve-router-net`.
//!
//! All places of a replica are taken and calls wait in the ingress. The measured time runs from the
//! replica's answer to the next call at the replica, over two sockets and the ingress between them.
//! For comparison, a call that need not wait is measured from the client to the replica, over as
//! many sockets and the same ingress. The difference is what waiting costs after a place is free.
//! The two alternate. Without `--bench` (as `cargo test` runs it) it makes one short pass.
//!
//! With the feature `stopwatch` also the ingress's own part of the time (`inside_us`): from the end
//! of the answer, read from the replica's socket, to the next call, written to it.
#![allow(clippy::print_stdout)] // the table is the purpose
#![allow(clippy::disallowed_types)] // a benchmark reads the clock

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bytes::Bytes;
use support::{Front, Replica, deployment};

const PONG: Bytes = Bytes::from_static(b"\0\0\0\0\x04pong");
const PING: &str = "\0\0\0\0\x04ping";
/// The number of calls that wait at once, and of lone calls in turn.
const CALLS: usize = 100;

fn main() {
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = if is_measuring { 100 } else { 2 };
    // Client and replica share a thread, as the ingress has its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Found { parked, direct, inside } = runtime.expect("a runtime").block_on(async {
        let replica = Replica::start("r-1").await;
        let front = Front::start(vec![deployment(vec![replica.route(1)])]);
        measure(front, replica, rounds).await
    });
    let (parked_us, direct_us) = (Spread::of(parked), Spread::of(direct));
    let inside_us = match inside.len() {
        0 => String::new(),
        _ => format!("\"inside_us\": {}, ", Spread::of(inside).json()),
    };
    println!(
        "{{{inside_us}\"parked_us\": {}, \"direct_us\": {}, \"waiting_costs_us\": {:.1}}}",
        parked_us.json(),
        direct_us.json(),
        parked_us.p50 - direct_us.p50
    );
}

/// In microseconds.
#[derive(Default)]
struct Found {
    /// From an answer to the next call.
    parked: Vec<f64>,
    /// From a lone call's start to its arrival.
    direct: Vec<f64>,
    /// The part of `parked` spent in the ingress; empty without its stopwatch.
    inside: Vec<f64>,
}

async fn measure(front: Front, mut replica: Replica, rounds: usize) -> Found {
    let client = front.client().await;
    let Found { mut parked, mut direct, mut inside } = Found::default();
    for _ in 0..rounds {
        for _ in 0..CALLS {
            let started = Instant::now();
            let call = client.unary(support::request(support::PATH), PING);
            let mut incoming = replica.next().await;
            direct.push(started.elapsed().as_secs_f64() * 1e6);
            incoming.read_all().await;
            incoming.reply(PONG);
            assert_eq!(0, call.reply().await.status());
        }
        let send = |_| client.unary(support::request(support::PATH), PING);
        let calls: Vec<_> = (0..=CALLS).map(send).collect();
        let mut incoming = replica.next().await;
        support::until("all others wait", || front.parked() == CALLS as u64).await;
        laps_us();
        for _ in 0..CALLS {
            incoming.read_all().await;
            let answered = Instant::now();
            incoming.reply(PONG);
            incoming = replica.next().await;
            parked.push(answered.elapsed().as_secs_f64() * 1e6);
        }
        inside.extend(laps_us());
        incoming.read_all().await;
        incoming.reply(PONG);
        for call in calls {
            assert_eq!(0, call.reply().await.status());
        }
    }
    Found { parked, direct, inside }
}

/// The ingress's own times since the last look.
#[cfg(feature = "stopwatch")]
fn laps_us() -> Vec<f64> {
    let laps = router_net::upstream::take_laps();
    laps.into_iter().map(|lap| lap.as_secs_f64() * 1e6).collect()
}

#[cfg(not(feature = "stopwatch"))]
fn laps_us() -> Vec<f64> {
    Vec::new()
}

struct Spread {
    p10: f64,
    p50: f64,
    p99: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| values[(values.len() - 1) * percent / 100];
        Self { p10: at(10), p50: at(50), p99: at(99) }
    }

    fn json(&self) -> String {
        let Self { p10, p50, p99 } = self;
        format!("{{\"p10\": {p10:.1}, \"p50\": {p50:.1}, \"p99\": {p99:.1}}}")
    }
}
