//! Treats any bytes as frames.

use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{Method, Request};
use router_arena::{ARENA_BYTES_DEFAULT, Arena};

use crate::block::{read_call, read_trailers, read_whole};
use crate::decoder::Decoder;
use crate::frame::{CallId, Frame};
use crate::outgoing::Outgoing;
use crate::session::{Session, Side};

/// Reads `bytes` cut into pieces of `length`. Everything that can be read is written and read
/// again. Both sides of a session must accept or refuse the bytes.
pub fn frames(bytes: &[u8], length: usize) {
    let mut decoder = Decoder::default();
    let (arena, descriptor) = Arena::create(ARENA_BYTES_DEFAULT).expect("a memfd");
    let there = Arena::open(&descriptor).expect("an arena");
    let mut sessions = [Some(calling(arena)), Some(Session::with_arena(Side::Server, Some(there)))];
    for chunk in bytes.chunks(length.max(1)) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(frame)) => {
                    for session in &mut sessions {
                        take(session, frame.clone());
                    }
                    again(frame);
                }
                Ok(None) => break assert!(chunk.is_empty(), "all of it is taken"),
                Err(_) => return,
            }
        }
    }
}

/// A client that waits for some answers, with the ids that frames have most.
fn calling(arena: Arena) -> Session {
    let mut session = Session::with_arena(Side::Client, Some(arena));
    for method in [Method::POST, Method::HEAD, Method::GET, Method::POST] {
        let (mut head, ()) = Request::new(()).into_parts();
        let body = (method != Method::POST).then_some(&[][..]);
        head.method = method;
        session.call(&head, body);
    }
    session
}

fn take(session: &mut Option<Session>, frame: Frame) {
    let Some(taking) = session else { return };
    let Ok(_) = taking.on_frame(frame) else { return *session = None };
    let cx = Context::from_waker(Waker::noop());
    for place in 0..4 {
        let id = CallId { place, serial: place + 1 };
        let _any = taking.poll_head(id, &cx).is_ready();
        while let Poll::Ready(Some(Ok(piece))) = taking.poll_data(id, &cx) {
            taking.release(id, piece.len());
        }
        let _any = taking.poll_trailers(id, &cx).is_ready();
    }
}

fn again(frame: Frame) {
    let mut wire = Outgoing::default();
    match frame {
        Frame::Call { id, payload } => {
            let Ok((head, body)) = read_call(payload) else { return };
            if wire.put_call(id, &head, std::slice::from_ref(&body)).is_err() {
                return; // names that were spelled elsewhere may be longer here
            }
            let Some(Frame::Call { payload, .. }) = only(wire) else { panic!("it is a call") };
            let (again, body_again) = read_call(payload).expect("it was read before");
            assert_eq!((&head.method, &head.uri), (&again.method, &again.uri));
            assert_eq!((head.headers, body), (again.headers, body_again));
        }
        Frame::Whole { id, payload } => {
            let Ok((head, trailers, body)) = read_whole(payload) else { return };
            let (line, whole) = ((head.status, &head.headers), ([body.clone()], body.len()));
            if wire.put_whole(id, line, &trailers, whole).is_err() {
                return;
            }
            let Some(Frame::Whole { payload, .. }) = only(wire) else { panic!("it is an answer") };
            let (again, trailers_again, body_again) = read_whole(payload).expect("it was read");
            assert_eq!((head.status, head.headers), (again.status, again.headers));
            assert_eq!((trailers, body), (trailers_again, body_again));
        }
        Frame::Trailers { id, payload } => {
            let Ok(trailers) = read_trailers(payload) else { return };
            if wire.put_trailers(id, &trailers).is_err() {
                return;
            }
            let Some(Frame::Trailers { payload, .. }) = only(wire) else { panic!("trailers") };
            assert_eq!(Ok(trailers), read_trailers(payload));
        }
        Frame::Begin { .. }
        | Frame::Head { .. }
        | Frame::Piece { .. }
        | Frame::Lent { .. }
        | Frame::Reset { .. }
        | Frame::Credit { .. }
        | Frame::Started { .. }
        | Frame::Last
        | Frame::Ping
        | Frame::Pong
        | Frame::Mapped => {}
    }
}

fn only(mut wire: Outgoing) -> Option<Frame> {
    let mut wire = wire.copy_to_bytes(wire.remaining());
    let frame = Decoder::default().decode(&mut wire).expect("it was written here");
    assert!(wire.is_empty(), "one frame was written");
    frame
}
