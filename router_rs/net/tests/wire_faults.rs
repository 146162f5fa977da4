//! Early ends of a wire connection, or of a call on it.

mod front_support;
#[allow(dead_code)] // its own part, as in every test file
mod http_support;
#[allow(unused_imports)] // as above
mod server_support;
mod support;
mod wire_support;

use std::sync::Arc;

use front_support::Http1;
use http_support::{Fixture, Told, finish, respond, send, start_response, write};
use router_core::RetryConfig;
use router_net::dispatch::{DeploymentRoute, ReplicaRoute};
use router_net::grpc::Code;
use router_net::link::{CancelReason, Command, Mailbox};
use router_net::mesh::proof;
use router_net::server::{ServedCall, ServerConfig};
use router_wire::greeting;
use server_support::frame;
use support::{Manners, PATH, Replica, deployment, open_service, request, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire_support::{
    TOKEN, config, front, front_of, one_app, pass_on, post, replica, route, stat, take_body,
};

#[tokio::test]
async fn a_client_that_goes_away_cancels() {
    let (mut fixture, front) = one_app();
    for has_begun in [false, true] {
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        let (served_call, _) = fixture.next_call().await;
        if has_begun {
            start_response(&served_call, 200, &[]);
            write(&served_call, b"a");
            client.head().await;
        }
        drop(client);
        assert_eq!(Told::Cancel(CancelReason::Client), fixture.next_of_call().await);
        send(&served_call, Command::Release);
        fixture.settle().await;
    }
    front.settle().await;
    assert_eq!(2, stat(&fixture.server, "wire_calls"));
}

#[tokio::test]
async fn a_deadline_is_408() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.send(post("", "x-request-timeout-seconds: 0.05\r\n")).await;
    let (served_call, _) = fixture.next_call().await;
    assert!(served_call.link().deadline.is_some());
    assert_eq!(408, client.reply().await.status);
    assert!(matches!(fixture.next_of_call().await, Told::Cancel(_)));
    send(&served_call, Command::Release);
    fixture.settle().await;
    front.settle().await;
}

#[tokio::test]
async fn a_call_that_a_full_gate_refuses_goes_elsewhere() {
    let full = |id| ServerConfig { concurrent_calls_max: Some(1), ..config(id) };
    let (mut one, mut two) = (Fixture::start(full("one")), Fixture::start(full("two")));
    // Another router has the only place there; this one does not know that.
    let other = front(vec![replica("one", one.port)]);
    let mut holder = Http1::connect(&other).await;
    holder.get("/app").await;
    let (held, _) = one.next_call().await;
    let front = front(vec![replica("one", one.port), replica("two", two.port)]);
    let mut client = Http1::connect(&front).await;
    for _ in 0..8 {
        client.send(post("body", "")).await;
        let (served_call, body) = two.next_call().await;
        assert_eq!(Some(b"body".to_vec()), body);
        respond(&served_call, 200, &[], b"ok");
        assert_eq!("ok", client.reply().await.text());
    }
    assert!(stat(&one.server, "refused") > 0, "it was asked");
    respond(&held, 200, &[], b"");
    holder.reply().await;
    front.settle().await;
    assert_eq!(8, stat(&two.server, "wire_calls"));
    assert_eq!(1 + stat(&one.server, "refused"), stat(&one.server, "wire_calls"));
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
            let served_call = tokio::select! {
                (served_call, _) = one.next_call() => served_call,
                (served_call, _) = two.next_call() => served_call,
            };
            answered += 1;
            if answered == 300 {
                one.server.drain();
            }
            respond(&served_call, 200, &[], b"pong");
        }
    };
    within("all calls", answering).await;
    for client in clients {
        client.await.expect("each of its calls is answered");
    }
    front.settle().await;
    until("the drained connection has closed", || stat(&one.server, "connections") == 0).await;
    assert_eq!(800, stat(&one.server, "wire_calls") + stat(&two.server, "calls"));
    assert!(stat(&two.server, "wire_calls") > 0);
}

#[tokio::test]
async fn a_stop_answers_what_is_left_and_closes() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let (served_call, _) = fixture.next_call().await;
    fixture.server.stop();
    assert_eq!(503, client.reply().await.status);
    assert_eq!(Told::Cancel(CancelReason::Shutdown), fixture.next_of_call().await);
    send(&served_call, Command::Release);
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
    assert_eq!(5, stat(&fixture.server, "wire_calls"));
}

#[tokio::test]
async fn a_replica_that_is_no_more_is_left() {
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    respond(&fixture.next_call().await.0, 200, &[], b"");
    client.reply().await;
    assert_eq!(1, stat(&fixture.server, "connections"));
    front.table.apply(Vec::new());
    // A call to another target on the same thread makes the pool drop unused targets.
    let other = Fixture::start(config("other"));
    front.table.apply(vec![route(vec![replica("other", other.port)])]);
    client.get("/app").await;
    until("the connection has closed", || stat(&fixture.server, "connections") == 0).await;
}

/// The first frame of a member, and its second, for the nonce received.
async fn greet(port: u16, token: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(&greeting::hello(&[7; 16]).unwrap()).await.unwrap();
    let mut prefix = [0; greeting::WELCOME_PREFIX_BYTES];
    stream.read_exact(&mut prefix).await.unwrap();
    let mut rest = vec![0; greeting::welcome_rest_bytes(&prefix).expect("our version")];
    stream.read_exact(&mut rest).await.unwrap();
    let said = greeting::read_welcome(&rest).expect("a welcome");
    assert_eq!("replica-1", said.replica_id);
    assert!(proof::verify_replica(TOKEN, &[7; 16], "replica-1", &said.proof));
    let claim = greeting::claim(&proof::proof(token, &said.nonce, "replica-1")).unwrap();
    stream.write_all(&[&claim[..], &[greeting::NO_ARENA]].concat()).await.unwrap();
    stream
}

/// Waits until the server has closed; an error counts as an end.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    let _ended = within("the end", stream.read_to_end(&mut came)).await;
    came
}

const PING: [u8; 13] = [0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0];
const PONG: [u8; 13] = [0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0];

#[tokio::test]
async fn a_member_is_heard_and_whoever_proves_nothing_is_not() {
    let fixture = Fixture::start(config("replica-1"));
    let mut member = greet(fixture.port, TOKEN).await;
    member.write_all(&PING).await.unwrap();
    let mut pong = [0; 13];
    within("a sign of life", member.read_exact(&mut pong)).await.unwrap();
    assert_eq!(PONG, pong);

    let mut stranger = greet(fixture.port, b"another").await;
    let _closed = stranger.write_all(&PING).await;
    assert!(rest(&mut stranger).await.is_empty());
}

#[tokio::test]
async fn another_version_is_told_so_and_garbage_ends_a_connection() {
    let fixture = Fixture::start(config("replica-1"));
    let mut other = TcpStream::connect(("127.0.0.1", fixture.port)).await.unwrap();
    let mut hello = greeting::hello(&[7; 16]).unwrap();
    hello[8] = 99;
    other.write_all(&hello).await.unwrap();
    assert_eq!(greeting::OTHER_VERSION.to_vec(), rest(&mut other).await);

    let call_in_a_far_place = [0, 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255];
    let answer_of_a_client = [0, 0, 0, 4, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 200, 0, 0];
    for garbage in [&b"garbage of thirteen bytes"[..], &call_in_a_far_place, &answer_of_a_client] {
        let mut member = greet(fixture.port, TOKEN).await;
        member.write_all(garbage).await.unwrap();
        assert!(rest(&mut member).await.is_empty());
    }
    fixture.settle().await;
}

#[tokio::test]
async fn a_server_without_a_token_knows_no_wire() {
    let fixture = Fixture::start(ServerConfig { token: Vec::new(), ..config("replica-1") });
    let mut member = TcpStream::connect(("127.0.0.1", fixture.port)).await.unwrap();
    member.write_all(&greeting::hello(&[7; 16]).unwrap()).await.unwrap();
    let came = rest(&mut member).await;
    assert!(!came.starts_with(&greeting::MAGIC), "{came:?}");
}

#[tokio::test]
async fn a_replica_that_knows_no_wire_is_spoken_to_over_http2_and_that_is_remembered() {
    let mut older =
        Replica::start_with(Manners { token: TOKEN.to_vec(), ..Manners::of("older") }).await;
    let known = ReplicaRoute { proves_itself: true, ..older.route(1000) };
    let services = vec![open_service("pkg.Echo")];
    let front = front_of(DeploymentRoute { services, ..deployment(vec![known]) });
    let client = front.client().await;
    let first = client.unary(request(PATH), frame(0, b"ping"));
    older.next().await.reply(frame(0, b"pong"));
    assert_eq!(0, first.reply().await.status());
    // The dial connected once for each protocol.
    assert_eq!(2, older.connections());
    // More simultaneous calls than one connection is for: the next dial does not try the wire
    // again.
    let calls: Vec<_> = (0..130).map(|_| client.unary(request(PATH), frame(0, b"ping"))).collect();
    let mut came = Vec::new();
    for _ in 0..130 {
        came.push(older.next().await);
    }
    until("another connection", || older.connections() > 2).await;
    for incoming in came {
        incoming.reply(frame(0, b"pong"));
    }
    for call in calls {
        assert_eq!(0, call.reply().await.status());
    }
    front.settle().await;
    assert_eq!(3, older.connections());
}

/// Answers as many requests as the router needs to learn how long they take; both replicas have
/// connections then.
async fn learn(client: &mut Http1, one: &mut Fixture, two: &mut Fixture) {
    for _ in 0..40 {
        client.send(put("ping")).await;
        respond(&next(one, two).await.0, 200, &[], b"");
        assert_eq!(200, client.reply().await.status);
    }
}

/// The next request at either replica, and whether it is at the first.
async fn next(one: &mut Fixture, two: &mut Fixture) -> (Arc<ServedCall>, bool) {
    tokio::select! {
        (served_call, _) = one.next_call() => (served_call, true),
        (served_call, _) = two.next_call() => (served_call, false),
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
    route.router.config.hedging = true;
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
    assert_eq!(42, stat(&one.server, "wire_calls") + stat(&two.server, "wire_calls"));
}

#[tokio::test]
async fn a_call_that_may_be_repeated_goes_elsewhere_when_its_connection_breaks() {
    let (mut one, mut two) = (Fixture::start(config("one")), Fixture::start(config("two")));
    let (port, passing) = pass_on(one.port).await;
    let mut route = route(vec![replica("one", port), replica("two", two.port)]);
    route.router.config.retries = RetryConfig { attempts_max: 3, budget_percent: 20 };
    let front = front_of(route);
    let mut client = Http1::connect(&front).await;
    loop {
        client.send(put("ping")).await;
        let (served_call, is_one) = next(&mut one, &mut two).await;
        if is_one {
            break passing.abort();
        }
        respond(&served_call, 200, &[], b"");
        client.reply().await;
    }
    let (served_call, body) = two.next_call().await;
    assert_eq!(Some(b"ping".to_vec()), body);
    respond(&served_call, 200, &[], b"elsewhere");
    assert_eq!("elsewhere", client.reply().await.text());
    front.settle().await;
}

#[tokio::test]
async fn a_second_replica_that_answers_early_gets_all_of_a_long_body() {
    /// More than there is credit for at once.
    const BODY_BYTES: usize = 600_000;
    let (mut one, mut two) = (Fixture::start(config("one")), Fixture::start(config("two")));
    let mut route = route(vec![replica("one", one.port), replica("two", two.port)]);
    route.router.config.hedging = true;
    let front = front_of(route);
    let mut client = Http1::connect(&front).await;
    learn(&mut client, &mut one, &mut two).await;
    let sending = client.send(put(&"b".repeat(BODY_BYTES)));
    let taking = async {
        let (late, is_one) = next(&mut one, &mut two).await;
        let (first, second) = if is_one { (&mut one, &mut two) } else { (&mut two, &mut one) };
        assert_eq!(BODY_BYTES, take_body(first, &late).await);
        let (hedge, body) = second.next_call().await;
        assert_eq!(None, body);
        start_response(&hedge, 200, &[]);
        assert_eq!(Told::Cancel(CancelReason::Client), first.next_of_call().await);
        send(&late, Command::Release);
        assert_eq!(BODY_BYTES, take_body(second, &hedge).await);
        finish(&hedge, Code::Ok, "", &[]);
    };
    within("both bodies", async { tokio::join!(sending, taking) }).await;
    assert_eq!(200, client.reply().await.status);
    front.settle().await;
}
