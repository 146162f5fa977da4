//! A final status and its form in trailers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use super::Code;

pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The retry delay in milliseconds; negative: never (gRPC A6).
pub const RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// gRPC percent-encodes everything outside the printable ASCII range, and `%` itself.
const MESSAGE_SET: &AsciiSet = &CONTROLS.add(b'%');

/// The limit for a percent-encoded message: clients accept about 8 KiB of metadata by default, and
/// peers end a whole connection over a block that is far too long.
const MESSAGE_BYTES_MAX: usize = 6 * 1024;

/// How a call ended, besides its trailing metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub message: String,
    /// When a retry is worthwhile; `None`: unknown.
    pub pushback: Option<Duration>,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), pushback: None }
    }

    /// The same, with a retry delay.
    #[must_use]
    pub fn with_pushback(self, pushback: Duration) -> Self {
        Self { pushback: Some(pushback), ..self }
    }

    pub fn ok() -> Self {
        Self::new(Code::Ok, String::new())
    }

    /// Whether the deadline has passed.
    pub fn is_late(&self) -> bool {
        self.code == Code::DeadlineExceeded
    }

    /// Writes `grpc-status` and, if there is one, `grpc-message` into `trailers`.
    pub fn write(&self, trailers: &mut HeaderMap) {
        trailers.insert(GRPC_STATUS, HeaderValue::from_static(self.code.as_str()));
        if !self.message.is_empty() {
            trailers.insert(GRPC_MESSAGE, encode_message(&self.message));
        }
        if let Some(pushback) = self.pushback {
            trailers.insert(RETRY_PUSHBACK, whole_millis(pushback).into());
        }
    }

    /// Reads the status of a header block, `None` when it has no `grpc-status`.
    pub fn read(block: &HeaderMap) -> Option<Self> {
        let code = Code::from_header(block.get(GRPC_STATUS)?.as_bytes());
        let message = block.get(GRPC_MESSAGE).map_or_else(String::new, |value| {
            percent_decode(value.as_bytes()).decode_utf8_lossy().into_owned()
        });
        let pushback = block.get(RETRY_PUSHBACK).and_then(read_pushback);
        Some(Self { code, message, pushback })
    }
}

fn read_pushback(value: &HeaderValue) -> Option<Duration> {
    Some(Duration::from_millis(value.to_str().ok()?.parse().ok()?))
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Percent-encodes a message for `grpc-message`; one that is too long is cut off, with a note.
pub fn encode_message(message: &str) -> HeaderValue {
    let mut encoded: String = utf8_percent_encode(message, MESSAGE_SET).collect();
    if encoded.len() > MESSAGE_BYTES_MAX {
        encoded = shorten(message);
    }
    HeaderValue::from_maybe_shared(Bytes::from(encoded))
        .expect("invariant: percent-encoding leaves visible ASCII only")
}

/// Encodes as many whole characters as fit.
fn shorten(message: &str) -> String {
    let mut encoded = String::with_capacity(MESSAGE_BYTES_MAX);
    let end = format!(" ... (cut: {} bytes)", message.len());
    let mut buffer = [0; 4];
    for character in message.chars() {
        let piece = utf8_percent_encode(character.encode_utf8(&mut buffer), MESSAGE_SET);
        let size: usize = piece.clone().map(str::len).sum();
        if encoded.len() + size + end.len() > MESSAGE_BYTES_MAX {
            break;
        }
        encoded.extend(piece);
    }
    encoded + &end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        for text in ["", "plain", "100 %", "tab\t newline\r\n", "snö ☃ 😈", "\u{7f}"] {
            let mut trailers = HeaderMap::new();
            let status = Status::new(Code::Aborted, text);
            status.write(&mut trailers);
            assert_eq!(Some(status), Status::read(&trailers));
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_between_characters() {
        let longest = "x".repeat(MESSAGE_BYTES_MAX);
        assert_eq!(longest.as_bytes(), encode_message(&longest).as_bytes());
        for character in ["x", "☃", "%"] {
            let text = character.repeat(100_000);
            let mut trailers = HeaderMap::new();
            Status::new(Code::Internal, text.clone()).write(&mut trailers);
            assert!(trailers[GRPC_MESSAGE].len() <= MESSAGE_BYTES_MAX);
            let read = Status::read(&trailers).expect("a status").message;
            let (kept, end) = read.split_once(" ... ").expect("a mark");
            assert!(text.starts_with(kept) && kept.len() > 1_000, "{}", kept.len());
            assert_eq!(format!("(cut: {} bytes)", text.len()), end);
        }
    }

    #[test]
    fn a_block_without_grpc_status_has_no_status() {
        assert_eq!(None, Status::read(&HeaderMap::new()));
    }
}
