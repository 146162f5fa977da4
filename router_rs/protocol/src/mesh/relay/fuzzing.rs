//! Any bytes as the frames of a relay.

use bytes::Bytes;

use super::read_trailers;
use super::{Decoder, Frame, Wire, put_call, put_trailers, put_whole, read_answer, read_call};

/// Reads `bytes` cut into pieces of `length`; what can be read is written again, and comes back.
pub fn frames(bytes: &[u8], length: usize) {
    let mut decoder = Decoder::default();
    for chunk in bytes.chunks(length.max(1)) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(frame)) => again(frame),
                Ok(None) => break assert!(chunk.is_empty(), "all of it is taken"),
                Err(_) => return,
            }
        }
    }
}

fn again(frame: Frame) {
    let mut wire = Wire::new();
    match frame {
        Frame::Call { id, payload } => {
            let Ok((head, body)) = read_call(payload) else { return };
            if put_call(&mut wire, id, &head, std::slice::from_ref(&body)).is_err() {
                return; // names that were spelled elsewhere may be longer here
            }
            let Some(Frame::Call { payload, .. }) = only(wire) else { panic!("it is a call") };
            let (again, body_again) = read_call(payload).expect("it was read before");
            assert_eq!((&head.method, &head.uri), (&again.method, &again.uri));
            assert_eq!((head.headers, body), (again.headers, body_again));
        }
        Frame::Whole { id, payload } => {
            let Ok((head, body)) = read_answer(payload) else { return };
            if put_whole(&mut wire, id, (head.status, &head.headers), body.len()).is_err() {
                return;
            }
            wire.extend_from_slice(&body);
            let Some(Frame::Whole { payload, .. }) = only(wire) else { panic!("it is an answer") };
            let (again, body_again) = read_answer(payload).expect("it was read before");
            assert_eq!((head.status, head.headers), (again.status, again.headers));
            assert_eq!(body, body_again);
        }
        Frame::Trailers { id, payload } => {
            let Ok(trailers) = read_trailers(payload) else { return };
            if put_trailers(&mut wire, id, &trailers).is_err() {
                return;
            }
            let Some(Frame::Trailers { payload, .. }) = only(wire) else { panic!("trailers") };
            assert_eq!(Ok(trailers), read_trailers(payload));
        }
        Frame::Head { .. }
        | Frame::Piece { .. }
        | Frame::Reset { .. }
        | Frame::Credit { .. }
        | Frame::Last => {}
    }
}

fn only(wire: Wire) -> Option<Frame> {
    let mut wire = Bytes::from(wire);
    let frame = Decoder::default().decode(&mut wire).expect("it was written here");
    assert!(wire.is_empty(), "one frame was written");
    frame
}
