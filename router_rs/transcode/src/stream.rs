//! Connect's streams: envelopes, which are gRPC's frames except for a last one with the status.

use bytes::{Buf, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use prost_reflect::DescriptorPool;
use router_protocol::grpc::compress::decompress;
use router_protocol::grpc::{
    Code, Decoder, Encoding, GRPC_ENCODING, Message, PREFIX_BYTES, SizeLimit, Status,
};
use serde_json::{Map, Value, json};

use super::coder::{AnswerCoder, Failure, Outbox, RequestCoder, Taken};
use super::connect_type::ConnectType;
use super::cors::Grant;
use super::head::answer_head;
use super::json::{JsonType, frame_of};
use super::status::ErrorForm;
use super::unary::{end_status, of_client, remove_grpc};
use super::work::{Work, is_long};

pub(super) const CONNECT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");

/// The envelope that ends an answer has this flag.
pub(super) const END_FLAG: u8 = 2;

fn truncated() -> Status {
    Status::new(Code::InvalidArgument, "malformed body: it ends inside of an envelope")
}

/// Counts messages of a request that may have only one. Another number is an error, as in gRPC and
/// as the protocol's own conformance suite requires.
#[derive(Debug)]
struct Count {
    is_unary: bool,
    messages: u64,
}

impl Count {
    fn add(&mut self) -> Result<(), Status> {
        self.messages += 1;
        if self.is_unary && self.messages > 1 {
            let text = "malformed body: the method takes one message, there are more";
            return Err(Status::new(Code::Unimplemented, text));
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Status> {
        if self.is_unary && self.messages == 0 {
            let text = "malformed body: the method takes one message, there is none";
            return Err(Status::new(Code::Unimplemented, text));
        }
        Ok(())
    }
}

/// A stream of protobuf messages, which is passed on as it comes; only its envelopes are checked.
#[derive(Debug)]
pub(super) struct ProtoStreamRequest {
    envelopes: Envelopes,
    unread: Bytes,
    is_complete: bool,
}

/// Follows envelopes through pieces with any boundaries.
#[derive(Debug)]
struct Envelopes {
    count: Count,
    size_limit: SizeLimit,
    is_compressible: bool,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    /// The bytes left of the message that has begun.
    missing: usize,
}

impl ProtoStreamRequest {
    /// `is_unary`: it may have one message only.
    pub(super) fn new(encoding: Encoding, is_unary: bool, size_limit: SizeLimit) -> Self {
        let envelopes = Envelopes {
            count: Count { is_unary, messages: 0 },
            size_limit,
            is_compressible: encoding != Encoding::Identity,
            prefix: [0; PREFIX_BYTES],
            prefix_filled: 0,
            missing: 0,
        };
        Self { envelopes, unread: Bytes::new(), is_complete: false }
    }
}

impl Envelopes {
    fn follow(&mut self, mut piece: &[u8]) -> Result<(), Status> {
        while !piece.is_empty() {
            if self.missing > 0 {
                let skip = piece.len().min(self.missing);
                self.missing -= skip;
                piece.advance(skip);
                continue;
            }
            let take = piece.len().min(PREFIX_BYTES - self.prefix_filled);
            self.prefix[self.prefix_filled..self.prefix_filled + take]
                .copy_from_slice(&piece[..take]);
            piece.advance(take);
            self.prefix_filled += take;
            if self.prefix_filled == PREFIX_BYTES {
                self.prefix_filled = 0;
                self.begin()?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Status> {
        let [flags, length @ ..] = self.prefix;
        check_flags(flags, self.is_compressible)?;
        self.missing = u32::from_be_bytes(length) as usize;
        self.size_limit.check("received", self.missing)?;
        self.count.add()
    }

    fn finish(&self) -> Result<(), Status> {
        if self.prefix_filled > 0 || self.missing > 0 {
            return Err(truncated());
        }
        self.count.finish()
    }
}

/// The protocol's conformance suite requires this code, as gRPC does for its frames.
fn not_compressible() -> Status {
    let text = "malformed envelope: it is compressed, but connect-content-encoding names nothing";
    Status::new(Code::Internal, text)
}

fn check_flags(flags: u8, is_compressible: bool) -> Result<(), Status> {
    let text = match flags {
        0 => return Ok(()),
        1 if is_compressible => return Ok(()),
        1 => return Err(not_compressible()),
        END_FLAG => "malformed envelope: a request has no end-of-stream envelope".into(),
        _ => format!("malformed envelope: flags are {flags}, allowed are 0 and 1"),
    };
    Err(Status::new(Code::InvalidArgument, text))
}

impl RequestCoder for ProtoStreamRequest {
    fn give(&mut self, bytes: Bytes, is_last: bool) {
        self.unread = bytes;
        self.is_complete = is_last;
    }

    fn take(&mut self) -> Result<Taken, Status> {
        let bytes = std::mem::take(&mut self.unread);
        self.envelopes.follow(&bytes)?;
        if !bytes.is_empty() {
            return Ok(Taken::Piece(bytes));
        }
        if !self.is_complete {
            return Ok(Taken::NeedsMore);
        }
        self.envelopes.finish().map(|()| Taken::End)
    }

    fn unread_bytes(&self) -> usize {
        self.unread.len()
    }
}

/// A stream of JSON messages, converted one by one.
#[derive(Debug)]
pub(super) struct JsonStreamRequest {
    json: JsonType,
    encoding: Encoding,
    size_limit: SizeLimit,
    decoder: Decoder,
    count: Count,
    unread: Bytes,
    is_complete: bool,
}

impl JsonStreamRequest {
    pub(super) fn new(
        json: JsonType,
        encoding: Encoding,
        is_unary: bool,
        size_limit: SizeLimit,
    ) -> Self {
        let count = Count { is_unary, messages: 0 };
        let decoder = Decoder::new(size_limit);
        let unread = Bytes::new();
        Self { json, encoding, size_limit, decoder, count, unread, is_complete: false }
    }
}

impl RequestCoder for JsonStreamRequest {
    fn give(&mut self, bytes: Bytes, is_last: bool) {
        self.unread = bytes;
        self.is_complete = is_last;
    }

    fn take(&mut self) -> Result<Taken, Status> {
        while !self.unread.is_empty() {
            let Some(message) = self.decoder.decode(&mut self.unread).map_err(of_client)? else {
                continue;
            };
            if message.compressed && self.encoding == Encoding::Identity {
                return Err(not_compressible());
            }
            self.count.add()?;
            let is_long = is_long(&message);
            let (json, encoding, size_limit) = (self.json.clone(), self.encoding, self.size_limit);
            let make = move || {
                let message = decompress(encoding, message, size_limit).map_err(of_client)?;
                json.read(&message.into_bytes()).map(|message| frame_of(&[&message]))
            };
            return if is_long {
                Ok(Taken::Long(Work::new(move || make().map(Message::from_bytes))))
            } else {
                make().map(Taken::Piece)
            };
        }
        if !self.is_complete {
            return Ok(Taken::NeedsMore);
        }
        if !self.decoder.is_between_messages() {
            return Err(truncated());
        }
        self.count.finish().map(|()| Taken::End)
    }

    fn unread_bytes(&self) -> usize {
        self.unread.len()
    }
}

/// The answer's messages in envelopes, and one with its end.
#[derive(Debug)]
pub(super) struct StreamAnswer {
    /// `None`: protobuf, which is passed on as it comes.
    json: Option<JsonType>,
    pool: Option<DescriptorPool>,
    grant: Grant,
    size_limit: SizeLimit,
    decoder: Decoder,
    encoding: Encoding,
    has_head: bool,
    unread: Bytes,
}

impl StreamAnswer {
    pub(super) fn new(
        json: Option<JsonType>,
        pool: Option<DescriptorPool>,
        grant: Grant,
        size_limit: SizeLimit,
    ) -> Self {
        Self {
            json,
            pool,
            grant,
            size_limit,
            decoder: Decoder::new(size_limit),
            encoding: Encoding::Identity,
            has_head: false,
            unread: Bytes::new(),
        }
    }

    fn write_head(&mut self, mut headers: HeaderMap, outbox: &mut Outbox) {
        let encoding = headers.get(GRPC_ENCODING).cloned();
        self.encoding = Encoding::from_header(encoding.as_ref()).unwrap_or_default();
        remove_grpc(&mut headers);
        let stream = match &self.json {
            Some(_) => ConnectType::StreamJson,
            None => ConnectType::StreamProto,
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(stream.of_answer()));
        if let Some(encoding) = encoding.filter(|_| self.json.is_none()) {
            headers.insert(CONNECT_ENCODING, encoding);
        }
        self.grant.write(&mut headers);
        self.has_head = true;
        outbox.head = Some(answer_head(StatusCode::OK, headers));
    }

    fn end(&mut self, status: &Status, trailers: &HeaderMap, outbox: &mut Outbox) {
        if !self.has_head {
            self.write_head(HeaderMap::new(), outbox);
        }
        let mut end = Map::new();
        if status.code != Code::Ok {
            let error = ErrorForm::Connect.write(status, trailers, self.pool.as_ref());
            end.insert("error".into(), error);
        }
        let metadata = metadata(trailers);
        if !metadata.is_empty() {
            end.insert("metadata".into(), metadata.into());
        }
        outbox.push(envelope(END_FLAG, Value::from(end).to_string().as_bytes()));
        outbox.is_ended = true;
    }
}

impl AnswerCoder for StreamAnswer {
    fn head(&mut self, headers: HeaderMap, outbox: &mut Outbox) {
        self.write_head(headers, outbox);
    }

    fn give(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        let Some(json) = &self.json else {
            outbox.push(std::mem::take(&mut self.unread));
            return Ok(true);
        };
        if let Some(message) = self.decoder.decode(&mut self.unread)? {
            let is_long = is_long(&message);
            let (json, encoding, size_limit) = (json.clone(), self.encoding, self.size_limit);
            let make = move || {
                let message = decompress(encoding, message, size_limit)?;
                let json = json.write(&message.into_bytes())?;
                Ok(Message::from_bytes(envelope(0, &json)))
            };
            if is_long {
                outbox.work = Some(Work::new(make));
            } else {
                self.resume(make()?, outbox);
            }
        }
        Ok(true)
    }

    fn resume(&mut self, made: Message, outbox: &mut Outbox) {
        outbox.push(made.into_bytes());
    }

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        self.end(&end_status(&trailers), &trailers, outbox);
        Ok(())
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        if !self.has_head {
            self.write_head(failure.headers.clone(), outbox);
        }
        self.end(failure.status, &HeaderMap::new(), outbox);
    }
}

pub(super) fn envelope(flags: u8, bytes: &[u8]) -> Bytes {
    let mut envelope = BytesMut::with_capacity(PREFIX_BYTES + bytes.len());
    router_protocol::grpc::framing::put_prefix(&mut envelope, bytes.len());
    envelope[0] = flags;
    envelope.extend_from_slice(bytes);
    envelope.freeze()
}

/// Trailing metadata as JSON: each name with all its values.
fn metadata(trailers: &HeaderMap) -> Map<String, Value> {
    let mut trailers = trailers.clone();
    remove_grpc(&mut trailers);
    let values = |name: &HeaderName| -> Value {
        let values = trailers.get_all(name).iter();
        values.map(|value| json!(String::from_utf8_lossy(value.as_bytes()))).collect()
    };
    trailers.keys().map(|name| (name.as_str().to_owned(), values(name))).collect()
}
