//! Per-message compression: `identity`, `gzip` and `deflate` (zlib).

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{HeaderName, HeaderValue};

use super::framing::Message;
use super::{Code, SizeLimit, Status};

pub const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
pub const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The encodings that this end supports, as a header value.
pub const ACCEPTED: HeaderValue = HeaderValue::from_static("identity,deflate,gzip");

/// grpcio's default level too; measured there, not here.
const LEVEL: Compression = Compression::new(6);

/// The encodings that an end accepts and announces; identity is always one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encodings {
    pub gzip: bool,
    pub deflate: bool,
}

impl Default for Encodings {
    fn default() -> Self {
        Self { gzip: true, deflate: true }
    }
}

impl Encodings {
    /// In the form of `grpc-accept-encoding`.
    pub fn header(self) -> HeaderValue {
        match (self.deflate, self.gzip) {
            (true, true) => ACCEPTED,
            (true, false) => HeaderValue::from_static("identity,deflate"),
            (false, true) => HeaderValue::from_static("identity,gzip"),
            (false, false) => HeaderValue::from_static("identity"),
        }
    }

    /// # Errors
    /// `UNIMPLEMENTED`, with grpc-core's text, for one that is switched off.
    pub fn check(self, encoding: Encoding) -> Result<(), Status> {
        let name = match encoding {
            Encoding::Gzip if !self.gzip => "gzip",
            Encoding::Deflate if !self.deflate => "deflate",
            _ => return Ok(()),
        };
        let text = format!("Compression algorithm '{name}' is disabled.");
        Err(Status::new(Code::Unimplemented, text))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Identity,
    Gzip,
    Deflate,
}

impl Encoding {
    /// The encoding that a `grpc-encoding` header names.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` naming the unknown one and those that are known.
    pub fn from_header(value: Option<&HeaderValue>) -> Result<Self, Status> {
        match value.map(HeaderValue::as_bytes) {
            None | Some(b"identity") => Ok(Encoding::Identity),
            Some(b"gzip") => Ok(Encoding::Gzip),
            Some(b"deflate") => Ok(Encoding::Deflate),
            Some(other) => Err(Status::new(
                Code::Unimplemented,
                format!(
                    "compression \"{}\" is unknown here, use identity, deflate or gzip",
                    String::from_utf8_lossy(other).escape_default()
                ),
            )),
        }
    }

    /// The header value, `None` for identity (which needs no header).
    pub fn header(self) -> Option<HeaderValue> {
        match self {
            Encoding::Identity => None,
            Encoding::Gzip => Some(HeaderValue::from_static("gzip")),
            Encoding::Deflate => Some(HeaderValue::from_static("deflate")),
        }
    }

    /// Whether a `grpc-accept-encoding` list allows this encoding.
    pub fn is_accepted_by(self, list: Option<&HeaderValue>) -> bool {
        let name: &[u8] = match self {
            Encoding::Identity => return true,
            Encoding::Gzip => b"gzip",
            Encoding::Deflate => b"deflate",
        };
        list.is_some_and(|list| {
            list.as_bytes().split(|byte| *byte == b',').any(|part| part.trim_ascii() == name)
        })
    }
}

/// Compresses one message, unless that would not make it smaller: then it is sent plain, as in
/// gRPC's C core.
pub fn compress(encoding: Encoding, message: Message) -> Message {
    let joined = match encoding {
        Encoding::Identity => return message,
        Encoding::Gzip => write_all(GzEncoder::new(Vec::new(), LEVEL), &message).finish(),
        Encoding::Deflate => write_all(ZlibEncoder::new(Vec::new(), LEVEL), &message).finish(),
    };
    let bytes = joined.expect(INFALLIBLE);
    if bytes.len() >= message.len() {
        return message;
    }
    Message { compressed: true, ..Message::from_bytes(bytes.into()) }
}

const INFALLIBLE: &str = "invariant: writing to a Vec cannot fail";

fn write_all<W: Write>(mut encoder: W, message: &Message) -> W {
    for segment in &message.segments {
        encoder.write_all(segment).expect(INFALLIBLE);
    }
    encoder
}

/// Decompresses a received message; `size_limit` bounds the result, so that a small message cannot
/// become a large one.
///
/// # Errors
/// `INTERNAL` for a compressed message under `identity` or data that does not decompress,
/// `RESOURCE_EXHAUSTED` beyond the limit.
pub fn decompress(
    encoding: Encoding,
    message: Message,
    size_limit: impl Into<SizeLimit>,
) -> Result<Message, Status> {
    if !message.compressed {
        return Ok(message);
    }
    let size_limit: SizeLimit = size_limit.into();
    let bytes = message.into_bytes();
    match encoding {
        // Some peers flag an empty message as they flag the others, and compress nothing.
        Encoding::Gzip | Encoding::Deflate if bytes.is_empty() => Ok(Message::default()),
        Encoding::Identity => Err(Status::new(
            Code::Internal,
            "malformed frame: a message is flagged as compressed but grpc-encoding is identity",
        )),
        Encoding::Gzip => {
            size_limit.check("decompressed", gzip_size(&bytes))?;
            read_limited(GzDecoder::new(&bytes[..]), size_limit)
        }
        Encoding::Deflate => read_limited(ZlibDecoder::new(&bytes[..]), size_limit),
    }
}

/// Every gzip member begins with it (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The best compression ratio of deflate (zlib's technical details). Data that claims more was cut
/// off, and its last bytes do not hold a size.
const DEFLATE_RATIO_MAX: usize = 1032;

/// The size of a gzip member according to its last four bytes (RFC 1952, 2.3.1), so that an honest
/// bomb costs nothing. They may lie, and count modulo 2^32.
fn gzip_size(bytes: &[u8]) -> usize {
    let size = bytes.last_chunk().filter(|_| bytes.starts_with(&GZIP_MAGIC));
    let size = size.map_or(0, |size| u32::from_le_bytes(*size) as usize);
    if size / DEFLATE_RATIO_MAX > bytes.len() { 0 } else { size }
}

fn read_limited(reader: impl Read, size_limit: SizeLimit) -> Result<Message, Status> {
    let mut plain = Vec::new();
    reader.take(size_limit.bytes_max as u64 + 1).read_to_end(&mut plain).map_err(|error| {
        Status::new(Code::Internal, format!("malformed frame: cannot decompress: {error}"))
    })?;
    size_limit.check("decompressed", plain.len())?;
    Ok(Message::from_bytes(plain.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn compressed(encoding: Encoding, payload: &'static [u8]) -> Message {
        let parts = payload.chunks(payload.len().div_ceil(3)).map(Bytes::from_static);
        compress(encoding, Message::from_parts(parts))
    }

    #[test]
    fn each_encoding_round_trips() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = compressed(encoding, &[b'x'; 100]);
            assert!(packed.compressed && packed.len() < 100);
            let plain = decompress(encoding, packed, 100).unwrap();
            assert_eq!([b'x'; 100], *plain.into_bytes());
            let read_back = Encoding::from_header(encoding.header().as_ref());
            assert_eq!(Ok(encoding), read_back);
        }
    }

    #[test]
    fn nothing_is_an_empty_message_although_it_is_flagged() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let empty = Message { compressed: true, ..Message::default() };
            assert_eq!("", decompress(encoding, empty, 0).unwrap().into_bytes());
        }
    }

    #[test]
    fn what_compression_would_not_make_smaller_stays_plain() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let message = compressed(encoding, b"short");
            assert!(!message.compressed);
            assert_eq!("short", message.into_bytes());
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let error = decompress(encoding, compressed(encoding, &ZEROS), 1000).unwrap_err();
            assert_eq!(Code::ResourceExhausted, error.code);
        }
        let mut liar = compressed(Encoding::Gzip, &ZEROS).into_bytes().to_vec();
        let size_at = liar.len() - 4;
        liar[size_at..].fill(0);
        let liar = Message { compressed: true, ..Message::from_bytes(liar.into()) };
        let error = decompress(Encoding::Gzip, liar, 1000).unwrap_err();
        assert_eq!(Code::ResourceExhausted, error.code);
    }

    #[test]
    fn broken_or_unannounced_data_is_internal() {
        let broken = Message { compressed: true, ..Message::from_bytes(Bytes::from_static(b"x")) };
        let error = decompress(Encoding::Gzip, broken.clone(), 10).unwrap_err();
        assert_eq!(Code::Internal, error.code);
        let no_gzip = Message::from_bytes(Bytes::from_static(&[0xff; 40]));
        let no_gzip = Message { compressed: true, ..no_gzip };
        assert_eq!(Code::Internal, decompress(Encoding::Gzip, no_gzip, 10).unwrap_err().code);
        let error = decompress(Encoding::Identity, broken, 10).unwrap_err();
        assert_eq!(Code::Internal, error.code);
    }

    #[test]
    fn unknown_encodings_are_unimplemented_and_accept_lists_are_split() {
        let value = HeaderValue::from_static("br");
        assert_eq!(Code::Unimplemented, Encoding::from_header(Some(&value)).unwrap_err().code);
        let list = HeaderValue::from_static("identity, gzip");
        assert!(Encoding::Gzip.is_accepted_by(Some(&list)));
        assert!(!Encoding::Deflate.is_accepted_by(Some(&list)));
        assert!(!Encoding::Gzip.is_accepted_by(None));
    }
}
