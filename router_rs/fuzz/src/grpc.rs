//! The formats of gRPC: frames, and the headers around them.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use router_net::grpc::compress::{compress, decompress};
use router_net::grpc::metadata::{self, Value};
use router_net::grpc::{
    Code, Decoder, Encoding, Framed, GRPC_MESSAGE, GRPC_STATUS, GRPC_TIMEOUT, Message, Status,
    content_type, format_timeout, is_grpc_content_type, parse_timeout, read_timeout, refuse_pickle,
    subtype,
};

use crate::input::Input;

/// Small, so that inputs reach it.
const SIZE_MAX: usize = 1024;

/// Extracts messages from a stream, however it is split, and decompresses them.
pub fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let cuts = input.piece();
    let stream = Bytes::copy_from_slice(input.rest());
    let (whole, end) = decode([stream.clone()]);
    assert_eq!((&whole, end), (&decode(cut(&stream, cuts)).0, decode(cut(&stream, cuts)).1));

    let mut written = Vec::new();
    for (is_compressed, payload) in &whole {
        let message = Message::from_parts(payload.chunks(7).map(Bytes::copy_from_slice));
        let mut framed = Framed::new(Message { compressed: *is_compressed, ..message });
        while framed.has_remaining() {
            written.extend_from_slice(framed.chunk());
            framed.advance(framed.chunk().len());
        }
        inflate(*is_compressed, payload);
    }
    assert_eq!(written, stream[..written.len()], "messages are written as they were read");
}

type Decoded = (bool, Bytes);

/// The messages, and how the stream ends: with an error, or whether it may end there.
fn decode(pieces: impl IntoIterator<Item = Bytes>) -> (Vec<Decoded>, Result<bool, Code>) {
    let mut decoder = Decoder::new(SIZE_MAX);
    let mut messages = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            match decoder.decode(&mut piece) {
                Ok(Some(message)) => {
                    assert!(message.len() <= SIZE_MAX, "a message beyond the limit");
                    messages.push((message.compressed, message.into_bytes()));
                }
                Ok(None) => assert!(piece.is_empty(), "all of a piece is taken"),
                Err(status) => return (messages, Err(status.code)),
            }
        }
    }
    let is_between = decoder.is_between_messages();
    (messages, Ok(is_between))
}

fn cut(stream: &Bytes, sizes: &[u8]) -> Vec<Bytes> {
    let mut rest = stream.clone();
    let mut pieces: Vec<Bytes> =
        sizes.iter().map(|size| rest.split_to(usize::from(*size).min(rest.len()))).collect();
    pieces.push(rest);
    pieces
}

fn inflate(is_compressed: bool, payload: &Bytes) {
    for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Deflate] {
        let message = Message { compressed: is_compressed, ..payload.clone().into() };
        let Ok(plain) = decompress(encoding, message, SIZE_MAX) else { continue };
        assert!(plain.len() <= SIZE_MAX, "a bomb");
        let plain = plain.into_bytes();
        let again = compress(encoding, plain.clone().into());
        let again = decompress(encoding, again, SIZE_MAX).expect("what was just compressed");
        assert_eq!(plain, again.into_bytes(), "{encoding:?}");
    }
}

/// Parses a value as each of gRPC's headers, and round-trips metadata.
pub fn headers(data: &[u8]) {
    let mut input = Input::new(data);
    let name = input.line();
    let bytes = input.rest();
    if let Ok(text) = std::str::from_utf8(bytes) {
        message(text);
    }
    pair(name, bytes);
    router_net::fuzzing::trace_context(bytes);
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    timeout(&value);
    status(&value);
    types(&value);
    let Ok(name) = HeaderName::from_bytes(name) else { return };
    let block = HeaderMap::from_iter([(name, value)]);
    metadata::for_each(&block, false, |key, value| {
        assert!(!key.starts_with(metadata::MESH_PREFIX), "{key} is of the mesh");
        assert_eq!(metadata::is_binary(key), matches!(value, Value::Binary(_)), "{key}");
        // A text may be invalid UTF-8: then it differs from what was sent, and cannot be converted
        // back.
        if let Value::Binary(_) = value {
            metadata::append(&mut HeaderMap::new(), key, &value).expect("bytes can be sent");
        }
    });
}

fn timeout(value: &HeaderValue) {
    let parsed = parse_timeout(value.as_bytes());
    let block = HeaderMap::from_iter([(GRPC_TIMEOUT, value.clone())]);
    assert_eq!(parsed, read_timeout(&block).ok().flatten());
    if let Some(timeout) = parsed {
        let again = parse_timeout(format_timeout(timeout).as_bytes()).expect("what we write");
        assert!(again >= timeout, "a hop shortens {timeout:?} to {again:?}");
    }
}

fn status(value: &HeaderValue) {
    let mut block = HeaderMap::from_iter([(GRPC_STATUS, value.clone())]);
    block.insert(GRPC_MESSAGE, value.clone());
    let read = Status::read(&block).expect("there is a status");
    message(&read.message);
}

/// A message arrives completely, or truncated with a note that says so.
fn message(text: &str) {
    let mut block = HeaderMap::new();
    Status::new(Code::Aborted, text).write(&mut block);
    let read = Status::read(&block).expect("what we write");
    assert_eq!(Code::Aborted, read.code);
    assert!(read.message == text || read.message.contains(" ... (cut: "), "{text:?}: {read:?}");
    let length = block.get(GRPC_MESSAGE).map_or(0, HeaderValue::len);
    assert!(length <= 6 * 1024, "{length} bytes of a message");
}

fn types(value: &HeaderValue) {
    let codec = subtype(Some(value));
    assert!(!codec.bytes().any(|byte| byte.is_ascii_uppercase()), "{codec:?}");
    if is_grpc_content_type(Some(value))
        && let Ok(written) = content_type(&codec)
    {
        assert_eq!(codec, subtype(Some(&written)), "the codec arrives");
        // A content type that passes the check is not rewritten as pickle either.
        let is_refused = refuse_pickle(Some(value)).is_err();
        assert!(is_refused || refuse_pickle(Some(&written)).is_ok(), "{value:?}");
    }
    if let Ok(encoding) = Encoding::from_header(Some(value)) {
        assert!(encoding.is_accepted_by(Some(value)));
    }
    let _accepted = Encoding::Gzip.is_accepted_by(Some(value));
}

/// Metadata that can be sent arrives.
fn pair(name: &[u8], value: &[u8]) {
    let Ok(key) = std::str::from_utf8(name) else { return };
    let sent = match std::str::from_utf8(value) {
        Ok(text) if !metadata::is_binary(key) => Value::Text(text.to_owned()),
        _ => Value::Binary(value.to_vec()),
    };
    let mut block = HeaderMap::new();
    if metadata::append(&mut block, key, &sent).is_err() {
        return;
    }
    let is_hidden = block.keys().any(metadata::is_protocol_header);
    let mut arrived = Vec::new();
    metadata::for_each(&block, true, |_, value| arrived.push(value));
    assert_eq!(if is_hidden { vec![] } else { vec![sent] }, arrived, "{key}");
}
