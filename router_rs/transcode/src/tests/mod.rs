//! Requests and answers through the coders, as bytes and heads.

mod adaptor;
mod connect;
mod cost;
mod editions;
mod json;
mod limits;
mod llm;
mod rest;
mod stream;
mod table;
mod unknown;
mod web;
mod wrong;

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use prost::Message;
use router_protocol::grpc::size_limit::INGRESS_TRANSCODES;
use router_protocol::grpc::{Code, Decoder, GRPC_STATUS, SizeLimit, Status};

use super::Limits;
use super::coder::{AnswerCoder, Failure, Outbox, RequestCoder, Taken};
use super::cors::Cors;
use super::json::{JsonType, frame_of};
use super::methods::{MethodSource, MethodTable};
use super::open::open;
use super::opened::{Opened, Transcoding};
use crate::ServiceRoute;

/// `tests/mesh/doors/things.proto` with all that it imports, as a `FileDescriptorSet`.
const THINGS: &[u8] = include_bytes!("../../../testdata/things.binpb");

/// `google.protobuf.FileDescriptorSet`
#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

fn files() -> Vec<Bytes> {
    Files::decode(THINGS).unwrap().files
}

fn service() -> ServiceRoute {
    ServiceRoute { name: "things.v1.Things".into(), methods: None }
}

fn things() -> MethodTable {
    let (files, services) = (files(), [service()]);
    let source =
        MethodSource { application: "app", deployment: "D", services: &services, files: &files };
    let table = MethodTable::default().next([source]);
    assert_eq!(Vec::<String>::new(), table.problems("app", "D"));
    table
}

fn thing() -> JsonType {
    things().find("/things.v1.Things/Echo", None).unwrap().input.clone()
}

/// The gRPC frame of a message in JSON.
fn frame(json: &str) -> Bytes {
    frame_of(&[&thing().read(json.as_bytes()).unwrap()])
}

/// The messages of gRPC frames, as JSON of `json_type`.
fn messages(json_type: &JsonType, mut frames: Bytes) -> Vec<String> {
    let mut decoder = Decoder::new(usize::MAX);
    let mut messages = Vec::new();
    while !frames.is_empty() {
        if let Some(message) = decoder.decode(&mut frames).unwrap() {
            let json = json_type.write(&message.into_bytes()).unwrap();
            messages.push(String::from_utf8(json).unwrap());
        }
    }
    assert!(decoder.is_between_messages());
    messages
}

fn limits(message_bytes_max: usize) -> Limits {
    Limits {
        message_size: SizeLimit { bytes_max: message_bytes_max, option: INGRESS_TRANSCODES },
        refuses_unknown_fields: false,
        cors: Cors::new(["*"]),
        keep_alive: Duration::from_secs(10),
        answered_by: HeaderValue::from_static("ingress"),
    }
}

fn parts(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> request::Parts {
    let mut builder = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn opened(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> Opened {
    open(&things(), &parts(method, uri, headers), &limits(1 << 20), &|_| true)
}

fn call(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> Transcoding {
    match opened(method, uri, headers) {
        Opened::Call(transcoding) => *transcoding,
        other => panic!("no call: {other:?}"),
    }
}

fn answered(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> Response<Bytes> {
    match opened(method, uri, headers) {
        Opened::Answer(response) => response,
        other => panic!("no answer: {other:?}"),
    }
}

fn text(response: &Response<Bytes>) -> &str {
    std::str::from_utf8(response.body()).unwrap()
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().into()
}

/// Pieces of `bytes` whose sizes follow `cuts`, over and over.
fn cut(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut pieces = Vec::new();
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        pieces.push(rest.split_to((*cut).min(rest.len())));
    }
    pieces
}

/// The output for a request's pieces; the last one ends it, or an empty one if there is none.
fn upload(coder: &mut dyn RequestCoder, pieces: &[Bytes]) -> Result<Bytes, Status> {
    let mut left: VecDeque<Bytes> = pieces.iter().cloned().collect();
    let mut made = BytesMut::new();
    loop {
        match coder.take()? {
            Taken::Piece(bytes) => made.extend_from_slice(&bytes),
            Taken::Long(work) => made.extend_from_slice(&work.run()?.into_bytes()),
            Taken::NeedsMore => {
                assert_eq!(0, coder.unread_bytes());
                let piece = left.pop_front().unwrap_or_default();
                coder.give(piece, left.is_empty());
            }
            Taken::End => return Ok(made.freeze()),
        }
    }
}

/// The response that a client gets.
#[derive(Debug, PartialEq)]
struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Told {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn take(outbox: Outbox) -> Self {
        assert!(outbox.is_ended);
        let head = outbox.head.unwrap();
        let body = Vec::from(outbox.body).concat();
        Self { status: head.status, headers: head.headers, body }
    }
}

fn header_map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn ok() -> HeaderMap {
    header_map(&[("grpc-status", "0")])
}

/// A replica's answer.
struct Answer<'a> {
    headers: HeaderMap,
    pieces: &'a [Bytes],
    trailers: HeaderMap,
}

impl Default for Answer<'_> {
    fn default() -> Self {
        let headers = header_map(&[("content-type", "application/grpc+proto")]);
        Self { headers, pieces: &[], trailers: ok() }
    }
}

/// The client's response for a replica's answer. If the coder fails, it is the coder's error
/// response.
fn download(coder: &mut dyn AnswerCoder, answer: Answer<'_>) -> Told {
    let mut outbox = Outbox::default();
    let result = try_download(coder, answer, &mut outbox);
    if let Err(status) = result {
        fail(coder, &status, &mut outbox);
    }
    Told::take(outbox)
}

fn fail(coder: &mut dyn AnswerCoder, status: &Status, outbox: &mut Outbox) {
    let headers = HeaderMap::new();
    coder.fail(&Failure { status, headers: &headers, is_of_mesh: false }, outbox);
}

fn try_download(
    coder: &mut dyn AnswerCoder,
    answer: Answer<'_>,
    outbox: &mut Outbox,
) -> Result<(), Status> {
    coder.head(answer.headers, outbox);
    for piece in answer.pieces {
        coder.give(piece.clone());
        while coder.step(outbox)? {
            resume(coder, outbox)?;
        }
    }
    coder.finish(answer.trailers, outbox)?;
    resume(coder, outbox)
}

fn resume(coder: &mut dyn AnswerCoder, outbox: &mut Outbox) -> Result<(), Status> {
    if let Some(work) = outbox.work.take() {
        coder.resume(work.run()?, outbox);
    }
    Ok(())
}

/// The client's response when the replica answers with trailers only.
fn download_trailers(coder: &mut dyn AnswerCoder, trailers: HeaderMap) -> Told {
    let mut outbox = Outbox::default();
    if let Err(status) = coder.finish(trailers, &mut outbox) {
        fail(coder, &status, &mut outbox);
    }
    Told::take(outbox)
}

fn refused(result: Result<Bytes, Status>) -> (Code, String) {
    let status = result.expect_err("a refusal");
    (status.code, status.message)
}

#[test]
fn a_status_is_read_from_trailers() {
    assert_eq!(Some("0"), ok().get(GRPC_STATUS).map(|value| value.to_str().unwrap()));
    assert_eq!(vec!["{\"name\":\"a\"}"], messages(&thing(), frame("{\"name\": \"a\"}")));
    let mut prefix = BytesMut::new();
    router_protocol::grpc::framing::put_prefix(&mut prefix, 258);
    assert_eq!(&[0, 0, 0, 1, 2][..], &prefix[..]);
}
