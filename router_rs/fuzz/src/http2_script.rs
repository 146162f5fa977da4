//! Turns an input into a client's HTTP/2 connection: frames with correct lengths, mostly.
//!
//! Without this nearly every input would end at a frame that is longer than the input.

use crate::input::Input;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Head = &'static [(&'static str, &'static str)];

const GRPC: Head = &[("content-type", "application/grpc"), ("te", "trailers")];
const JSON: Head = &[("content-type", "application/json")];

/// Method, path, other headers.
const HEADS: [(&str, &str, Head); 12] = [
    ("POST", "/things.v1.Things/Echo", GRPC),
    ("POST", "/things.v1.Things/Chat", GRPC),
    ("POST", "/nobody.has/This", GRPC),
    ("GET", "/app/x?y=z", &[]),
    ("POST", "/app/x", &[("content-length", "5")]),
    ("POST", "/things.v1.Things/Echo", JSON),
    ("POST", "/v1/echo/name:again", JSON),
    ("POST", "/things.v1.Things/Chat", &[("content-type", "application/grpc-web-text")]),
    ("POST", "/things.v1.Things/Chat", &[("content-type", "application/connect+json")]),
    ("CONNECT", "/app/ws", &[(":protocol", "websocket"), ("sec-websocket-version", "13")]),
    ("GET", "/-/healthz", &[]),
    ("POST", "/pyserve.mesh/Hello", GRPC),
];

/// The bytes of a connection.
pub(crate) fn connection(data: &[u8]) -> Vec<u8> {
    let mut input = Input::new(data);
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    while !input.is_empty() {
        step(&mut input, &mut bytes);
    }
    bytes
}

fn step(input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    let kind = input.byte();
    // Few streams, so that frames collide.
    let stream = u32::from(kind >> 4) * 2 + 1;
    match kind & 15 {
        0..=3 => {
            let block = block(input);
            let flags = END_HEADERS | (kind & END_STREAM);
            frame(bytes, HEADERS, flags, stream, &block);
        }
        4 | 5 => frame(bytes, DATA, kind & END_STREAM, stream, input.piece()),
        6 | 7 => {
            // One message of gRPC.
            let message = input.piece();
            let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
            let framed = [&[0], &length[..], message].concat();
            frame(bytes, DATA, kind & END_STREAM, stream, &framed);
        }
        8 => frame(bytes, RST_STREAM, 0, stream, &input.number().to_be_bytes()),
        9 => frame(bytes, WINDOW_UPDATE, 0, stream & 7, &input.number().to_be_bytes()),
        10 => frame(bytes, PING, input.byte(), 0, &[0; 8]),
        11 => {
            let (id, value) = (u16::from(input.byte()), input.number());
            let setting = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
            frame(bytes, SETTINGS, 0, 0, &setting);
        }
        12 => bytes.extend_from_slice(input.piece()),
        _ => {
            let (kind, flags) = (input.byte(), input.byte());
            frame(bytes, kind, flags, stream - 1 + u32::from(flags & 1), input.piece());
        }
    }
}

/// One of the heads, and what the input adds to it: pairs, then bytes of HPACK.
fn block(input: &mut Input<'_>) -> Vec<u8> {
    let choice = input.byte();
    let (method, path, others) = HEADS[usize::from(choice) % HEADS.len()];
    let mut block = Vec::new();
    for (name, value) in
        [(":method", method), (":path", path), (":scheme", "http"), (":authority", "h")]
            .iter()
            .chain(others)
    {
        literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    match choice / HEADS.len() as u8 % 4 {
        0 => {}
        1 => literal(&mut block, input.piece(), input.piece()),
        2 => literal(&mut block, b"grpc-timeout", input.piece()),
        _ => block.extend_from_slice(input.piece()),
    }
    block
}

/// A literal without indexing and without Huffman's code (RFC 7541, 6.2.2).
fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let text = &text[..text.len().min(126)];
        block.push(text.len() as u8);
        block.extend_from_slice(text);
    }
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}
