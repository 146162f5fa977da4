//! At the connection limit, idle connections are closed to admit new ones.

mod front_support;
mod support;

use front_support::{GREETING, Http1, answer, ask, http_request, idle_client, one_app_limited};
use router_net::ingress::IngressLimits;
use support::{Front, Replica, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// With two threads, which get connections in turn.
async fn bounded(connections_max: u64) -> (Replica, Front) {
    one_app_limited(IngressLimits { connections_max, ..IngressLimits::default() }).await
}

/// A connection that has sent this much of a request.
async fn begun(front: &Front, text: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(&front.address).await.unwrap();
    client.write_all(text).await.unwrap();
    client
}

async fn answered(front: &Front) -> Http1 {
    let mut client = Http1::connect(front).await;
    assert_eq!(200, client.fetch("/-/healthz").await.status);
    client
}

async fn closed(client: &mut TcpStream) {
    let mut received = Vec::new();
    // A reset is an end too.
    let _end = within("the end of a connection", client.read_to_end(&mut received)).await;
    assert_eq!(b"", &received[..]);
}

#[tokio::test]
async fn whoever_has_rested_longest_goes_for_one_that_comes() {
    let (_replica, front) = bounded(4).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(idle_client(&front).await);
        until("a free place", || front.stat("connections") <= 4).await;
    }
    let kept = clients.split_off(2);
    for client in clients {
        let end = within("the end of the connection", client.connection).await.unwrap();
        assert!(end.is_ok(), "{end:?}");
    }
    for client in &kept {
        ask(client).await;
    }
    assert_eq!((2, 0), (front.stat("displaced"), front.stat("connections_refused")));
    assert_eq!(4, front.stat("connections_max"));
}

#[tokio::test]
async fn those_from_which_no_whole_request_has_come_go_too() {
    let (_replica, front) = bounded(6).await;
    for beginning in ["", "G", "GET /-/healthz HTTP/1.1\r\nhost: te"] {
        let mut silent = Vec::new();
        for _ in 0..4 {
            silent.push(begun(&front, beginning.as_bytes()).await);
        }
        // One on each thread, which has seen the silent ones before.
        let mut others = vec![answered(&front).await, answered(&front).await];
        for client in &mut silent {
            others.push(answered(&front).await);
            closed(client).await;
        }
        drop(others);
        until("the others to go", || front.stat("connections") == 0).await;
    }
    assert_eq!((12, 0), (front.stat("displaced"), front.stat("header_timeouts")));
    assert_eq!(0, front.stat("connections_refused"));
}

#[tokio::test]
async fn a_thread_on_which_nobody_rests_passes_on_who_comes() {
    let (mut replica, front) = bounded(2).await;
    let busy = front.client().await;
    let call = busy.start(http_request("GET", "/app", &[]), true);
    let incoming = replica.next().await;
    let idle = idle_client(&front).await;
    // Its turn is that of the first one's thread.
    let third = idle_client(&front).await;
    let end = within("the end of the idle one", idle.connection).await.unwrap();
    assert!(end.is_ok(), "{end:?}");
    answer(incoming, "at last");
    assert_eq!("at last", call.reply().await.body);
    ask(&third).await;
    front.settle().await;
}

#[tokio::test]
async fn clients_that_do_not_go_hold_few_places_for_long() {
    let (_replica, front) = bounded(40).await;
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = begun(&front, GREETING).await;
        // So that the next one comes after it.
        within("settings", client.read_exact(&mut [0; 9])).await.unwrap();
        clients.push(client);
    }
    // Sixteen of each thread may take their time.
    until("the others to be ended", || front.stat("connections") <= 40 + 2 * 16).await;
    ask(&idle_client(&front).await).await;
    assert_eq!(0, front.stat("connections_refused"));
}
