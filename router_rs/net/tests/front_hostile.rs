//! How much slow, silent or ambiguous clients may do when it would cost others.

mod front_support;
mod support;

use std::time::Duration;

use front_support::{Http1, answer, http_request, one_app};
use router_net::ingress::IngressConfig;
use support::{Front, PATH, Replica, deployment, request, table, until, within};

/// Longer than a slow client's first credit, and than the time between two looks at it.
const LONG: Duration = Duration::from_millis(600);

/// A replica with room for one call, plain HTTP below `/app` or gRPC, and the front before it.
async fn one_place() -> (Replica, Front) {
    let replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(1)]);
    route.http_prefixes = vec!["/app".to_owned()];
    let table = table(support::TOKEN);
    table.apply(vec![route]);
    (replica, Front::configured(table, IngressConfig::default()))
}

const SLOW_HEAD: &str = "POST /app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_slow_body_gives_its_place_to_whoever_waits() {
    let (mut replica, front) = one_place().await;
    let mut slow = Http1::connect(&front).await;
    slow.send(format!("{SLOW_HEAD}1\r\nx\r\n")).await;
    let mut held = replica.next().await;
    let mut other = Http1::connect(&front).await;
    other.get("/app").await;
    assert_eq!(h2::Reason::CANCEL, held.reset().await);
    answer(replica.next().await, "at last");
    assert_eq!("at last", other.reply().await.text());
    let reply = slow.reply().await;
    assert_eq!(503, reply.status);
    assert!(reply.text().contains("whose client is slow"), "{}", reply.text());
    assert_eq!(1, front.stat("slow_clients"));
    front.settle().await;
}

#[tokio::test]
async fn a_slow_body_may_take_its_time_when_nobody_waits() {
    let (mut replica, front) = one_place().await;
    let mut slow = Http1::connect(&front).await;
    slow.send(format!("{SLOW_HEAD}1\r\nx\r\n")).await;
    let mut held = replica.next().await;
    tokio::time::sleep(LONG).await;
    slow.send("1\r\ny\r\n0\r\n\r\n").await;
    assert_eq!("xy", held.read_all().await);
    answer(held, "whole");
    assert_eq!("whole", slow.reply().await.text());
    assert_eq!(0, front.stat("slow_clients"));
    front.settle().await;
}

#[tokio::test]
async fn an_answer_that_is_not_taken_gives_its_place_to_whoever_waits() {
    let (mut replica, front) = one_place().await;
    let client = front.client().await;
    for is_grpc in [false, true] {
        let asked = if is_grpc { request(PATH) } else { http_request("GET", "/app", &[]) };
        let unread = client.start(asked, true);
        let mut incoming = replica.next().await;
        let mut stream = incoming.begin();
        // Its client's window is smaller.
        while let Some(room) = support::room(&mut stream, Duration::from_millis(100)).await {
            stream.send_data(vec![b'x'; room].into(), false).unwrap();
        }
        let mut other = Http1::connect(&front).await;
        other.get("/app").await;
        answer(replica.next().await, "at last");
        assert_eq!("at last", other.reply().await.text());
        let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
        within("the reset of the call", reset).await.unwrap();
        drop(unread);
    }
    assert_eq!(2, front.stat("slow_clients"));
    front.settle().await;
}

#[tokio::test]
async fn an_idle_connection_rests_and_is_served_again() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    for (rests, first, rest) in [
        (1, "GET /app HTTP/1.1\r\nhost: x\r\n\r\n", ""),
        (2, "G", "ET /app HTTP/1.1\r\nhost: x\r\n\r\n"),
        (3, "\r\n", "POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"),
    ] {
        client.get("/app").await;
        answer(replica.next().await, "before");
        assert_eq!("before", client.reply().await.text());
        until("it to be idle", || front.stat("rests") == rests).await;
        client.send(first).await;
        client.send(rest).await;
        answer(replica.next().await, "after");
        assert_eq!("after", client.reply().await.text());
    }
    assert_eq!(1, front.stat("connections"));
    drop(client);
    until("it to be closed", || front.stat("connections") == 0).await;
}

#[tokio::test]
async fn a_connection_that_rests_is_closed_in_time_and_by_a_drain() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    answer(replica.next().await, "");
    assert_eq!(200, client.reply().await.status);
    until("it to be idle", || front.stat("rests") == 1).await;
    front.ingress.drain();
    client.closed().await;
}

#[tokio::test]
async fn a_line_feed_alone_in_a_head_is_refused() {
    let (_replica, front) = one_app().await;
    for text in [
        "GET /app HTTP/1.1\nhost: x\n\n",
        "GET /app HTTP/1.1\r\nhost: x\r\n\n",
        "GET /app HTTP/1.1\r\nx: y\nhost: x\r\n\r\n",
    ] {
        let mut client = Http1::connect(&front).await;
        client.send(text).await;
        assert_eq!(400, client.reply().await.status, "{text:?}");
        client.closed().await;
    }
}

const NONSENSE: &str = "GET / HTTP/9.9\r\n\r\n";

/// So many malformed requests of an address have no effect yet.
const SLIPS: usize = 50;
/// Some are forgotten while more are made.
const ROUNDS_MAX: usize = 200;

#[tokio::test]
async fn an_address_that_goes_on_is_served_later_and_never_closed() {
    let (mut replica, front) = one_app().await;
    let mut neighbour = Http1::connect(&front).await;
    serve(&mut neighbour, &mut replica).await; // Else its first head is soon overdue.
    for round in 0..ROUNDS_MAX {
        let begun = std::time::Instant::now();
        let mut client = Http1::connect(&front).await;
        client.send(NONSENSE).await;
        assert_eq!(400, client.reply().await.status);
        client.closed().await;
        drop(client); // Else it is read on for a while, see `linger`.
        until("the end of the connection", || front.stat("connections") == 1).await;
        if front.stat("delayed_connections") > 0 {
            assert!(begun.elapsed() >= LONG);
            assert!(round >= SLIPS, "delayed after {round}");
            break;
        }
    }
    assert_eq!(1, front.stat("delayed_connections"));
    for client in [&mut neighbour, &mut Http1::connect(&front).await] {
        serve(client, &mut replica).await;
    }
}

async fn serve(client: &mut Http1, replica: &mut Replica) {
    client.get("/app").await;
    answer(replica.next().await, "served");
    assert_eq!("served", client.reply().await.text());
}

/// More than `SLIPS`, by so many that they are not forgotten while one connection waits.
const CROWD: usize = 2 * SLIPS;

#[tokio::test]
async fn a_body_from_an_address_that_goes_on_is_read_with_pauses() {
    let (mut replica, front) = one_app().await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Http1::connect(&front).await);
    }
    until("all are here", || front.stat("connections") == CROWD as u64).await;
    for client in &mut crowd {
        client.send(NONSENSE).await;
        assert_eq!(400, client.reply().await.status);
        client.closed().await;
    }
    let taken = upload(&front, &mut replica).await;
    assert_eq!(1, front.stat("delayed_connections"));
    assert!(taken >= LARGE_TAKES, "{taken:?}");
}

/// A body of at least 32 turns, which are of 64 KiB and at most one read of as much more. Where the
/// address is suspect there is a pause of 4 ms between them.
const LARGE_BYTES: usize = 4 << 20;
const LARGE_TAKES: Duration = Duration::from_millis(31 * 4);

/// The time that it takes from the first byte at the replica.
async fn upload(front: &Front, replica: &mut Replica) -> Duration {
    let mut client = Http1::connect(front).await;
    client
        .send(format!("POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: {LARGE_BYTES}\r\n\r\n"))
        .await;
    let mut incoming = replica.next().await;
    let begun = std::time::Instant::now();
    let (body, ()) = tokio::join!(incoming.read_all(), client.send(vec![b'x'; LARGE_BYTES]));
    assert_eq!(LARGE_BYTES, body.len());
    answer(incoming, "all of it");
    assert_eq!("all of it", client.reply().await.text());
    begun.elapsed()
}

#[tokio::test]
async fn chunks_that_mean_nothing_count_against_their_address() {
    let (mut replica, front) = one_app().await;
    for _ in 0..ROUNDS_MAX {
        let mut client = Http1::connect(&front).await;
        client.send(SLOW_HEAD).await;
        client.send("1\r\nx\r\n").await;
        let mut call = replica.next().await;
        client.send("no length\r\n").await;
        assert_eq!(h2::Reason::CANCEL, call.reset().await);
        if front.stat("delayed_connections") > 0 {
            break;
        }
    }
    front.settle().await;
    assert_eq!(1, front.stat("delayed_connections"));
}

/// So many connections of an address may come and send nothing at once.
const STRANGERS: usize = 1000;

#[tokio::test]
async fn a_crowd_that_comes_for_nothing_is_heard_later_and_never_closed() {
    let (mut replica, front) = one_app().await;
    let mut neighbour = Http1::connect(&front).await;
    neighbour.get("/app").await;
    answer(replica.next().await, "before");
    assert_eq!("before", neighbour.reply().await.text());
    let mut count = 0;
    // Some are forgotten while more come.
    while front.stat("delayed_connections") == 0 {
        count += 1;
        assert!(count < 20 * STRANGERS, "nobody was delayed");
        Http1::connect(&front).await;
    }
    assert!(count >= STRANGERS, "delayed after {count}");
    for client in [&mut neighbour, &mut Http1::connect(&front).await] {
        client.get("/app").await;
        answer(replica.next().await, "served");
        assert_eq!("served", client.reply().await.text());
    }
}

#[tokio::test]
async fn a_crowd_that_asks_for_something_is_never_delayed() {
    let (_replica, front) = one_app().await;
    for _ in 0..2 * STRANGERS {
        let mut client = Http1::connect(&front).await;
        assert_eq!(200, client.fetch("/-/healthz").await.status);
        // A connection that was opened in reserve, and was not needed.
        Http1::connect(&front).await;
    }
    assert_eq!(0, front.stat("delayed_connections"));
}
