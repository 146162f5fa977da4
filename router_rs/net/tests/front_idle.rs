//! Idle connections keep no more memory than they may: those that have been idle longest are
//! closed.

mod front_support;
mod support;

use front_support::{GREETING, Http1, answer, ask, http_request, idle_client, one_app_limited};
use router_net::ingress::IngressLimits;
use support::{Client, Front, Replica, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Three of HTTP/2 on each of the front's two threads, to which connections go in turn.
const THREE_EACH_BYTES: u64 = 2 * (110 << 10);

async fn bounded(idle_bytes_max: u64) -> (Replica, Front) {
    one_app_limited(IngressLimits { idle_bytes_max, ..IngressLimits::default() }).await
}

async fn told_to_go(client: Client) {
    let end = within("the end of the connection", client.connection).await.unwrap();
    assert!(end.is_ok(), "{end:?}");
}

#[tokio::test]
async fn whoever_has_rested_longest_is_told_to_go() {
    let (_replica, front) = bounded(THREE_EACH_BYTES).await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(idle_client(&front).await);
    }
    until("half of them to go", || front.stat("connections") == 6).await;
    assert_eq!(6, front.stat("idle_closed"));
    let newer = clients.split_off(6);
    for client in clients {
        told_to_go(client).await;
    }
    for client in &newer {
        ask(client).await;
    }
    assert_eq!(6, front.stat("idle_closed"));
}

#[tokio::test]
async fn whoever_asks_again_rests_anew() {
    let (_replica, front) = bounded(THREE_EACH_BYTES).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(idle_client(&front).await);
    }
    ask(&clients[0]).await;
    // On the thread of the first, the third and the fifth.
    let seventh = idle_client(&front).await;
    told_to_go(clients.remove(2)).await;
    for client in clients.iter().chain([&seventh]) {
        ask(client).await;
    }
    assert_eq!(1, front.stat("idle_closed"));
}

#[tokio::test]
async fn a_connection_with_a_request_does_not_rest() {
    let (mut replica, front) = bounded(THREE_EACH_BYTES).await;
    let busy = front.client().await;
    let call = busy.start(http_request("GET", "/app", &[]), true);
    let incoming = replica.next().await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(idle_client(&front).await);
    }
    until("others to go", || front.stat("connections") == 7).await;
    answer(incoming, "at last");
    assert_eq!("at last", call.reply().await.body);
    ask(&busy).await;
    front.settle().await;
}

#[tokio::test]
async fn clients_that_do_not_go_are_ended() {
    let (_replica, front) = bounded(THREE_EACH_BYTES).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(&front.address).await.unwrap();
        client.write_all(GREETING).await.unwrap();
        // So that the next one comes after it.
        within("settings", client.read_exact(&mut [0; 9])).await.unwrap();
        clients.push(client);
    }
    // One for each thread may take its time.
    until("the others to be ended", || front.stat("connections") == 8).await;
    for mut client in clients.drain(..12) {
        let mut received = Vec::new();
        // A reset is an end too.
        let _end = within("the end", client.read_to_end(&mut received)).await;
        // GOAWAY with no error, as the last frame or the only one of its kind.
        assert!(received.windows(4).any(|head| head == [0, 0, 8, 7]), "{received:?}");
        assert!(received.ends_with(&[0; 4]), "{received:?}");
    }
}

#[tokio::test]
async fn http1_is_closed_between_requests_and_the_newest_stays() {
    let (_replica, front) = bounded(1).await;
    // The second one is on the other thread.
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Http1::connect(&front).await;
        assert_eq!(200, client.fetch("/-/healthz").await.status);
        clients.push(client);
    }
    clients[0].closed().await;
    until("all to be idle", || front.stat("rests") == 3).await;
    for client in &mut clients[1..] {
        assert_eq!(200, client.fetch("/-/healthz").await.status);
    }
    assert_eq!((2, 1), (front.stat("connections"), front.stat("idle_closed")));
}

#[tokio::test]
async fn a_head_that_is_not_whole_counts_with_what_has_come_of_it() {
    // All of them fit on the two threads, together with half a head from two of them on each.
    let (_replica, front) = bounded(2 * (60 << 10)).await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut client = Http1::connect(&front).await;
        assert_eq!(200, client.fetch("/-/healthz").await.status);
        clients.push(client);
    }
    // A client whose protocol is not yet known may be asked to close, and stay for the request that
    // it then sends.
    until("all to be idle", || front.stat("rests") == 12).await;
    let begun = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(12 << 10));
    for client in &mut clients {
        client.send(&begun).await;
    }
    until("those to go that have no room", || front.stat("connections") == 4).await;
    assert_eq!(8, front.stat("idle_closed"));
}

#[tokio::test]
async fn the_beginning_of_a_request_outlasts_the_time_to_rest() {
    let (_replica, front) = bounded(0).await;
    let mut client = Http1::connect(&front).await;
    client.send("GET /-/healthz HTTP/1.1\r\nhost: test\r\n\r\nGET /-/hea").await;
    assert_eq!(200, client.reply().await.status);
    // Those that are answered later, on either thread, rest later.
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(Http1::connect(&front).await);
    }
    for other in &mut others {
        assert_eq!(200, other.fetch("/-/healthz").await.status);
    }
    until("the others to be idle", || front.stat("rests") == 4).await;
    client.send("lthz HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(200, client.reply().await.status);
}

#[tokio::test]
async fn without_a_bound_all_may_rest() {
    let (_replica, front) = bounded(0).await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(idle_client(&front).await);
    }
    for client in &clients {
        ask(client).await;
    }
    assert_eq!((12, 0), (front.stat("connections"), front.stat("idle_closed")));
}
