//! Messages of several parts, in frames and windows of all sizes.

mod server_support;

use bytes::Bytes;
use router_net::grpc::{Encoding, compress};
use router_net::server::ServerConfig;
use server_support::*;
use tokio::net::TcpStream;

/// Around the sizes of frames and windows below, with nothing in between and at the ends.
const SIZES: [&[u8]; 6] = [
    b"0",
    b"1,2,3",
    b"0,16384,0,16379,5,0",
    b"9,70000,1,70000,16384",
    b"262144,262139,262145,3",
    b"1000000,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
];

#[tokio::test]
async fn parts_arrive_as_one_message_whatever_the_frames_and_windows() {
    let fixture = Fixture::start(ServerConfig { send_bytes_max: 1 << 22, ..config() });
    for (frame_bytes, window_bytes) in
        [(16_384, 1_000), (16_384, 65_535), (1 << 20, 1 << 18), (100_000, 1 << 22)]
    {
        let stream = TcpStream::connect(("127.0.0.1", fixture.port)).await.expect("listening");
        let mut builder = h2::client::Builder::new();
        builder.max_frame_size(frame_bytes).initial_window_size(window_bytes);
        let (mut client, connection) = builder.handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        for sizes in SIZES {
            let answer = call(&mut client, request(PARTS, &[]), frame(0, sizes)).await;
            assert_eq!(Some("0"), answer.status.as_deref(), "{}", answer.message);
            let expected = frame(0, &parts(sizes).into_bytes());
            assert!(expected == answer.body, "{frame_bytes} {window_bytes}");
        }
    }
    fixture.settle().await;
    assert!(fixture.user.cancelled.lock().is_empty());
}

#[tokio::test]
async fn parts_are_compressed_as_one_message() {
    let gzip = ServerConfig { default_encoding: Encoding::Gzip, ..config() };
    let fixture = Fixture::start(gzip);
    let mut client = fixture.connect().await;
    let head = request(PARTS, &[("grpc-accept-encoding", "gzip")]);
    let answer = call(&mut client, head, frame(0, b"3,70000,10")).await;
    assert_eq!((Some("0"), 1), (answer.status.as_deref(), answer.body[0]));
    let packed = Bytes::from(answer.body).slice(5..).into();
    let packed = router_net::grpc::Message { compressed: true, ..packed };
    let plain = compress::decompress(Encoding::Gzip, packed, 1 << 20).expect("gzip");
    assert_eq!(parts(b"3,70000,10").into_bytes(), plain.into_bytes());
}

#[tokio::test]
async fn the_limit_counts_all_parts() {
    let fixture = Fixture::start(ServerConfig { send_bytes_max: 100, ..config() });
    let mut client = fixture.connect().await;
    for (sizes, status) in [(&b"50,50"[..], "0"), (b"50,51", "8")] {
        let answer = call(&mut client, request(PARTS, &[]), frame(0, sizes)).await;
        assert_eq!((200, Some(status)), (answer.http.as_u16(), answer.status.as_deref()));
    }
}
