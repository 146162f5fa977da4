//! Parked calls get the places that other routers' calls free (design decision 7).

mod model_support;
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model_support::{Fixture, Replica, start};
use router_core::RouterStats;
use router_net::client::ClientCall;
use router_net::link::{Command, Mailbox};
use support::until;

/// Two routers in front of replicas with one place each. The first one's calls have both places,
/// and `parked` calls of the second wait.
async fn crowded(parked: usize) -> (Fixture, Fixture, Vec<Arc<ClientCall>>, Vec<Arc<ClientCall>>) {
    let first = start(1, 10);
    let second = first.another(10);
    let inside = vec![first.pinned("r-1"), first.pinned("r-2")];
    first.held(2).await;
    let waiting = (0..parked).map(|_| second.with_model("")).collect();
    until("the calls are parked", || stats(&second).parked == parked as u64).await;
    (first, second, inside, waiting)
}

fn stats(fixture: &Fixture) -> RouterStats {
    fixture.table.stats().swap_remove(0).router
}

/// Answers the only call in the replica.
fn free(fixture: &Fixture, replica: &Replica) {
    let call = replica.held.calls.lock().pop().expect("a call is in");
    let reply = Command::Reply(Bytes::from_static(b"pong").into());
    fixture.threads.all()[0].run(move || call.link().deliver(reply));
}

#[tokio::test]
async fn a_place_that_another_router_gives_back_goes_to_a_parked_call_at_once() {
    let (first, second, _inside, _waiting) = crowded(10).await;
    let replica = &first.replicas[0];
    let mut fastest = Duration::MAX;
    for round in 0..10 {
        let start = Instant::now();
        free(&first, replica);
        until("the next call is in", || replica.held() == 1).await;
        fastest = fastest.min(start.elapsed());
        // The end of its own call opens the replica to the second router, whose other calls are
        // refused again.
        until("the others wait", || stats(&second).parked == 9 - round).await;
    }
    // The last one was let in by a lease, too: the router that answers it sees its own call end.
    assert!(stats(&second).leased >= 1, "{:?}", stats(&second));
    assert!(fastest < Duration::from_millis(20), "{fastest:?}: no backoff is that short");
}

#[tokio::test]
async fn routers_that_wait_take_turns_and_leave_nothing_behind() {
    let (first, second, inside, mut waiting) = crowded(4).await;
    let third = first.another(10);
    let more: Vec<_> = (0..4).map(|_| third.with_model("")).collect();
    until("they are parked", || stats(&third).parked == 4).await;
    let start = Instant::now();
    let is_over = || stats(&second).completed + stats(&third).completed == 8;
    until("all are answered", || {
        for replica in first.replicas.iter().filter(|replica| replica.held() == 1) {
            free(&first, replica);
        }
        is_over()
    })
    .await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for (fixture, calls) in [(&second, &mut waiting), (&third, &mut more.clone())] {
        for call in calls.drain(..) {
            assert!(fixture.done(&call).await.is_some());
        }
    }
    for call in inside {
        assert!(first.done(&call).await.is_some());
    }
    for fixture in [&first, &second, &third] {
        let RouterStats { parked, in_flight, .. } = stats(fixture);
        assert_eq!((0, 0), (parked, in_flight));
    }
    let is_empty = |replica: &Replica| replica.server.in_flight() == 0;
    until("the gates are empty", || first.replicas.iter().all(is_empty)).await;
}

#[tokio::test]
async fn a_place_kept_for_a_call_that_has_gone_is_given_back() {
    let (first, second, _inside, waiting) = crowded(1).await;
    let cancelled = Arc::clone(&waiting[0]);
    second.threads.all()[0].run(move || cancelled.link().deliver(Command::Cancel));
    until("nobody waits", || stats(&second).parked == 0).await;
    free(&first, &first.replicas[0]);
    let call = first.with_model("");
    until("a call of another router is in", || first.replicas[0].held() == 1).await;
    drop(call);
}
