//! The counts that a table and an ingress keep of calls, for metrics.

mod support;

use std::collections::BTreeMap;

use http::{HeaderValue, Response};
use router_core::{Histogram, ReleaseCause};
use router_net::dispatch::DeploymentMeasures;
use support::{
    Front, PATH, Replica, deployment, grpc_response, request, request_with, until, within,
};

fn measures(front: &Front) -> DeploymentMeasures {
    front.table.measures().remove(0)
}

fn counts(histograms: [&Histogram; 3]) -> [u64; 3] {
    histograms.map(Histogram::count)
}

#[tokio::test]
async fn answered_calls_are_counted_by_code_replica_and_door() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(100)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "ping");
    let mut incoming = replica.next().await;
    incoming.read_all().await;
    assert_eq!(BTreeMap::from([("open", 1)]), front.door("grpc"));
    incoming.reply("pong!");
    call.reply().await;
    let call = client.unary(request(PATH), "where?");
    let mut response = grpc_response();
    response.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
    replica.next().await.respond.send_response(response, true).unwrap();
    call.reply().await;
    front.settle().await;

    let DeploymentMeasures { router, ends, replica_ids, .. } = measures(&front);
    assert_eq!(vec![(0, 1), (5, 1)], ends.codes);
    assert_eq!((10, 5), (ends.request_bytes, ends.response_bytes));
    // An answer of NOT_FOUND is an answer, not a failure.
    assert_eq!([2, 0, 0], counts([&router.answered, &router.failed, &router.waits]));
    let [of_replica] = &router.replicas[..] else { panic!("one replica: {router:?}") };
    assert_eq!((2, 2), (of_replica.sent, of_replica.attempts.count()));
    assert_eq!(vec![(of_replica.id, "r-1".to_owned())], replica_ids);
    assert_eq!([0, 2, 0], router.sent_by_tier);
    assert_eq!(BTreeMap::from([("2xx", 1), ("4xx", 1)]), front.door("grpc"));
}

#[tokio::test]
async fn calls_without_a_replica_are_counted_by_why() {
    let front = Front::start(vec![deployment(vec![])]);
    let client = front.client().await;
    let late = client.unary(request_with(PATH, &[("grpc-timeout", "50m")]), "ping");
    assert_eq!(4, late.reply().await.status());
    let left = client.unary(request(PATH), "ping");
    until("it waits", || front.table.stats()[0].router.parked == 1).await;
    drop(left);
    front.settle().await;

    let DeploymentMeasures { router, ends, .. } = measures(&front);
    assert_eq!((vec![(4, 1)], 1), (ends.codes, ends.left));
    let refused: Vec<_> = ends.refused.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(vec![("deadline", 1)], refused);
    assert_eq!([0, 1, 2], counts([&router.answered, &router.failed, &router.waits]));
    assert_eq!(BTreeMap::from([("4xx", 1), ("left", 1)]), front.door("grpc"));
}

#[tokio::test]
async fn a_parked_call_is_released_by_the_completion_of_another() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let first = client.unary(request(PATH), "1");
    let incoming = replica.next().await;
    let second = client.unary(request(PATH), "2");
    until("it waits", || front.table.stats()[0].router.parked == 1).await;
    incoming.reply("1");
    replica.next().await.reply("2");
    within("both answers", async { (first.reply().await, second.reply().await) }).await;
    front.settle().await;

    let router = measures(&front).router;
    let releases: BTreeMap<_, _> =
        ReleaseCause::ALL.map(ReleaseCause::word).into_iter().zip(router.releases).collect();
    assert_eq!(1, releases["completion"]);
    assert_eq!([2, 0, 1], counts([&router.answered, &router.failed, &router.waits]));
}

#[tokio::test]
async fn plain_http_is_counted_by_the_class_of_its_status() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(100)]);
    route.http_prefixes = vec!["/shop".to_owned()];
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let get = |path: &str| http::Request::get(format!("http://test{path}")).body(()).unwrap();
    let call = client.start(get("/shop/tea"), true);
    let response = Response::builder().status(503).body(()).unwrap();
    replica.next().await.respond.send_response(response, true).unwrap();
    assert_eq!(503, call.reply().await.http);
    assert_eq!(404, client.start(get("/nowhere"), true).reply().await.http);
    front.settle().await;

    let DeploymentMeasures { router, ends, .. } = measures(&front);
    assert_eq!(Some(&("5xx", 1)), ends.http.iter().find(|(_, count)| *count > 0));
    assert!(ends.codes.is_empty(), "{:?}", ends.codes);
    assert_eq!([0, 1, 0], counts([&router.answered, &router.failed, &router.waits]));
    assert_eq!(BTreeMap::from([("4xx", 1), ("5xx", 1)]), front.door("http"));
    assert_eq!(BTreeMap::new(), front.door("grpc"));
}
