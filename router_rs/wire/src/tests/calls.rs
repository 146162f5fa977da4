//! One call at a time, and the ways in which it ends.

use std::sync::{Arc, Weak};
use std::task::Poll;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::*;
use crate::frame::PREFIX_BYTES;

#[test]
fn a_conversation_goes_both_ways_and_ends_in_trailers() {
    let mut pair = Pair::new();
    let id = begin(&mut pair, None);
    pair.settle();
    let Called { id: there, body, .. } = pair.called.pop().expect("a call");
    assert_eq!(None, body);
    pair.server.send_head(there, &Response::new(()));
    pair.settle();
    assert!(matches!(pair.client.poll_head(id, &cx()), Poll::Ready(Ok(_))));
    for _ in 0..100 {
        pair.client.send(id, [Bytes::from(vec![1; 50_000])]);
        pair.settle();
        assert_eq!((50_000, false), take(&mut pair.server, there));
        pair.server.send(there, [Bytes::from(vec![2; 60_000])]);
        pair.settle();
        assert_eq!((60_000, false), take(&mut pair.client, id));
    }
    pair.client.send_last(id, [Bytes::new()]);
    pair.settle();
    assert_eq!((0, true), take(&mut pair.server, there));
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x"), "1".parse().unwrap())]);
    pair.server.finish(there, trailers.clone());
    pair.settle();
    assert_eq!((0, true), take(&mut pair.client, id));
    assert_eq!(Poll::Ready(Ok(Some(trailers))), pair.client.poll_trailers(id, &cx()));
    pair.client.leave(id);
    assert!(!pair.client.outgoing().has_remaining(), "nothing is left to reset");
}

#[test]
fn a_started_call_is_known_as_one_when_its_server_is_lost() {
    let mut pair = Pair::new();
    let (waits, _) = begun(&mut pair, Some(&[]));
    let (runs, there) = begun(&mut pair, Some(&[]));
    pair.server.send_started(there);
    pair.settle();
    assert!(pair.client.poll_head(runs, &cx()).is_pending(), "it says nothing of the answer");
    pair.client.lose();
    for (id, is_started) in [(waits, false), (runs, true)] {
        assert!(matches!(pair.client.poll_head(id, &cx()), Poll::Ready(Err(Cut::Lost))));
        assert_eq!(is_started, pair.client.is_started(id));
    }
}

#[test]
fn a_start_is_told_to_nobody_who_has_left_and_by_no_client() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, Some(&[]));
    pair.client.leave(id);
    pair.settle();
    pair.server.send_started(there);
    assert!(!pair.server.outgoing().has_remaining());
    assert_eq!(Err(Malformed::UNEXPECTED), pair.server.on_frame(Frame::Started { id }).map(drop));
}

#[test]
fn a_short_answer_is_one_frame_with_its_trailers() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, Some(&[]));
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x"), "1".parse().unwrap())]);
    let body = Bytes::from_static(b"short");
    pair.server.send_whole(there, &Response::new(()), ([body], 5), trailers.clone());
    let outgoing = pair.server.outgoing();
    let mut said = outgoing.copy_to_bytes(outgoing.remaining());
    let frame = Decoder::default().decode(&mut said).expect("it was written here");
    let frame = frame.filter(|frame| matches!(frame, Frame::Whole { .. })).expect("an answer");
    assert!(said.is_empty(), "one frame");
    pair.client.on_frame(frame).expect("it was said here");
    assert!(matches!(pair.client.poll_head(id, &cx()), Poll::Ready(Ok(_))));
    assert_eq!((5, true), take(&mut pair.client, id));
    assert!(!pair.client.is_end(id), "trailers follow");
    assert_eq!(Poll::Ready(Ok(Some(trailers))), pair.client.poll_trailers(id, &cx()));
    assert!(pair.client.is_end(id));
}

#[test]
fn nobody_sends_more_than_is_taken() {
    let mut pair = Pair::new();
    let id = begin(&mut pair, None);
    pair.client.send_last(id, [Bytes::from(vec![1; 3 * CREDIT_BYTES_INITIAL])]);
    assert_eq!(Poll::Ready(None), pair.client.poll_room(id, &cx()), "all of it was handed over");
    pair.settle();
    let there = pair.called.pop().expect("a call").id;
    let mut came = 0;
    loop {
        let (bytes, is_end) = take(&mut pair.server, there);
        assert!(bytes <= CREDIT_BYTES_INITIAL);
        came += bytes;
        if is_end {
            break;
        }
        assert!(bytes > 0, "it goes on");
        pair.settle();
    }
    assert_eq!(3 * CREDIT_BYTES_INITIAL, came);
}

#[test]
fn more_than_there_is_credit_for_resets_the_call() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, None);
    for _ in 0..2 {
        let bytes = Bytes::from(vec![0; CREDIT_BYTES_INITIAL]);
        pair.server.on_frame(Frame::Piece { id: there, bytes, is_final: false }).expect("a frame");
    }
    assert!(pair.server.poll_cancelled(there, &cx()).is_ready());
    pair.settle();
    let reset = Cut::Reset { code: code::PROTOCOL_ERROR, is_remote: true };
    assert_eq!(Poll::Ready(Err(reset)), pair.client.poll_head(id, &cx()).map(|it| it.map(drop)));
}

#[test]
fn what_comes_for_a_call_that_is_over_is_for_nobody() {
    let mut pair = Pair::new();
    let (first, there) = begun(&mut pair, Some(&[]));
    pair.server.send_whole(there, &Response::new(()), ([], 0), HeaderMap::new());
    pair.client.leave(first);
    // The answer and the reset cross; the place is reused.
    let second = begin(&mut pair, Some(&[]));
    assert_eq!(first.place, second.place);
    pair.settle();
    assert!(pair.client.poll_head(second, &cx()).is_pending());
    let there = pair.called.pop().expect("a call").id;
    pair.server.send_whole(there, &Response::new(()), ([], 0), HeaderMap::new());
    pair.settle();
    assert!(pair.client.poll_head(second, &cx()).is_ready());
}

#[test]
fn an_answer_that_is_whole_ends_an_upload() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, None);
    pair.client.send(id, [Bytes::from_static(b"more")]);
    pair.server.send_whole(there, &Response::new(()), ([], 0), HeaderMap::new());
    pair.settle();
    assert!(!pair.client.is_sending(id));
    assert_eq!(Poll::Ready(None), pair.client.poll_room(id, &cx()));
}

#[test]
fn a_drain_takes_what_was_on_its_way_and_nothing_else() {
    let mut pair = Pair::new();
    let id = begin(&mut pair, Some(&[]));
    pair.server.say_last();
    pair.settle();
    assert!(pair.client.call(&call_head("/", &HeaderMap::new()), None).is_none());
    let there = pair.called.pop().expect("it was on its way").id;
    assert!(!pair.server.is_over() && !pair.client.is_over());
    pair.server.send_whole(there, &Response::new(()), ([], 0), HeaderMap::new());
    pair.settle();
    assert!(pair.server.is_over());
    assert!(!pair.client.is_over(), "its answer was not taken");
    pair.client.leave(id);
    assert!(pair.client.is_over());
}

/// The bytes of one read, and a marker for whether they are kept.
struct ReadBuffer {
    bytes: Vec<u8>,
    _kept: Arc<()>,
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn short_pieces_that_wait_keep_nothing_else_that_was_read_with_them() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, None);
    let (first, short, long) = ([0; 10], [1; 100], [2; 5000]);
    let sent = [&first[..], &short, &short, &long, &short].map(Bytes::copy_from_slice);
    for piece in &sent {
        pair.client.send(id, [piece.clone()]);
    }
    let mut buffers = Vec::new();
    while pair.client.outgoing().has_remaining() {
        // One frame at a time, as if frames of other calls were between them.
        let read = pair.client.outgoing().copy_to_bytes(PREFIX_BYTES);
        let length = u32::from_be_bytes(read[..4].try_into().unwrap()) as usize;
        let body = pair.client.outgoing().copy_to_bytes(length);
        let whole = [read, body].concat();
        let kept = Arc::new(());
        buffers.push(Arc::downgrade(&kept));
        let mut chunk = Bytes::from_owner(ReadBuffer { bytes: whole, _kept: kept });
        let frame = pair.decoders[0].decode(&mut chunk).unwrap().expect("a frame");
        pair.server.on_frame(frame).unwrap();
    }
    let kept: Vec<bool> = buffers.iter().map(|it: &Weak<()>| it.strong_count() > 0).collect();
    assert_eq!(vec![true, false, false, true, false], kept, "the first one and long ones");
    for piece in sent {
        assert_eq!(
            Poll::Ready(Some(Ok(piece))),
            pair.server.poll_data(there, &cx()),
            "as it was sent"
        );
    }
}

#[test]
fn a_lost_connection_ends_each_call_once() {
    let mut pair = Pair::new();
    let (id, there) = begun(&mut pair, None);
    pair.client.lose();
    pair.server.lose();
    assert_eq!(
        Poll::Ready(Err(Cut::Lost)),
        pair.client.poll_head(id, &cx()).map(|it| it.map(drop))
    );
    assert_eq!(Poll::Ready(None), pair.client.poll_room(id, &cx()));
    assert!(pair.server.poll_cancelled(there, &cx()).is_ready());
    assert_eq!(Poll::Ready(Some(Err(Cut::Lost))), pair.server.poll_data(there, &cx()));
    pair.client.leave(id);
    assert!(pair.client.is_over() && !pair.client.outgoing().has_remaining());
}

#[test]
fn a_head_that_is_too_long_is_answered_as_the_server_would() {
    let mut pair = Pair::new();
    let value = HeaderValue::from_str(&"v".repeat(BLOCK_BYTES_MAX)).unwrap();
    let headers = HeaderMap::from_iter([(HeaderName::from_static("x"), value)]);
    let id = pair.client.call(&call_head("/", &headers), None).expect("an open session");
    assert!(!pair.client.outgoing().has_remaining());
    let Poll::Ready(Ok(head)) = pair.client.poll_head(id, &cx()) else { panic!("an answer") };
    assert_eq!(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, head.status);
    assert_eq!((0, true), take(&mut pair.client, id));
    assert!(!pair.client.is_sending(id));
}

#[test]
fn a_sign_of_life_is_given_once_while_nothing_else_is_said() {
    let mut session = Session::new(Side::Server);
    for _ in 0..1000 {
        session.on_frame(Frame::Ping).expect("a frame");
    }
    assert_eq!(13, session.outgoing().remaining());
    session.on_frame(Frame::Ping).expect("a frame");
    assert_eq!(13, session.outgoing().remaining());
}

#[test]
fn a_server_whose_answers_nobody_reads_is_full() {
    let mut pair = Pair::new();
    while !pair.server.is_full() {
        let id = begin(&mut pair, Some(&[]));
        pair.carry(true, usize::MAX);
        let there = pair.called.pop().expect("a call").id;
        let body = Bytes::from(vec![0; BODY_BYTES_MAX]);
        pair.server.send_whole(
            there,
            &Response::new(()),
            ([body], BODY_BYTES_MAX),
            HeaderMap::new(),
        );
        pair.client.leave(id);
    }
    pair.settle();
    assert!(!pair.server.is_full());
}

#[test]
fn a_head_that_cannot_be_read_ends_its_call_only() {
    let mut pair = Pair::new();
    let (first, second) = (begin(&mut pair, Some(&[])), begin(&mut pair, Some(&[])));
    let payload = Bytes::from_static(b"no head");
    let unknown = CallId { place: 7, serial: 7 };
    let read = pair.server.on_frame(Frame::Begin { id: unknown, payload: payload.clone() });
    assert!(matches!(read, Ok(None)));
    pair.settle();
    pair.client.on_frame(Frame::Head { id: first, payload }).expect("a frame");
    assert!(matches!(pair.client.poll_head(first, &cx()), Poll::Ready(Err(Cut::Reset { .. }))));
    pair.settle();
    let there: Vec<CallId> = pair.called.iter().map(|called| called.id).collect();
    assert_eq!(vec![first, second], there);
    assert!(pair.server.poll_cancelled(first, &cx()).is_ready());
    pair.server.send_whole(second, &Response::new(()), ([], 0), HeaderMap::new());
    pair.settle();
    assert!(matches!(pair.client.poll_head(second, &cx()), Poll::Ready(Ok(_))));
}

#[test]
fn places_are_taken_in_turn() {
    let mut server = Session::new(Side::Server);
    let far = CallId { place: CALLS_MAX - 1, serial: 1 };
    assert!(server.on_frame(Frame::Call { id: far, payload: Bytes::new() }).is_err());
}
