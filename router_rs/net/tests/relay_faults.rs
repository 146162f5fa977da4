//! What ends a relay, or a call on it, before its time.

mod front_support;
#[allow(dead_code)] // its own part, as in every test file
mod http_support;
mod relay_support;
#[allow(unused_imports)] // as above
mod server_support;
mod support;

use std::sync::Arc;

use bytes::Bytes;
use front_support::Http1;
use http_support::{Fixture, Told, respond, send, start_response, text, write};
use relay_support::{config, front, front_of, one_app, pass_on, post, replica, route, stat};
use router_core::RetryConfig;
use router_net::link::{CancelReason, Command, Mailbox};
use router_net::names;
use router_net::server::{Exchange, ServerConfig};
use support::{until, within};

#[tokio::test]
async fn a_client_that_goes_away_cancels() {
    let (mut fixture, front) = one_app();
    for has_begun in [false, true] {
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        let (exchange, _) = fixture.next_call().await;
        if has_begun {
            start_response(&exchange, 200, &[]);
            write(&exchange, b"a");
            client.head().await;
        }
        drop(client);
        assert_eq!(Told::Cancel(CancelReason::Client), fixture.next_of_call().await);
        send(&exchange, Command::Release);
        fixture.settle().await;
    }
    front.settle().await;
    assert_eq!(2, stat(&fixture.server, "relayed"));
}

#[tokio::test]
async fn a_deadline_is_408() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.send(post("", "x-request-timeout-seconds: 0.05\r\n")).await;
    let (exchange, _) = fixture.next_call().await;
    assert!(exchange.link().deadline.is_some());
    assert_eq!(408, client.reply().await.status);
    assert!(matches!(fixture.next_of_call().await, Told::Cancel(_)));
    send(&exchange, Command::Release);
    fixture.settle().await;
    front.settle().await;
}

#[tokio::test]
async fn a_call_that_a_full_gate_refuses_goes_elsewhere() {
    let full = |id| ServerConfig { concurrent_calls_max: Some(1), ..config(id) };
    let (mut one, mut two) = (Fixture::start(full("one")), Fixture::start(full("two")));
    // Another router has the only place there, of which this one knows nothing.
    let other = front(vec![replica("one", one.port)]);
    let mut holder = Http1::connect(&other).await;
    holder.get("/app").await;
    let (held, _) = one.next_call().await;
    let front = front(vec![replica("one", one.port), replica("two", two.port)]);
    let mut client = Http1::connect(&front).await;
    for _ in 0..8 {
        client.send(post("body", "")).await;
        let (exchange, body) = two.next_call().await;
        assert_eq!(Some(b"body".to_vec()), body);
        respond(&exchange, 200, &[], b"ok");
        assert_eq!("ok", client.reply().await.text());
    }
    assert!(stat(&one.server, "refused") > 0, "it was asked");
    respond(&held, 200, &[], b"");
    holder.reply().await;
    front.settle().await;
    assert_eq!(8, stat(&two.server, "relayed"));
    assert_eq!(1 + stat(&one.server, "refused"), stat(&one.server, "relayed"));
}

#[tokio::test]
async fn a_drain_loses_no_call() {
    let (mut one, mut two) = (Fixture::start(config("one")), Fixture::start(config("two")));
    let front = front(vec![replica("one", one.port), replica("two", two.port)]);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Http1::connect(&front).await;
        clients.push(tokio::spawn(async move {
            for _ in 0..100 {
                client.send(post("ping", "")).await;
                assert_eq!((200, "pong"), {
                    let reply = client.reply().await;
                    (reply.status, if reply.text() == "pong" { "pong" } else { "" })
                });
            }
        }));
    }
    let answering = async {
        let mut answered = 0;
        while answered < 800 {
            let exchange = tokio::select! {
                (exchange, _) = one.next_call() => exchange,
                (exchange, _) = two.next_call() => exchange,
            };
            answered += 1;
            if answered == 300 {
                one.server.drain();
            }
            respond(&exchange, 200, &[], b"pong");
        }
    };
    within("all calls", answering).await;
    for client in clients {
        client.await.expect("each of its calls is answered");
    }
    front.settle().await;
    until("the drained connection has closed", || stat(&one.server, "connections") == 0).await;
    assert_eq!(800, stat(&one.server, "relayed") + stat(&two.server, "calls"));
    assert!(stat(&two.server, "relayed") > 0);
}

#[tokio::test]
async fn a_stop_answers_what_is_left_and_closes() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let (exchange, _) = fixture.next_call().await;
    fixture.server.stop();
    assert_eq!(503, client.reply().await.status);
    assert_eq!(Told::Cancel(CancelReason::Shutdown), fixture.next_of_call().await);
    send(&exchange, Command::Release);
    until("the connection has closed", || stat(&fixture.server, "connections") == 0).await;
    front.settle().await;
}

#[tokio::test]
async fn a_connection_that_breaks_fails_its_calls_once_each() {
    let mut fixture = Fixture::start(config("replica-1"));
    let (port, passing) = pass_on(fixture.port).await;
    let front = front(vec![replica("replica-1", port)]);
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Http1::connect(&front).await;
        client.send(post("ping", "")).await;
        fixture.next_call().await;
        clients.push(client);
    }
    passing.abort();
    for client in &mut clients {
        let reply = client.reply().await;
        assert_eq!(503, reply.status);
        assert!(reply.text().contains("the connection broke"), "{}", reply.text());
    }
    for _ in 0..5 {
        assert_eq!(Told::Cancel(CancelReason::Client), fixture.next_of_call().await);
    }
    front.settle().await;
    assert_eq!(5, stat(&fixture.server, "relayed"));
}

#[tokio::test]
async fn a_replica_that_is_no_more_is_left_by_its_relay_too() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    respond(&fixture.next_call().await.0, 200, &[], b"");
    client.reply().await;
    assert_eq!(1, stat(&fixture.server, "connections"));
    front.table.apply(Vec::new());
    // Another target on the same thread has the pool look at what nobody names any more.
    let other = Fixture::start(config("other"));
    front.table.apply(vec![route(vec![replica("other", other.port)])]);
    client.get("/app").await;
    until("the connection has closed", || stat(&fixture.server, "connections") == 0).await;
}

#[tokio::test]
async fn strangers_have_no_relay_and_garbage_ends_one() {
    let fixture = Fixture::start(config("replica-1"));
    let mut stranger = fixture.connect().await;
    let head = server_support::request(names::RELAY_PATH, &[]);
    let answer = http_support::call(&mut stranger, head).await;
    assert_eq!(Some("12"), text(&answer.headers, "grpc-status"));

    let mut router = http_support::prove(fixture.connect().await).await;
    let call_in_a_far_place = [0, 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255];
    for garbage in [&b"garbage of thirteen bytes"[..], &call_in_a_far_place] {
        let head = server_support::request(names::RELAY_PATH, &[]);
        let (response, mut body) = router.send_request(head, false).unwrap();
        body.send_data(Bytes::copy_from_slice(garbage), false).unwrap();
        let error = http_support::read(response).await.expect_err("a reset");
        assert_eq!(Some(h2::Reason::PROTOCOL_ERROR), error.reason());
    }
    // Only that stream has ended.
    within("room for a call", router.ready()).await.expect("an open connection");
    fixture.settle().await;
}

/// Answers as many requests as tell the router how long they take; both replicas have relays then.
async fn learn(client: &mut Http1, one: &mut Fixture, two: &mut Fixture) {
    for _ in 0..40 {
        client.send(put("ping")).await;
        respond(&next(one, two).await.0, 200, &[], b"");
        assert_eq!(200, client.reply().await.status);
    }
}

/// The next request at either, and whether it is at the first.
async fn next(one: &mut Fixture, two: &mut Fixture) -> (Arc<Exchange>, bool) {
    tokio::select! {
        (exchange, _) = one.next_call() => (exchange, true),
        (exchange, _) = two.next_call() => (exchange, false),
    }
}

/// A request that may be repeated.
fn put(body: &str) -> String {
    post(body, "").replacen("POST", "PUT", 1)
}

#[tokio::test]
async fn a_late_call_is_answered_by_a_second_replica_and_the_loser_is_cancelled() {
    let (mut one, mut two) = (Fixture::start(config("one")), Fixture::start(config("two")));
    let mut route = route(vec![replica("one", one.port), replica("two", two.port)]);
    route.router.hedging = true;
    let front = front_of(route);
    let mut client = Http1::connect(&front).await;
    learn(&mut client, &mut one, &mut two).await;
    client.send(put("ping")).await;
    let (late, is_one) = next(&mut one, &mut two).await;
    let (first, second) = if is_one { (&mut one, &mut two) } else { (&mut two, &mut one) };
    let (hedge, body) = second.next_call().await;
    assert_eq!(Some(b"ping".to_vec()), body);
    respond(&hedge, 200, &[], b"second");
    assert_eq!("second", client.reply().await.text());
    assert_eq!(Told::Cancel(CancelReason::Client), first.next_of_call().await);
    send(&late, Command::Release);
    front.settle().await;
    assert_eq!(42, stat(&one.server, "relayed") + stat(&two.server, "relayed"));
}

#[tokio::test]
async fn a_call_that_may_be_repeated_goes_elsewhere_when_its_connection_breaks() {
    let (mut one, mut two) = (Fixture::start(config("one")), Fixture::start(config("two")));
    let (port, passing) = pass_on(one.port).await;
    let mut route = route(vec![replica("one", port), replica("two", two.port)]);
    route.router.retries = RetryConfig { attempts_max: 3, budget_percent: 20 };
    let front = front_of(route);
    let mut client = Http1::connect(&front).await;
    loop {
        client.send(put("ping")).await;
        let (exchange, is_one) = next(&mut one, &mut two).await;
        if is_one {
            break passing.abort();
        }
        respond(&exchange, 200, &[], b"");
        client.reply().await;
    }
    let (exchange, body) = two.next_call().await;
    assert_eq!(Some(b"ping".to_vec()), body);
    respond(&exchange, 200, &[], b"elsewhere");
    assert_eq!("elsewhere", client.reply().await.text());
    front.settle().await;
}
