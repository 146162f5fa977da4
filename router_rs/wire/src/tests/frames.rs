//! Everything written can be read, however it is split; anything else is refused without a panic.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

use super::call_head;
use crate::frame::Kind;
use crate::*;

/// A frame as its writer knows it.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Call { target: String, headers: HeaderMap, body: Vec<u8> },
    Begin { target: String, headers: HeaderMap },
    Whole { status: u16, headers: HeaderMap, trailers: HeaderMap, body: Vec<u8> },
    Head { status: u16, headers: HeaderMap },
    Piece { bytes: Vec<u8>, is_final: bool },
    Trailers { headers: HeaderMap },
    Lent { place: (u32, u32), is_final: bool },
    Reset { code: u32 },
    Credit { bytes: u32 },
    Started,
    Last,
    Ping,
    Pong,
    Mapped,
}

impl Said {
    fn is_of_call(&self) -> bool {
        !matches!(self, Said::Last | Said::Ping | Said::Pong | Said::Mapped)
    }
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof!["[a-z][a-z0-9-]{0,12}", Just("pyserve-http".to_owned())];
    let pairs = prop::collection::vec((name, "[ -~]{0,20}"), 0..6);
    pairs.prop_map(|pairs| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = HeaderValue::from_str(&value).expect("printable");
            headers.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value);
        }
        headers
    })
}

fn said() -> impl Strategy<Value = Said> {
    let body = || prop::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        ("/[a-z/]{0,20}", headers(), body()).prop_map(|(target, headers, body)| Said::Call {
            target,
            headers,
            body
        }),
        ("/[a-z/]{0,20}", headers()).prop_map(|(target, headers)| Said::Begin { target, headers }),
        (200_u16..600, headers(), headers(), body()).prop_map(
            |(status, headers, trailers, body)| Said::Whole { status, headers, trailers, body }
        ),
        (200_u16..600, headers()).prop_map(|(status, headers)| Said::Head { status, headers }),
        (body(), any::<bool>()).prop_map(|(bytes, is_final)| Said::Piece { bytes, is_final }),
        headers().prop_map(|headers| Said::Trailers { headers }),
        (any::<(u32, u32)>(), any::<bool>())
            .prop_map(|(place, is_final)| Said::Lent { place, is_final }),
        any::<u32>().prop_map(|code| Said::Reset { code }),
        any::<u32>().prop_map(|bytes| Said::Credit { bytes }),
        Just(Said::Started),
        Just(Said::Last),
        Just(Said::Ping),
        Just(Said::Pong),
        Just(Said::Mapped),
    ]
}

fn put(wire: &mut Outgoing, id: CallId, said: &Said) {
    match said {
        Said::Call { target, headers, body } => {
            let pieces: Vec<Bytes> = body.chunks(9).map(Bytes::copy_from_slice).collect();
            wire.put_call(id, &call_head(target, headers), &pieces).unwrap();
        }
        Said::Begin { target, headers } => wire.put_begin(id, &call_head(target, headers)).unwrap(),
        Said::Whole { status, headers, trailers, body } => {
            let head = (StatusCode::from_u16(*status).unwrap(), headers);
            let whole = ([Bytes::copy_from_slice(body)], body.len());
            wire.put_whole(id, head, trailers, whole).unwrap();
        }
        Said::Head { status, headers } => {
            wire.put_head(id, (StatusCode::from_u16(*status).unwrap(), headers)).unwrap();
        }
        Said::Piece { bytes, is_final } => {
            wire.put_piece(id, bytes.len(), *is_final);
            wire.push(&Bytes::copy_from_slice(bytes));
        }
        Said::Trailers { headers } => wire.put_trailers(id, headers).unwrap(),
        Said::Lent { place: (first_block, bytes), is_final } => {
            let place = Place { first_block: *first_block, bytes: *bytes };
            wire.put_lent(id, place, *is_final);
        }
        Said::Reset { code } => wire.put_reset(id, *code),
        Said::Credit { bytes } => wire.put_credit(id, *bytes),
        Said::Started => wire.put_started(id),
        Said::Last => wire.put_sign(Kind::Last),
        Said::Ping => wire.put_sign(Kind::Ping),
        Said::Pong => wire.put_sign(Kind::Pong),
        Said::Mapped => wire.put_sign(Kind::Mapped),
    }
}

fn read(frame: Frame) -> (Option<CallId>, Said) {
    match frame {
        Frame::Call { id, payload } => {
            let (head, body) = read_call(payload).unwrap();
            assert_eq!(
                ("POST", "h:1"),
                (head.method.as_str(), head.uri.authority().unwrap().as_str())
            );
            let (target, body) = (head.uri.path().to_owned(), body.to_vec());
            (Some(id), Said::Call { target, headers: head.headers, body })
        }
        Frame::Begin { id, payload } => {
            let (head, rest) = read_call(payload).unwrap();
            assert!(rest.is_empty());
            let target = head.uri.path().to_owned();
            (Some(id), Said::Begin { target, headers: head.headers })
        }
        Frame::Whole { id, payload } => {
            let (head, trailers, body) = read_whole(payload).unwrap();
            let (status, headers, body) = (head.status.as_u16(), head.headers, body.to_vec());
            (Some(id), Said::Whole { status, headers, trailers, body })
        }
        Frame::Head { id, payload } => {
            let head = read_answer(payload).unwrap();
            (Some(id), Said::Head { status: head.status.as_u16(), headers: head.headers })
        }
        Frame::Piece { id, bytes, is_final } => {
            (Some(id), Said::Piece { bytes: bytes.to_vec(), is_final })
        }
        Frame::Trailers { id, payload } => {
            (Some(id), Said::Trailers { headers: read_trailers(payload).unwrap() })
        }
        Frame::Lent { id, place: Place { first_block, bytes }, is_final } => {
            (Some(id), Said::Lent { place: (first_block, bytes), is_final })
        }
        Frame::Reset { id, code } => (Some(id), Said::Reset { code }),
        Frame::Credit { id, bytes } => (Some(id), Said::Credit { bytes }),
        Frame::Started { id } => (Some(id), Said::Started),
        Frame::Last => (None, Said::Last),
        Frame::Ping => (None, Said::Ping),
        Frame::Pong => (None, Said::Pong),
        Frame::Mapped => (None, Said::Mapped),
    }
}

fn decode_all(chunks: impl Iterator<Item = Bytes>) -> Result<Vec<Frame>, Malformed> {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for mut chunk in chunks {
        while let Some(frame) = decoder.decode(&mut chunk)? {
            frames.push(frame);
        }
        assert!(chunk.is_empty(), "all of it is taken");
    }
    Ok(frames)
}

/// Joins the pieces into which a split has divided one.
fn joined(frames: Vec<Frame>, expected: &[(CallId, Said)]) -> Vec<(Option<CallId>, Said)> {
    let mut joined: Vec<(Option<CallId>, Said)> = Vec::new();
    for (id, said) in frames.into_iter().map(read) {
        let at = joined.len().saturating_sub(1);
        let is_short = matches!(
            (joined.last(), expected.get(at)),
            (Some((_, Said::Piece { bytes: come, .. })), Some((_, Said::Piece { bytes: all, .. })))
                if come.len() < all.len()
        );
        match (joined.last_mut(), said) {
            (
                Some((_, Said::Piece { bytes, is_final })),
                Said::Piece { bytes: more, is_final: end },
            ) if is_short => {
                bytes.extend_from_slice(&more);
                *is_final = end;
            }
            (_, said) => joined.push((id, said)),
        }
    }
    joined
}

proptest! {
    #[test]
    fn any_cutting_of_the_stream_gives_the_same_frames(
        said in prop::collection::vec((any::<u32>(), any::<u32>(), said()), 0..8),
        cuts in prop::collection::vec(1_usize..90, 1..80),
    ) {
        let said: Vec<(CallId, Said)> = said
            .into_iter()
            .map(|(place, serial, said)| (CallId { place, serial }, said))
            .collect();
        let mut wire = Outgoing::default();
        for (id, said) in &said {
            put(&mut wire, *id, said);
        }
        let mut wire = wire.copy_to_bytes(wire.remaining());
        let mut cuts = cuts.into_iter().cycle();
        let chunks = std::iter::from_fn(|| {
            let length = cuts.next()?.min(wire.len());
            (length > 0).then(|| wire.split_to(length))
        });
        let frames = decode_all(chunks).unwrap();
        let expected: Vec<(Option<CallId>, Said)> = said
            .iter()
            .map(|(id, said)| (said.is_of_call().then_some(*id), said.clone()))
            .collect();
        prop_assert_eq!(expected, joined(frames, &said));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8),
        (kind, payload) in (0_u8..15, prop::collection::vec(any::<u8>(), 0..60)),
    ) {
        let mut framed = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        framed.push(kind);
        framed.extend([0; 8]);
        framed.extend(payload);
        for chunks in [chunks, vec![framed]] {
            let Ok(frames) = decode_all(chunks.into_iter().map(Bytes::from)) else { continue };
            for frame in frames {
                let (Frame::Call { payload, .. }
                | Frame::Begin { payload, .. }
                | Frame::Whole { payload, .. }
                | Frame::Head { payload, .. }
                | Frame::Trailers { payload, .. }) = frame
                else {
                    continue;
                };
                let _any = read_call(payload.clone()).is_ok();
                let _any = read_answer(payload.clone()).is_ok();
                let _any = read_whole(payload.clone()).is_ok();
                let _any = read_trailers(payload).is_ok();
            }
        }
    }
}

#[test]
fn what_no_frame_can_hold_is_not_written() {
    let id = CallId { place: 1, serial: 2 };
    let long = |length: usize| {
        let value = HeaderValue::from_str(&"v".repeat(length)).unwrap();
        HeaderMap::from_iter([(HeaderName::from_static("x"), value)])
    };
    let mut wire = Outgoing::default();
    wire.put_sign(Kind::Last);
    let before = wire.remaining();
    assert_eq!(Err(TooLong), wire.put_head(id, (StatusCode::OK, &long(BLOCK_BYTES_MAX))));
    assert_eq!(Err(TooLong), wire.put_trailers(id, &long(BLOCK_BYTES_MAX)));
    assert_eq!(before, wire.remaining());
    wire.put_head(id, (StatusCode::OK, &long(BLOCK_BYTES_MAX - 50))).unwrap();
}

#[test]
fn frames_beyond_their_limits_are_malformed() {
    let (block, piece) = (BLOCK_BYTES_MAX, CREDIT_BYTES_INITIAL);
    for (kind, length) in [
        (0, 0),
        (13, 0),
        (1, block + BODY_BYTES_MAX + 1),
        (2, block + 1),
        (5, block + 1),
        (6, piece + 1),
        (8, 3),
        (9, 5),
        (10, 1),
        (11, 1),
    ] {
        let mut prefix = u32::try_from(length).unwrap().to_be_bytes().to_vec();
        prefix.push(kind);
        prefix.extend([0; 8]);
        assert!(decode_all([Bytes::from(prefix)].into_iter()).is_err(), "{kind} of {length}");
    }
}

#[test]
fn long_pieces_are_not_copied() {
    let mut wire = Outgoing::default();
    let body = Bytes::from(vec![7; 100_000]);
    let id = CallId { place: 0, serial: 1 };
    wire.put_piece(id, body.len(), true);
    wire.push(&body);
    wire.put_sign(Kind::Last);
    let mut slices = [std::io::IoSlice::new(&[]); 8];
    assert_eq!(3, wire.chunks_vectored(&mut slices));
    assert_eq!(body.as_ptr(), slices[1].as_ptr());
    wire.advance(13 + 60_000);
    assert_eq!(40_000 + 13, wire.remaining());
    assert_eq!(body[60_000..].as_ptr(), wire.chunk().as_ptr());
    wire.advance(40_013);
    assert!(!wire.has_remaining());
}

#[test]
fn what_was_written_is_let_go_where_more_always_waits() {
    let mut wire = Outgoing::default();
    let piece = Bytes::from(vec![7; 1000]);
    let mut pushed: usize = 0;
    for _ in 0..100 {
        wire.push(&piece);
        pushed += 1;
    }
    for _ in 0..100_000 {
        wire.push(&piece);
        pushed += 1;
        wire.advance(1000);
        pushed -= 1;
    }
    assert_eq!(1000 * pushed, wire.remaining());
    assert!(wire.room_bytes() < 1 << 20, "{}", wire.room_bytes());
    wire.advance(1000 * pushed);
    assert!(!wire.has_remaining());
}
