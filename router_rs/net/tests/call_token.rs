//! A server whose calls carry a token, as a controller's do, over real sockets.

mod server_support;

use bytes::Bytes;
use http::StatusCode;
use router_net::server::ServerConfig;
use server_support::*;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// "secret", as metadata are sent.
const TOKEN: (&str, &str) = ("pyserve-token-bin", "c2VjcmV0");

fn guarded() -> Fixture {
    let config = ServerConfig {
        replica_id: String::new(),
        token: Vec::new(),
        call_token: b"secret".to_vec(),
        ..config()
    };
    Fixture::start(config)
}

#[tokio::test]
async fn a_call_with_the_token_is_served() {
    let fixture = guarded();
    let mut client = fixture.connect().await;
    let answer = call(&mut client, request(UNARY, &[TOKEN]), frame(0, b"hello")).await;
    assert_eq!((Some("0"), &b"hello"[..]), (answer.status.as_deref(), &answer.body[5..]));
}

/// The answer comes while the body is still to be sent, whatever the path.
#[tokio::test]
async fn a_call_without_the_token_ends_at_its_head() {
    let fixture = guarded();
    let mut client = fixture.connect().await;
    let wrong = ("pyserve-token-bin", "c2VjcmU");
    for path in [UNARY, STREAM, "/test.T/Unknown", "/pyserve.mesh/Load", "/pyserve.mesh/Relay"] {
        for given in [&[][..], &[wrong]] {
            let head = request(path, given);
            let (answer, _body) = client.send_request(head, false).expect("an open connection");
            let answer = timeout(PATIENCE, answer).await.expect("in time").expect("an answer");
            assert_eq!("16", answer.headers()["grpc-status"], "{path}");
            assert_eq!(0, fixture.server.in_flight());
        }
    }
    // The connection's other calls live on.
    let answer = call(&mut client, request(UNARY, &[TOKEN]), frame(0, b"after")).await;
    assert_eq!(Some("0"), answer.status.as_deref());
}

#[tokio::test]
async fn a_user_hears_of_few_calls_without_the_token() {
    let fixture = guarded();
    let index = fixture.server.register_turned_away();
    assert_eq!(index, fixture.server.register_turned_away());
    let mut client = fixture.connect().await;
    for _ in 0..100 {
        let answer = call(&mut client, request(UNARY, &[]), Bytes::new()).await;
        assert_eq!(Some("16"), answer.status.as_deref());
    }
    let told = fixture.user.begun();
    // One report a second: a hundred calls do not take a minute.
    assert!((1..60).contains(&told.len()), "{told:?}");
    assert_eq!((index, UNARY), (told[0].method, told[0].path()));
}

#[tokio::test]
async fn a_method_may_have_a_limit_of_its_own() {
    let fixture = guarded();
    let mut client = fixture.connect().await;
    // No user option raises it.
    let refused = "received message of 11 bytes is larger than the limit of 10 bytes";
    for (path, size, status, text) in
        [(NARROW, 10, "0", ""), (NARROW, 11, "8", refused), (UNARY, 11, "0", "")]
    {
        let body = frame(0, &vec![0; size]);
        let answer = call(&mut client, request(path, &[TOKEN]), body).await;
        assert_eq!((Some(status), text), (answer.status.as_deref(), &*answer.message), "{path}");
    }
}

/// A replica: members prove the token once per connection, and others have no business at its port.
#[tokio::test]
async fn a_replica_s_port_is_for_those_who_have_proven_the_token() {
    let config = ServerConfig { call_token: config().token, ..config() };
    let fixture = Fixture::start(config);
    let mut client = fixture.connect().await;
    let (answer, _body) = client.send_request(request(UNARY, &[]), false).expect("open");
    let answer = timeout(PATIENCE, answer).await.expect("in time").expect("an answer");
    assert_eq!("16", answer.headers()["grpc-status"]);

    let mut member = fixture.connect().await;
    assert_eq!(StatusCode::OK, introduce(&mut member, b"secret").await);
    let answer = call(&mut member, request(UNARY, &[]), frame(0, b"hello")).await;
    assert_eq!((Some("0"), &b"hello"[..]), (answer.status.as_deref(), &answer.body[5..]));
}

#[tokio::test]
async fn those_who_prove_nothing_take_few_places_at_a_replica() {
    let fixture = Fixture::start(config());
    let mut member = fixture.connect().await;
    assert_eq!(StatusCode::OK, introduce(&mut member, b"secret").await);
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(("127.0.0.1", fixture.port)).await.expect("a connection"));
    }

    // An end or a reset: the first of them has to go.
    let _end = timeout(PATIENCE, crowd[0].read_to_end(&mut Vec::new())).await.expect("in time");
    let answer = call(&mut member, request(UNARY, &[]), frame(0, b"hello")).await;
    assert_eq!(Some("0"), answer.status.as_deref());
    let mut newcomer = fixture.connect().await;
    assert_eq!(StatusCode::OK, introduce(&mut newcomer, b"secret").await);
}
