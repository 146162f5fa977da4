//! Calls that name a model, pinned calls and chosen places, against the replica server itself.

mod model_support;
mod support;

use std::sync::Arc;

use model_support::{Fixture, start};
use router_net::client::ClientCall;
use router_net::dispatch::Placement;
use router_net::grpc::Code;
use router_net::link::{Event, Mailbox};
use support::until;

fn status(call: &ClientCall) -> (Code, &str) {
    let status = call.status().expect("the call is over");
    (status.code, &status.message)
}

#[tokio::test]
async fn calls_go_to_the_replica_that_reported_their_model() {
    let fixture = start(100, 100);
    let [first, second] = &*fixture.replicas;
    first.set_models(&["a"]);
    second.set_models(&["b"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the reports", || fixture.models() == [["a"], ["b"]]).await;
    fixture.answer(&opener).await;
    let calls: Vec<_> =
        (0..20).map(|index| fixture.with_model(if index % 4 == 0 { "a" } else { "b" })).collect();
    assert_eq!([5, 15], fixture.held(20).await);
    fixture.answer(&calls).await;
}

#[tokio::test]
async fn a_burst_for_a_cold_model_goes_to_one_replica() {
    let fixture = start(100, 100);
    let calls: Vec<_> = (0..20).map(|_| fixture.with_model("cold")).collect();
    let mut held = fixture.held(20).await;
    held.sort_unstable();
    assert_eq!([0, 20], held);
    fixture.answer(&calls).await;
}

/// The first replica has the model and is full; a call of the model waits, beside an idle replica.
async fn one_waits_for_the_first() -> (Fixture, Arc<ClientCall>, Arc<ClientCall>) {
    let fixture = start(1, 1);
    fixture.replicas[0].set_models(&["a"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the report", || fixture.models()[0] == ["a"]).await;
    fixture.answer(&opener).await;
    let running = fixture.pinned("r-1");
    fixture.held(1).await;
    let waiting = fixture.with_model("a");
    until("a call is parked", || fixture.table.stats()[0].router.waiting_for_model == 1).await;
    (fixture, running, waiting)
}

#[tokio::test]
async fn a_place_at_the_holder_ends_the_wait_for_it() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    fixture.answer(&[running]).await;
    assert_eq!([1, 0], fixture.held(1).await);
    fixture.answer(&[waiting]).await;
}

#[tokio::test]
async fn a_report_of_another_replica_ends_the_wait_for_the_holder() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    fixture.replicas[1].set_models(&["a"]);
    assert_eq!([1, 1], fixture.held(2).await);
    fixture.answer(&[running, waiting]).await;
}

#[tokio::test]
async fn the_wait_for_the_holder_ends_after_the_matching_timeout() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    assert_eq!([1, 1], fixture.held(2).await);
    fixture.answer(&[running, waiting]).await;
}

#[tokio::test]
async fn a_pinned_call_goes_to_its_replica_however_full() {
    let fixture = start(1, 1);
    let first: Vec<_> = (0..3).map(|_| fixture.pinned("r-1")).collect();
    let second = fixture.pinned("r-2");
    assert_eq!([3, 1], fixture.held(4).await);
    // They count at both ends.
    assert_eq!((3, 4), (fixture.replicas[0].server.in_flight(), fixture.in_flight()));
    fixture.answer(&first).await;
    assert!(matches!(fixture.events.next(second.link().token).await, Event::Done(_)));
    let nobody = fixture.pinned("r-9");
    assert_eq!(None, fixture.done(&nobody).await);
    assert_eq!((Code::Unavailable, "app/Echo has no replica \"r-9\""), status(&nobody));
    until("all places are free", || fixture.in_flight() == 0).await;
    assert_eq!(0, fixture.replicas[0].server.in_flight());
}

#[tokio::test]
async fn a_pinned_call_to_a_replica_that_does_not_answer_names_it() {
    let fixture = start(1, 1);
    fixture.replicas[1].server.stop();
    let call = fixture.pinned("r-2");
    assert_eq!(None, fixture.done(&call).await);
    let (code, text) = status(&call);
    assert_eq!(Code::Unavailable, code);
    assert!(text.starts_with("replica \"r-2\": "), "{text}");
}

#[tokio::test]
async fn a_chosen_place_counts_until_it_is_used_or_given_back() {
    let fixture = start(1, 1);
    let place = fixture.choose("", 1000).await.unwrap();
    let other = fixture.choose("", 1000).await.unwrap();
    let mut ids = [place.replica_id().to_owned(), other.replica_id().to_owned()];
    ids.sort_unstable();
    assert_eq!(["r-1", "r-2"].map(str::to_owned), ids);
    assert_eq!(format!("node-of-{}", place.replica_id()), place.node());
    assert_eq!(2, fixture.in_flight());
    assert_eq!(Err(Code::DeadlineExceeded), fixture.choose("", 30).await.map(|_| ()));
    other.release();
    other.release();
    drop(other);
    assert_eq!(1, fixture.in_flight());

    let call = fixture.call("", Placement::Reserved(Arc::clone(&place)));
    let held = fixture.held(1).await;
    assert_eq!(usize::from(place.replica_id() == "r-1"), held[0]);
    place.release();
    assert_eq!(1, fixture.in_flight());
    fixture.answer(&[call]).await;
    until("the place is free", || fixture.in_flight() == 0).await;

    let late = fixture.call("", Placement::Reserved(place));
    assert_eq!(None, fixture.done(&late).await);
    let (code, text) = status(&late);
    assert_eq!(Code::Unavailable, code);
    assert!(text.contains("released or used before"), "{text}");
}

#[tokio::test]
async fn a_place_for_a_model_is_where_the_model_is() {
    let fixture = start(10, 10);
    fixture.replicas[1].set_models(&["a"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the report", || fixture.models()[1] == ["a"]).await;
    fixture.answer(&opener).await;
    for _ in 0..3 {
        assert_eq!("r-2", fixture.choose("a", 1000).await.unwrap().replica_id());
    }
    until("dropped places are free", || fixture.in_flight() == 0).await;
}
