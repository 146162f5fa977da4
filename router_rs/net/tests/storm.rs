//! The counts stay exact under random cancels, deadlines and refusals.

mod support;

use std::time::Duration;

use router_core::SplitMix64;
use support::{
    Front, Incoming, PATH, Replica, deployment, ok_trailers, open_service, request_with,
};
use tokio::task::JoinSet;

const CALLS: u32 = 2_000;

/// The reaction of a replica to a call, drawn from `random`.
async fn treat(mut incoming: Incoming, choice: u32) {
    match choice % 8 {
        0 => incoming.refuse(),
        1 => drop(incoming),
        2 => {
            let mut stream = incoming.begin();
            tokio::time::sleep(Duration::from_millis(u64::from(choice % 5))).await;
            // The client may have cancelled meanwhile.
            let _ended_before = stream.send_trailers(ok_trailers());
        }
        3 => tokio::time::sleep(Duration::from_millis(u64::from(choice % 20))).await,
        _ => {
            let Ok(mut stream) = incoming.respond.send_response(support::grpc_response(), false)
            else {
                return;
            };
            let _ended_before = stream.send_data("pong".into(), false);
            let _ended_before = stream.send_trailers(ok_trailers());
        }
    }
}

fn serve(mut replica: Replica, mut random: SplitMix64) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut calls = JoinSet::new();
        while let Some(incoming) = replica.calls.recv().await {
            calls.spawn(treat(incoming, random.below(1000)));
            while calls.try_join_next().is_some() {}
        }
    })
}

#[tokio::test]
async fn in_flight_counts_return_to_zero_after_a_storm_of_cancels() {
    let seed = std::env::var("SEED").map_or(20, |seed| seed.parse().expect("SEED is a number"));
    let mut random = SplitMix64::new(seed);
    let mut routes = Vec::new();
    let mut servers = JoinSet::new();
    for id in ["r-1", "r-2", "r-3"] {
        let replica = Replica::start(id).await;
        routes.push(replica.route(8));
        let server = serve(replica, SplitMix64::new(random.next_u64()));
        servers.spawn(async move { drop(server.await) });
    }
    let mut other = deployment(vec![routes[0].clone()]);
    other.application = "other".to_owned();
    other.services = vec![open_service("pkg.Other")];
    let all = vec![deployment(routes.clone()), other.clone()];
    let front = Front::start(all.clone());
    let clients = [front.client().await, front.client().await];
    let mut calls = JoinSet::new();
    for index in 0..CALLS {
        let timeout = format!("{}m", 1 + random.below(60));
        let call = clients[(index % 2) as usize]
            .unary(request_with(PATH, &[("grpc-timeout", &timeout)]), vec![0; 100]);
        let patience = Duration::from_micros(u64::from(random.below(30_000)));
        let is_patient = random.below(3) > 0;
        calls.spawn(async move {
            if is_patient {
                // Any status, or a reset: an answer either way.
                drop(call.try_reply().await);
            } else {
                drop(tokio::time::timeout(patience, call.try_reply()).await);
            }
        });
        if random.below(200) == 0 {
            let mut fewer = all.clone();
            fewer[0].replicas.remove(random.below(3) as usize);
            front.table.apply(fewer);
            front.table.apply(all.clone());
        }
        if calls.len() > 200 {
            support::within("one of 200 calls", calls.join_next()).await;
        }
    }
    while support::within("the last calls", calls.join_next()).await.is_some() {}
    front.settle().await;
    assert_eq!(0, front.stat("panics"), "SEED={seed}");
    let ended = ["forwarded", "answered_here", "cancelled_by_client"].map(|name| front.stat(name));
    assert_eq!(u64::from(CALLS), ended.iter().sum::<u64>(), "{ended:?} SEED={seed}");
}
