//! Refusals, lost replicas, deadlines, cancels, drains: how the ingress handles them.

mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{
    Client, Front, Manners, NODE, PATH, Replica, deployment, ok_trailers, request, request_with,
    table, until, within,
};
use tokio::time::Instant;

const TIMEOUT: &str = "grpc-timeout";

#[tokio::test]
async fn a_refused_call_goes_to_another_replica_with_the_same_bytes() {
    let mut replicas = [Replica::start("r-1").await, Replica::start("r-2").await];
    let routes = replicas.iter().map(|replica| replica.route(10)).collect();
    let front = Front::start(vec![deployment(routes)]);
    let client = front.client().await;
    let data = Bytes::from(vec![7; 300_000]);
    let call = client.unary(request_with(PATH, &[("x-key", "v")]), data.clone());
    let [first, second] = &mut replicas;
    let (incoming, other) = tokio::select! {
        incoming = first.next() => (incoming, second),
        incoming = second.next() => (incoming, first),
    };
    incoming.refuse();
    let mut incoming = other.next().await;
    assert_eq!("v", incoming.head.headers["x-key"]);
    assert_eq!(data, incoming.read_all().await);
    incoming.reply("pong");
    let reply = call.reply().await;
    assert_eq!((0, "pong".into()), (reply.status(), reply.body.clone()));
    front.settle().await;
    assert_eq!(1, front.table.stats()[0].router.refusals);
}

#[tokio::test]
async fn a_long_body_that_was_never_taken_is_whole_at_the_next_replica() {
    let closed = |id| Manners { window_bytes: 0, ..Manners::of(id) };
    let mut replicas =
        [Replica::start_with(closed("r-1")).await, Replica::start_with(closed("r-2")).await];
    let routes = replicas.iter().map(|replica| replica.route(10)).collect();
    let front = Front::start(vec![deployment(routes)]);
    let client = front.client().await;
    let [first, second] = &mut replicas;
    // Then the client knows how long a frame may be.
    let known = client.unary(request(PATH), "");
    tokio::select! {
        incoming = first.next() => incoming.reply("pong"),
        incoming = second.next() => incoming.reply("pong"),
    }
    assert_eq!("pong", known.reply().await.body);
    // In one piece, longer than may be sent without asking for room.
    let call = client.unary(request(PATH), vec![7; 20_000]);
    let (mut incoming, other) = tokio::select! {
        incoming = first.next() => (incoming, second),
        incoming = second.next() => (incoming, first),
    };
    incoming.respond.send_reset(h2::Reason::REFUSED_STREAM);
    let incoming = other.next().await;
    assert!(!incoming.body.is_end_stream(), "the body is still to come");
    incoming.reply("pong");
    assert_eq!("pong", call.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn a_refused_call_parks_and_is_sent_again_when_a_place_is_free() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "ping");
    for _ in 0..4 {
        replica.next().await.refuse();
    }
    let mut incoming = replica.next().await;
    assert_eq!("ping", incoming.read_all().await);
    incoming.reply("pong");
    assert_eq!("pong", call.reply().await.body);
    front.settle().await;
    assert_eq!(4, front.table.stats()[0].router.refusals);
}

#[tokio::test]
async fn a_refusal_mark_of_a_stranger_is_an_ordinary_answer() {
    let stranger = Manners { token: b"another mesh".to_vec(), ..Manners::of("r-1") };
    let mut replica = Replica::start_with(stranger).await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "ping");
    replica.next().await.refuse();
    let reply = call.reply().await;
    assert_eq!(8, reply.status());
    assert!(!reply.headers.contains_key("pyserve-refused"));
    assert_eq!(0, replica.proven.load(std::sync::atomic::Ordering::SeqCst));
    front.settle().await;
    assert_eq!(None, front.table.stats()[0].router.replicas[0].reported);
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_parked_call_asleep() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(1)]);
    route.max_queued_requests = 1;
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let given_up = client.unary(request(PATH), "a");
    let incoming = replica.next().await;
    let parked = client.unary(request(PATH), "b");
    until("the second call is parked", || front.table.stats()[0].router.parked == 1).await;

    // The queue has no place for it, so the end of the replica's backoff concerns "b" alone.
    incoming.refuse();
    assert_eq!(8, given_up.reply().await.status());
    let mut incoming = replica.next().await;
    assert_eq!("b", incoming.read_all().await);
    incoming.reply("pong");
    assert_eq!("pong", parked.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn parked_calls_go_out_in_turn_as_calls_complete() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let calls: Vec<_> =
        ["a", "b", "c"].map(|data| client.unary(request(PATH), data)).into_iter().collect();
    for call in calls {
        let mut incoming = replica.next().await;
        assert!(replica.calls.try_recv().is_err());
        let data = incoming.read_all().await;
        incoming.reply(data.clone());
        assert_eq!(data, call.reply().await.body);
    }
    front.settle().await;
}

#[tokio::test]
async fn a_full_queue_turns_calls_away() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(1)]);
    route.max_queued_requests = 1;
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let first = client.unary(request(PATH), "a");
    let incoming = replica.next().await;
    let second = client.unary(request(PATH), "b");
    until("one call is parked", || front.parked() == 1).await;
    let reply = client.call("c").await;
    assert_eq!(8, reply.status());
    assert!(reply.message().contains("max_queued_requests"), "{}", reply.message());
    assert_eq!(Some("ingress"), reply.answered_by());
    incoming.reply("1");
    replica.next().await.reply("2");
    assert_eq!("1", first.reply().await.body);
    assert_eq!("2", second.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn a_lost_replica_fails_only_the_calls_that_were_sent_there() {
    let mut doomed = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![doomed.route(1)])]);
    let client = front.client().await;
    let sent = client.unary(request(PATH), "a");
    let _incoming = doomed.next().await;
    let parked = client.unary(request(PATH), "b");
    until("one call is parked", || front.parked() == 1).await;
    let mut heir = Replica::start("r-2").await;
    drop(doomed);
    let reply = sent.reply().await;
    assert_eq!(14, reply.status());
    assert_eq!(Some("ingress"), reply.answered_by());
    assert!(reply.message().contains("connection"), "{}", reply.message());
    front.table.apply(vec![deployment(vec![heir.route(1)])]);
    heir.next().await.reply("from the heir");
    assert_eq!("from the heir", parked.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn a_replica_that_cannot_be_reached_costs_no_call() {
    let mut live = Replica::start("r-1").await;
    let mut dead = live.route(100);
    dead.replica_id = "r-2".to_owned();
    dead.address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let mut impostor = live.route(100);
    impostor.replica_id = "r-3".to_owned();
    let routes = vec![live.route(100), dead, impostor];
    let front = Front::start(vec![deployment(routes)]);
    let client = front.client().await;
    for _ in 0..20 {
        let call = client.unary(request(PATH), "ping");
        live.next().await.reply("pong");
        assert_eq!("pong", call.reply().await.body);
    }
    front.settle().await;
    assert!(front.table.stats()[0].router.connect_failures >= 2);
}

#[tokio::test]
async fn a_silent_replica_is_found_out_while_calls_wait_for_it() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(100)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "ping");
    let incoming = replica.next().await;
    // Nothing is sent for longer than the router's patience, but the connection answers PINGs.
    tokio::time::sleep(Duration::from_millis(700)).await;
    incoming.reply("pong");
    assert_eq!("pong", call.reply().await.body);

    let call = client.unary(request(PATH), "ping");
    let _incoming = replica.next().await;
    let start = Instant::now();
    replica.freeze();
    let reply = call.reply().await;
    assert_eq!(14, reply.status());
    assert!(reply.message().contains("PING"), "{}", reply.message());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    front.settle().await;
}

#[tokio::test]
async fn a_deadline_passes_while_parked_and_in_transit() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let start = Instant::now();
    let sent = client.unary(request_with(PATH, &[(TIMEOUT, "1000m")]), "a");
    let mut incoming = replica.next().await;
    let parked = client.unary(request_with(PATH, &[(TIMEOUT, "500m")]), "b");
    for (call, least_ms) in [(parked, 500), (sent, 1000)] {
        let reply = call.reply().await;
        assert_eq!(4, reply.status());
        assert_eq!(Some("ingress"), reply.answered_by());
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(least_ms), "{took:?}");
        assert!(took < Duration::from_millis(least_ms + 3000), "{took:?}");
    }
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    front.settle().await;
}

#[tokio::test]
async fn a_deadline_inside_a_stream_ends_it_with_a_status() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let call = client.unary(request_with(PATH, &[(TIMEOUT, "500m")]), "a");
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    stream.send_data("part".into(), false).unwrap();
    let reply = call.reply().await;
    assert_eq!("part", reply.body);
    assert_eq!("4", reply.trailers["grpc-status"]);
    assert_eq!(h2::Reason::CANCEL, incoming.reset_of(&mut stream).await);
    front.settle().await;
}

#[tokio::test]
async fn a_client_that_resets_or_vanishes_cancels_the_call_at_the_replica() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let mut call = client.start(request(PATH), false);
    let mut incoming = replica.next().await;
    let mut parked = client.start(request(PATH), false);
    until("one call is parked", || front.parked() == 1).await;
    parked.body.send_reset(h2::Reason::CANCEL);
    until("the parked call is gone", || front.parked() == 0).await;
    call.body.send_reset(h2::Reason::CANCEL);
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);

    let _call = client.start(request(PATH), false);
    let mut incoming = replica.next().await;
    client.connection.abort();
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    front.settle().await;
    assert_eq!(3, front.stat("cancelled_by_client"));
}

#[tokio::test]
async fn the_unix_socket_is_preferred_and_a_wrong_one_is_no_fault_of_the_replica() {
    let folder = std::env::temp_dir().join(format!("pyserve-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, owner) in [("right", "r-1"), ("wrong", "r-9")] {
        let path = folder.join(name);
        let mut by_unix = Replica::start_unix(Manners::of(owner), &path);
        let mut by_tcp = Replica::start("r-1").await;
        let mut route = by_tcp.route(10);
        route.node = NODE.to_owned();
        route.unix_path = path.to_str().unwrap().to_owned();
        let front = Front::start(vec![deployment(vec![route])]);
        let client = front.client().await;
        let call = client.unary(request(PATH), "ping");
        let expected = if owner == "r-1" { &mut by_unix } else { &mut by_tcp };
        expected.next().await.reply("pong");
        assert_eq!("pong", call.reply().await.body);
        front.settle().await;
        assert_eq!(0, front.table.stats()[0].router.connect_failures, "{name}");
        assert_eq!(usize::from(owner != "r-1"), by_tcp.connections(), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_drain_says_goaway_and_lets_calls_finish() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let client = front.client().await;
    let call = client.unary(request(PATH), "ping");
    let incoming = replica.next().await;
    front.ingress.drain();
    until("the port is closed", || std::net::TcpStream::connect(&front.address).is_err()).await;
    incoming.reply("pong");
    assert_eq!("pong", call.reply().await.body);
    let Client { connection, send } = client;
    drop(send);
    within("the connection's end", connection).await.unwrap().unwrap();
    front.settle().await;
}

#[tokio::test]
async fn a_stop_ends_what_is_left_as_unavailable() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1)])]);
    let client = front.client().await;
    let sent = client.unary(request(PATH), "a");
    let mut incoming = replica.next().await;
    let parked = client.unary(request(PATH), "b");
    until("one call is parked", || front.parked() == 1).await;
    front.ingress.stop();
    for call in [sent, parked] {
        let reply = call.reply().await;
        assert_eq!(14, reply.status());
        assert_eq!(Some("ingress"), reply.answered_by());
    }
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    front.settle().await;
}

#[tokio::test]
async fn calls_parked_at_a_deployment_that_leaves_end_unavailable() {
    let front = Front::over(table(support::TOKEN));
    front.table.apply(vec![deployment(vec![])]);
    let client = front.client().await;
    let parked = client.unary(request(PATH), "a");
    until("one call is parked", || front.parked() == 1).await;
    front.table.apply(vec![]);
    let reply = parked.reply().await;
    assert_eq!(14, reply.status());
    assert!(reply.message().contains("app/Echo"), "{}", reply.message());
    assert_eq!(12, client.call("b").await.status());
    front.settle().await;
}

#[tokio::test]
async fn a_stalled_client_bounds_what_is_read_from_the_replica() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let window = 64 * 1024;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 20);
    let client = Client::connect_with(&front.address, &builder).await;
    let mut stalled = client.unary(request(PATH), "go");
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    let head = within("the head", &mut stalled.response).await.unwrap();
    let mut written = 0;
    // Writes until no more is accepted for a while.
    while let Some(room) = support::room(&mut stream, Duration::from_millis(300)).await {
        written += room;
        stream.send_data(Bytes::from(vec![0; room]), false).unwrap();
        assert!(written < 4 << 20, "{written} bytes went into a stalled call");
    }
    // The client's window, the ingress's window towards the replica, and one chunk between.
    assert!(written <= 64 * 1024 + 256 * 1024 + 64 * 1024, "{written} bytes");

    // A neighbour on the same connections is not held up.
    let neighbour = client.unary(request(PATH), "ping");
    replica.next().await.reply("pong");
    assert_eq!("pong", neighbour.reply().await.body);

    // Reading on sets everything in motion again.
    let mut body = head.into_body();
    let reader = tokio::spawn(async move { support::read_body(&mut body).await.unwrap().len() });
    assert!(support::room(&mut stream, Duration::from_secs(5)).await.is_some());
    stream.send_trailers(ok_trailers()).unwrap();
    assert_eq!(written, within("the reader", reader).await.unwrap());
    front.settle().await;
}

#[tokio::test]
async fn a_stalled_replica_bounds_what_is_read_from_the_client() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let client = front.client().await;
    let mut call = client.start(request(PATH), false);
    let mut incoming = replica.next().await;
    let mut written = 0;
    while let Some(room) = support::room(&mut call.body, Duration::from_millis(300)).await {
        written += room;
        call.body.send_data(Bytes::from(vec![0; room]), false).unwrap();
        assert!(written < 4 << 20, "{written} bytes went into a stalled call");
    }
    assert!(written <= 2 * 256 * 1024 + 64 * 1024, "{written} bytes");
    call.body.reserve_capacity(0);
    call.body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(written, incoming.read_all().await.len());
    incoming.reply("done");
    assert_eq!("done", call.reply().await.body);
    front.settle().await;
}
