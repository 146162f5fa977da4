//! Every parser of bytes that come from outside, as a function that a fuzzer can call.
//!
//! None of them may panic, recurse without bound, or produce much more than its input. The return
//! values have no meaning. `things.binpb` describes the methods.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Uri, request};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use router_protocol::grpc::framing::Decoder;
use router_protocol::grpc::{Code, Status};

use super::coder::{Failure, Outbox, RequestCoder, Taken};
use super::methods::template::Template;
use super::methods::{MethodSource, MethodTable};
use super::{Cors, Limits, Opened, Transcoding, open};
use crate::ServiceRoute;

const THINGS: &[u8] = include_bytes!("../../testdata/things.binpb");

thread_local! {
    static THINGS_TABLE: MethodTable = table(THINGS);
    /// Shared, since messages of two are never equal.
    static THINGS_POOL: DescriptorPool =
        DescriptorPool::decode(THINGS).expect("invariant: the file has descriptors");
}

/// Small, so that fuzzers reach it.
const LIMITS_BYTES: usize = 4096;

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

/// A deployment's `FileDescriptorSet`, and look-ups in the result.
pub fn descriptors(data: &[u8]) {
    let table = table(data);
    let _matched = table.rest().find(&http::Method::GET, "/v1/shelves/1/things/2:verb", None);
}

/// A template of `google.api.http`.
pub fn template(data: &[u8]) {
    let _template = std::str::from_utf8(data).map(Template::parse);
}

/// Path and query of a GET: Connect's, and those of `google.api.http`.
pub fn get(data: &[u8]) {
    if let Ok(uri) = Uri::try_from(data) {
        let mut parts = head("/", "");
        parts.method = http::Method::GET;
        parts.uri = uri;
        let _opened = THINGS_TABLE.with(|table| open(table, &parts, &limits(false), &|_| true));
    }
}

/// The body of a unary call in JSON.
pub fn unary_json(data: &[u8]) {
    upload("/things.v1.Things/Echo", "application/json", data);
}

/// The body of a request to a path of `google.api.http`.
pub fn rest(data: &[u8]) {
    upload("/v1/echo/name:again?tags=a", "application/json", data);
}

/// Connect's envelopes with JSON.
pub fn json_stream(data: &[u8]) {
    upload("/things.v1.Things/Chat", "application/connect+json", data);
}

/// Connect's envelopes with protobuf.
pub fn proto_stream(data: &[u8]) {
    upload("/things.v1.Things/Chat", "application/connect+proto", data);
}

/// Base64 of gRPC-Web.
pub fn web_text(data: &[u8]) {
    upload("/things.v1.Things/Chat", "application/grpc-web-text", data);
}

/// A replica's answer: gRPC frames that become JSON.
pub fn answer(data: &[u8]) {
    for (path, content_type) in [
        ("/things.v1.Things/Echo", "application/json"),
        ("/things.v1.Things/Chat", "application/connect+json"),
        ("/things.v1.Things/List", "application/json"),
    ] {
        if let Some(mut call) = call(path, content_type, false) {
            download(&mut call, data);
        }
    }
}

fn download(call: &mut Transcoding, data: &[u8]) {
    let mut outbox = Outbox::default();
    call.answer.head(HeaderMap::new(), &mut outbox);
    call.answer.give(Bytes::copy_from_slice(data));
    let mut result = Ok(true);
    while let Ok(true) = result {
        result = call.answer.step(&mut outbox).and_then(|more| resume(call, &mut outbox, more));
    }
    let ended = result.and_then(|_| call.answer.finish(ok(), &mut outbox));
    if let Err(status) = ended.and_then(|()| resume(call, &mut outbox, ())) {
        let headers = HeaderMap::new();
        let failure = Failure { status: &status, headers: &headers, is_of_mesh: false };
        call.answer.fail(&failure, &mut outbox);
    }
    assert!(outbox.is_ended, "an answer has an end");
}

/// Does the work in the outbox.
fn resume<T>(call: &mut Transcoding, outbox: &mut Outbox, then: T) -> Result<T, Status> {
    if let Some(work) = outbox.work.take() {
        call.answer.resume(work.run()?, outbox);
    }
    Ok(then)
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    Status::new(Code::Ok, "").write(&mut trailers);
    trailers
}

/// The body in one piece and in two: the method must get the same. If the number of bytes before
/// the cut is odd, unknown fields are refused.
fn upload(path: &str, content_type: &'static str, data: &[u8]) {
    let Some((cut, body)) = data.split_first() else { return };
    let (head, tail) = body.split_at(usize::from(*cut).min(body.len()));
    let forwarded = |pieces: &[&[u8]]| {
        let mut call =
            call(path, content_type, cut % 2 == 1).expect("invariant: the method takes this type");
        take_all(&mut *call.request, pieces)
    };
    let (whole, cut) = (forwarded(&[body]), forwarded(&[head, tail]));
    assert!(whole == cut || is_same(path, &whole, &cut), "cut elsewhere: {whole:?} and {cut:?}");
}

/// Whether the messages are equal. Their bytes may differ: the entries of a map have no order.
fn is_same(path: &str, one: &Result<Vec<u8>, Code>, other: &Result<Vec<u8>, Code>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => messages(path, one) == messages(path, other),
        _ => false,
    }
}

fn messages(path: &str, frames: &[u8]) -> Vec<DynamicMessage> {
    let pool = THINGS_POOL.with(DescriptorPool::clone);
    let things = pool.get_service_by_name("things.v1.Things").expect("invariant: it is in there");
    // The path of `google.api.http` is that of a method with the same messages.
    let name = path.strip_prefix("/things.v1.Things/").unwrap_or("Echo");
    let mut methods = things.methods();
    let method = methods.find(|method| method.name() == name).expect("invariant: a method's name");
    let (mut decoder, mut frames) = (Decoder::new(usize::MAX), Bytes::copy_from_slice(frames));
    let mut found = Vec::new();
    while let Some(message) = decoder.decode(&mut frames).expect("frames that were made here") {
        let message = DynamicMessage::decode(method.input(), message.into_bytes());
        found.push(message.expect("a message that was made here can be read"));
    }
    found
}

/// The input of the method, up to the end or to an error.
fn take_all(request: &mut dyn RequestCoder, pieces: &[&[u8]]) -> Result<Vec<u8>, Code> {
    let mut pieces = pieces.iter().enumerate();
    let count = pieces.len();
    let mut taken = Vec::new();
    loop {
        match request.take().map_err(|status| status.code)? {
            Taken::Piece(piece) => taken.extend_from_slice(&piece),
            Taken::Long(work) => {
                let made = work.run().map_err(|status| status.code)?;
                taken.extend_from_slice(&made.into_bytes());
            }
            Taken::NeedsMore => {
                let (index, piece) =
                    pieces.next().expect("the last piece leaves nothing to wait for");
                request.give(Bytes::copy_from_slice(piece), index + 1 == count);
            }
            Taken::End => return Ok(taken),
        }
    }
}

fn call(
    path: &str,
    content_type: &'static str,
    refuses_unknown_fields: bool,
) -> Option<Box<Transcoding>> {
    let (head, limits) = (head(path, content_type), limits(refuses_unknown_fields));
    THINGS_TABLE.with(|table| match open(table, &head, &limits, &|_| true) {
        Opened::Call(call) => Some(call),
        Opened::NotOurs(_) | Opened::Answer(_) | Opened::Misspelt(_) | Opened::Refused(_) => None,
    })
}

fn head(path: &str, content_type: &'static str) -> request::Parts {
    let (mut parts, ()) = Request::post(path).body(()).unwrap_or_default().into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    parts
}

fn limits(refuses_unknown_fields: bool) -> Limits {
    Limits {
        message_size: LIMITS_BYTES.into(),
        refuses_unknown_fields,
        cors: Cors::default(),
        keep_alive: Duration::from_secs(10),
        answered_by: HeaderValue::from_static("ingress"),
    }
}

/// The descriptors of `things.v1.Things`.
pub fn things() -> Vec<Bytes> {
    files(THINGS)
}

fn files(set: &[u8]) -> Vec<Bytes> {
    Files::decode(set).map(|set| set.files).unwrap_or_default()
}

fn table(set: &[u8]) -> MethodTable {
    let files = files(set);
    let services = [ServiceRoute { name: "things.v1.Things".into(), methods: None }];
    let source =
        MethodSource { application: "a", deployment: "D", services: &services, files: &files };
    MethodTable::default().next([source])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [fn(&[u8]); 9] =
        [descriptors, template, get, unary_json, rest, json_stream, proto_stream, web_text, answer];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn no_bytes_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
            for parse in ALL {
                parse(&data);
            }
        }
    }

    #[test]
    fn calls_are_calls() {
        for (path, content_type) in [
            ("/things.v1.Things/Echo", "application/json"),
            ("/v1/echo/name:again?tags=a", "application/json"),
            ("/things.v1.Things/Chat", "application/connect+json"),
            ("/things.v1.Things/Chat", "application/connect+proto"),
            ("/things.v1.Things/List", "application/json"),
            ("/things.v1.Things/Chat", "application/grpc-web-text"),
        ] {
            assert!(call(path, content_type, false).is_some(), "{path} {content_type}");
        }
    }

    #[test]
    fn frames_are_compared_as_messages() {
        let path = "/things.v1.Things/Chat";
        // A name and a number, in either order, behind a message with nothing in it.
        let one = [&[0; 9][..], &[5, 10, 1, b'a', 16, 1]].concat();
        let other = [&[0; 9][..], &[5, 16, 1, 10, 1, b'a']].concat();
        assert_eq!(2, messages(path, &one).len());
        assert!(is_same(path, &Ok(one.clone()), &Ok(other)));
        assert!(!is_same(path, &Ok(one), &Ok(vec![0; 5])));
    }
}
