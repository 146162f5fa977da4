//! Trusted proxies: the front believes what they say about clients, and believes it from no one
//! else.

mod front_support;
mod support;

use std::sync::Arc;
use std::time::Duration;

use front_support::{Http1, answer, http_request, one_app_with};
use router_net::ingress::{IngressConfig, IngressLimits, Proxies};
use support::{Front, Replica, until};
use tokio::net::TcpStream;

/// The first bytes of a PROXY protocol header.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A thousand are free for an address, and a hundred more in each second.
const CROWD_MAX: usize = 20_000;

/// `networks` in the form of the option, with or without PROXY protocol headers.
async fn behind(networks: &[&str], has_headers: bool) -> (Replica, Front) {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    let proxies = Arc::new(Proxies { networks, has_headers });
    let limits =
        IngressLimits { header_timeout: Duration::from_millis(500), ..IngressLimits::default() };
    one_app_with(IngressConfig { proxies, limits, ..IngressConfig::default() }).await
}

fn proxied(command: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, protocol], &length, rest].concat()
}

/// From 192.0.2.1, port 4660.
fn header() -> Vec<u8> {
    proxied(0x21, 0x11, &[192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80])
}

const GET: &[u8] = b"GET /app HTTP/1.1\r\nhost: test\r\n\r\n";

/// The client as described to the replica in the next request, which is answered.
async fn told(replica: &mut Replica) -> String {
    let incoming = replica.next().await;
    let value = incoming.head.headers["pyserve-http"].to_str().unwrap().to_owned();
    answer(incoming, "");
    value
}

#[tokio::test]
async fn a_header_of_the_proxy_protocol_names_the_client() {
    let (mut replica, front) = behind(&["127.0.0.1"], true).await;
    for pieces in [vec![[header(), GET.to_vec()].concat()], vec![header(), GET.to_vec()]] {
        let mut client = Http1::connect(&front).await;
        for piece in pieces {
            client.send(piece).await;
        }
        assert_eq!("1.1 http 192.0.2.1:4660 /app", told(&mut replica).await);
        assert_eq!(200, client.reply().await.status);
    }
    let mut dribbled = Http1::connect(&front).await;
    for byte in header() {
        dribbled.send([byte]).await;
    }
    dribbled.send(GET).await;
    assert_eq!("1.1 http 192.0.2.1:4660 /app", told(&mut replica).await);
}

#[tokio::test]
async fn a_proxy_may_speak_for_itself() {
    let (mut replica, front) = behind(&["127.0.0.1"], true).await;
    for header in [proxied(0x20, 0, &[]), proxied(0x21, 0, &[7; 30])] {
        let mut client = Http1::connect(&front).await;
        let own = client.stream.local_addr().unwrap();
        client.send([&header, GET].concat()).await;
        assert_eq!(format!("1.1 http {own} /app"), told(&mut replica).await);
    }
}

#[tokio::test]
async fn a_proxy_that_says_nobody_or_nonsense_is_closed() {
    let (_replica, front) = behind(&["127.0.0.1"], true).await;
    let version_1 = b"PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n".to_vec();
    let too_long = proxied(0x21, 0x11, &[0; 5000]);
    let wrong = [GET.to_vec(), version_1, too_long, proxied(0x22, 0x11, &[0; 12])];
    for (index, bytes) in wrong.iter().enumerate() {
        let mut client = Http1::connect(&front).await;
        client.send(bytes).await;
        until("it to be refused", || front.stat("proxy_headers_malformed") == index as u64 + 1)
            .await;
        // With bytes unread, so it is a reset.
        until("it to be closed", || front.stat("connections") == 0).await;
    }
    let mut silent = Http1::connect(&front).await;
    silent.send(&header()[..20]).await;
    silent.closed().await;
    assert_eq!(1, front.stat("header_timeouts"));
    front.settle().await;
}

#[tokio::test]
async fn a_header_from_elsewhere_is_the_clients_own_bytes() {
    let (_replica, front) = behind(&["192.0.2.0/24"], true).await;
    let mut client = Http1::connect(&front).await;
    client.send([&header(), GET].concat()).await;
    assert_eq!(400, client.reply().await.status);
    assert_eq!((0, 0), (front.stat("proxy_headers_malformed"), front.stat("forwarded")));
}

#[tokio::test]
async fn the_head_of_a_request_names_the_client_for_proxies_only() {
    let forwarded = "GET /app HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 203.0.113.9, 192.0.2.1\r\n\
                     x-forwarded-proto: https\r\n\r\n";
    let (mut replica, front) = behind(&["127.0.0.0/8"], false).await;
    let mut client = Http1::connect(&front).await;
    let own = client.stream.local_addr().unwrap();
    // Another client's request over the same connection, and one of the proxy's own.
    let other = forwarded.replace("192.0.2.1", "2001:db8::1");
    for (request, expected) in [
        (forwarded, "1.1 https 192.0.2.1:0 /app".to_owned()),
        (&other, "1.1 https [2001:db8::1]:0 /app".to_owned()),
        (std::str::from_utf8(GET).unwrap(), format!("1.1 http {own} /app")),
    ] {
        client.send(request).await;
        assert_eq!(expected, told(&mut replica).await);
        assert_eq!(200, client.reply().await.status);
    }
    for (networks, has_headers) in [(&[][..], false), (&["192.0.2.0/24"], false)] {
        let (mut replica, front) = behind(networks, has_headers).await;
        let mut client = Http1::connect(&front).await;
        let own = client.stream.local_addr().unwrap();
        client.send(forwarded).await;
        assert_eq!(format!("1.1 http {own} /app"), told(&mut replica).await);
    }
}

#[tokio::test]
async fn whom_a_proxy_protocol_names_is_no_proxy_itself() {
    let (mut replica, front) = behind(&["127.0.0.1"], true).await;
    let mut client = Http1::connect(&front).await;
    let request = "GET /app HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 203.0.113.9\r\n\r\n";
    client.send([&header(), request.as_bytes()].concat()).await;
    assert_eq!("1.1 http 192.0.2.1:4660 /app", told(&mut replica).await);
}

/// Connects clients one after the other that send nothing, until one is delayed or `limit` have
/// come; returns how many came.
async fn crowd(front: &Front, words: &[u8], count_max: usize) -> usize {
    for count in 0..count_max {
        if front.stat("delayed_connections") > 0 {
            return count;
        }
        Http1::connect(front).await.send(words).await;
    }
    count_max
}

/// Sends a request in the name of a client.
async fn ask(front: &Front, words: &[u8]) {
    let mut client = Http1::connect(front).await;
    client.send([words, b"GET /-/healthz HTTP/1.1\r\nhost: test\r\n\r\n"].concat()).await;
    assert_eq!(200, client.reply().await.status);
}

#[tokio::test]
async fn crowds_behind_a_proxy_delay_nobody() {
    let (_replica, front) = behind(&[], false).await;
    let count = crowd(&front, b"", CROWD_MAX).await;
    assert!(count < CROWD_MAX, "no crowd from one client's address was delayed");
    let (_replica, front) = behind(&["127.0.0.1"], false).await;
    assert_eq!(2 * count, crowd(&front, b"", 2 * count).await);
    ask(&front, b"").await;
    assert_eq!(0, front.stat("delayed_connections"));
}

#[tokio::test]
async fn a_crowd_that_a_proxy_names_delays_itself_only() {
    let (_replica, front) = behind(&["127.0.0.1"], true).await;
    assert!(crowd(&front, &header(), CROWD_MAX).await < CROWD_MAX, "nobody was delayed");
    let named = |last| proxied(0x21, 0x11, &[192, 0, 2, last, 10, 0, 0, 1, 0x12, 0x34, 0, 80]);
    // All earlier clients have been accepted, and are gone when no connection is left.
    ask(&front, &named(3)).await;
    until("all to be seen", || front.stat("connections") == 0).await;
    let delayed = front.stat("delayed_connections");
    ask(&front, &named(2)).await;
    assert_eq!(delayed, front.stat("delayed_connections"));
}

#[tokio::test]
async fn http2_follows_a_header_too() {
    let (mut replica, front) = behind(&["127.0.0.1"], true).await;
    let mut stream = TcpStream::connect(&front.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &header()).await.unwrap();
    let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let (response, _) = send.send_request(http_request("GET", "/app", &[]), true).unwrap();
    assert_eq!("2 http 192.0.2.1:4660 /app", told(&mut replica).await);
    assert_eq!(200, response.await.unwrap().status().as_u16());
    drop(send);
    connection.await.unwrap().unwrap();
}
