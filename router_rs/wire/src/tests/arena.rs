//! Large pieces go through shared memory, where there is some and as long as it has room.

use bytes::Buf;
use router_protocol::names;

use super::*;

const MIB: usize = 1 << 20;

fn body(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at / 251) as u8).collect()
}

/// Takes all of a body that has arrived; what comes in the middle of a check must not change it.
fn content(session: &mut Session, id: CallId) -> Vec<u8> {
    let mut content = Vec::new();
    while let Poll::Ready(Some(Ok(piece))) = session.poll_data(id, &cx()) {
        session.release(id, piece.len());
        content.extend_from_slice(&piece);
    }
    content
}

#[test]
fn a_large_body_leaves_the_socket_to_frames() {
    let mut pair = Pair::with_arena();
    let (here, there) = begun(&mut pair, None);
    let sent = body(MIB);
    pair.client.send_last(here, [sent.clone()]);
    let mut on_socket = 0;
    let mut came = Vec::new();
    while came.len() < MIB {
        on_socket += pair.client.outgoing().remaining();
        pair.settle();
        came.extend(content(&mut pair.server, there));
    }
    assert!(sent == came);
    assert!(on_socket < 200, "{on_socket} bytes");
    assert_eq!((0, true), take(&mut pair.server, there));
}

#[test]
fn credit_for_the_rest_comes_with_the_first_piece() {
    let mut pair = Pair::with_arena();
    let (here, there) = begun(&mut pair, None);
    pair.client.send_last(here, [body(MIB)]);
    pair.settle();
    // Nothing was taken so far.
    assert_eq!(MIB, content(&mut pair.server, there).len());
}

#[test]
fn a_websocket_keeps_to_the_credit_that_it_begins_with() {
    let mut pair = Pair::with_arena();
    let headers = HeaderMap::from_iter([(names::UPGRADE, names::WEBSOCKET)]);
    let here = pair.client.call(&call_head("/a", &headers), None).expect("an open session");
    pair.client.send(here, [body(MIB)]);
    pair.settle();
    let there = pair.called.pop().expect("a call").id;
    assert_eq!(CREDIT_BYTES_INITIAL, content(&mut pair.server, there).len());
}

#[test]
fn a_full_arena_is_no_obstacle() {
    let mut pair = Pair::with_arena();
    let calls: Vec<_> = (0..8).map(|_| begun(&mut pair, None)).collect();
    for (here, _) in &calls {
        pair.client.send_last(*here, [body(MIB)]);
    }
    // All of the arena is lent to a server that does not read.
    pair.settle();
    for (_, there) in &calls {
        let mut came = Vec::new();
        while came.len() < MIB {
            pair.settle();
            came.extend(content(&mut pair.server, *there));
        }
        assert!(body(MIB) == came);
    }
}

#[test]
fn the_blocks_of_calls_that_are_left_are_used_again() {
    let mut pair = Pair::with_arena();
    for _ in 0..100 {
        let (here, _) = begun(&mut pair, None);
        pair.client.send(here, [body(MIB)]);
        let on_socket = pair.client.outgoing().remaining();
        assert!(on_socket < 200, "{on_socket} bytes");
        pair.settle();
        pair.client.leave(here);
        pair.settle();
    }
}

#[test]
fn a_client_lends_nothing_before_the_server_has_mapped_it() {
    let (arena, _descriptor) = Arena::create(ARENA_BYTES_DEFAULT).expect("a memfd");
    let mut pair = Pair { client: Session::with_arena(Side::Client, Some(arena)), ..Pair::new() };
    let (here, there) = begun(&mut pair, None);
    pair.client.send_last(here, [body(MIB)]);
    assert!(pair.client.outgoing().remaining() >= CREDIT_BYTES_INITIAL);
    pair.settle();
    assert_eq!(CREDIT_BYTES_INITIAL, content(&mut pair.server, there).len());
}

#[test]
fn a_lost_connection_keeps_only_what_is_read() {
    let mut pair = Pair::with_arena();
    let (here, there) = begun(&mut pair, None);
    pair.client.send(here, [body(MIB)]);
    pair.settle();
    let Poll::Ready(Some(Ok(piece))) = pair.server.poll_data(there, &cx()) else {
        panic!("it has come");
    };
    for session in [&mut pair.client, &mut pair.server] {
        assert!(session.has_arena());
        session.lose();
        assert!(!session.has_arena());
    }
    assert!(body(MIB).starts_with(&piece), "the peer is gone, the bytes are not");
}

#[test]
fn places_that_do_not_exist_end_the_connection() {
    let mut pair = Pair::with_arena();
    let (_, id) = begun(&mut pair, None);
    let lent = |first_block, bytes| {
        let place = Place { first_block, bytes };
        Frame::Lent { id, place, is_final: false }
    };
    let bytes = 32 * 1024;
    assert!(pair.server.on_frame(lent(0, bytes)).is_ok());
    assert!(pair.server.on_frame(lent(0, bytes - 1)).is_err());
    assert!(pair.server.on_frame(lent(64, bytes)).is_err());
    assert!(Session::new(Side::Server).on_frame(lent(0, bytes)).is_err(), "it has no arena");
    assert!(pair.server.on_frame(Frame::Mapped).is_err());
}

#[test]
fn blocks_that_are_named_twice_are_read_twice_and_harm_nobody_else() {
    let mut pair = Pair::with_arena();
    let ((here, there), (_, liar)) = (begun(&mut pair, None), begun(&mut pair, None));
    let sent = body(100 * 1024);
    pair.client.send(here, [sent.clone()]);
    pair.settle();
    // Within the blocks of the first call.
    let place = Place { first_block: 1, bytes: 36 * 1024 };
    let lie = Frame::Lent { id: liar, place, is_final: true };
    assert!(pair.server.on_frame(lie).is_ok());
    assert!(sent[64 * 1024..] == content(&mut pair.server, liar));
    assert!(sent == content(&mut pair.server, there));
    for _ in 0..2 {
        pair.client.send(here, [sent.clone()]);
        pair.settle();
        assert!(sent == content(&mut pair.server, there));
    }
}

#[test]
fn more_than_there_is_credit_for_ends_its_call_only() {
    let mut pair = Pair::with_arena();
    let ((_, liar), (here, there)) = (begun(&mut pair, None), begun(&mut pair, None));
    let place = Place { first_block: 0, bytes: CREDIT_BYTES_INITIAL as u32 };
    let frame = Frame::Lent { id: liar, place, is_final: false };
    // With the credit that the first one brings, there is room for four.
    for _ in 0..5 {
        let is_open = matches!(pair.server.poll_cancelled(liar, &cx()), Poll::Pending);
        assert!(is_open);
        assert!(pair.server.on_frame(frame.clone()).is_ok());
    }
    assert_eq!(Poll::Ready(()), pair.server.poll_cancelled(liar, &cx()));
    pair.client.send_last(here, [body(MIB)]);
    pair.settle();
    assert!(body(MIB) == content(&mut pair.server, there));
}

#[test]
fn a_piece_that_its_sender_has_put_there_is_sent_when_there_is_credit() {
    let mut pair = Pair::with_arena();
    let (here, there) = begun(&mut pair, None);
    pair.server.send_head(there, &http::Response::new(()));
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    let room = |pair: &mut Pair| match pair.server.poll_room(there, &cx()) {
        Poll::Ready(room) => room,
        Poll::Pending => None,
    };
    assert_eq!(Some(CREDIT_BYTES_INITIAL), room(&mut pair));
    assert!(pair.server.reserve(100).is_none(), "it is shorter on the socket");
    let mut reserved = pair.server.reserve(CREDIT_BYTES_INITIAL).expect("room");
    assert_eq!(CREDIT_BYTES_INITIAL, reserved.read(&zeros, 0).expect("zeros"));
    pair.server.send_reserved(there, reserved);
    assert_eq!(None, room(&mut pair), "the credit is used");
    let on_socket = pair.server.outgoing().remaining();
    assert!(on_socket < 200, "{on_socket} bytes");
    pair.settle();
    assert_eq!(vec![0; CREDIT_BYTES_INITIAL], content(&mut pair.client, here));
    pair.settle();
    assert!(room(&mut pair) > Some(0));
}

#[test]
fn a_piece_of_a_call_that_was_left_gives_its_blocks_back() {
    let mut pair = Pair::with_arena();
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    for _ in 0..100 {
        let (here, there) = begun(&mut pair, None);
        pair.server.send_head(there, &http::Response::new(()));
        let mut reserved = pair.server.reserve(CREDIT_BYTES_INITIAL).expect("room");
        pair.settle();
        pair.client.leave(here);
        pair.settle();
        reserved.read(&zeros, 0).expect("zeros");
        pair.server.send_reserved(there, reserved);
    }
}
