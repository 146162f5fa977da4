//! gRPC message framing: encodes request messages, checks response messages as bytes arrive.
//!
//! Pure: no I/O, no clock. Source of the format: the length-prefixed message of gRPC over HTTP/2.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// Length of the prefix: one flag byte and four bytes of length, big endian.
pub const PREFIX_BYTES: usize = 5;

/// What an answer's messages must look like.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// Number of messages in the answer.
    pub messages: Option<u64>,
    /// Length of every message, in bytes, without the prefix.
    pub message_bytes: Option<usize>,
    /// Content of every message.
    pub content: Option<Bytes>,
}

/// Why an answer is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mismatch {
    #[error("compressed message (flag {0}), none was asked for")]
    Compressed(u8),
    #[error("message of {got} bytes, expected {expected}")]
    Length { got: usize, expected: usize },
    #[error("message content differs from the expected bytes")]
    Content,
    #[error("{got} messages, expected {expected}")]
    Count { got: u64, expected: u64 },
    #[error("the answer ended inside a message")]
    Truncated,
}

impl Mismatch {
    /// A short, stable name for the report.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Compressed(_) => "bad answer: compressed",
            Self::Length { .. } => "bad answer: message length",
            Self::Content => "bad answer: message content",
            Self::Count { .. } => "bad answer: message count",
            Self::Truncated => "bad answer: truncated",
        }
    }
}

/// Put the prefix in front of `message`.
pub fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("invariant: options bound the message size");
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put_slice(message);
    framed.freeze()
}

/// A protobuf message whose field 1 holds `size` bytes (no two neighbours equal).
///
/// With `size` 0 the message is empty, as protobuf leaves default values out.
pub fn sized_message(size: usize) -> Bytes {
    if size == 0 {
        return Bytes::new();
    }
    let mut message = BytesMut::with_capacity(size + 6);
    message.put_u8(0x0a); // field 1, wire type 2 (length-delimited)
    let mut rest = size;
    while rest >= 0x80 {
        message.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    message.put_u8(rest as u8);
    for index in 0..size {
        message.put_u8((index % 251) as u8); // a prime, so that no power of two repeats
    }
    message.freeze()
}

/// Checks one answer while its bytes arrive in pieces of any size.
#[derive(Debug)]
pub struct AnswerCheck<'a> {
    expectation: &'a Expectation,
    prefix: [u8; PREFIX_BYTES],
    /// `prefix_filled <= PREFIX_BYTES`; equal while inside a message.
    prefix_filled: usize,
    message_length: usize,
    /// `message_filled <= message_length`.
    message_filled: usize,
    messages: u64,
    payload_bytes: u64,
}

impl<'a> AnswerCheck<'a> {
    pub fn new(expectation: &'a Expectation) -> Self {
        Self {
            expectation,
            prefix: [0; PREFIX_BYTES],
            prefix_filled: 0,
            message_length: 0,
            message_filled: 0,
            messages: 0,
            payload_bytes: 0,
        }
    }

    /// Complete messages so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Bytes of messages so far, prefixes left out.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Take the next piece of the body.
    pub fn on_data(&mut self, mut data: &[u8]) -> Result<(), Mismatch> {
        while !data.is_empty() {
            data = if self.prefix_filled < PREFIX_BYTES {
                self.take_prefix(data)?
            } else {
                self.take_content(data)?
            };
        }
        Ok(())
    }

    /// Check what only the end of the answer can tell.
    pub fn finish(&self) -> Result<(), Mismatch> {
        if self.prefix_filled != 0 {
            return Err(Mismatch::Truncated);
        }
        match self.expectation.messages {
            Some(expected) if expected != self.messages => {
                Err(Mismatch::Count { got: self.messages, expected })
            }
            _ => Ok(()),
        }
    }

    fn take_prefix<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], Mismatch> {
        let take = data.len().min(PREFIX_BYTES - self.prefix_filled);
        let (head, rest) = data.split_at(take);
        self.prefix[self.prefix_filled..self.prefix_filled + take].copy_from_slice(head);
        self.prefix_filled += take;
        if self.prefix_filled == PREFIX_BYTES {
            let [flag, length @ ..] = self.prefix;
            self.message_length = u32::from_be_bytes(length) as usize;
            self.message_filled = 0;
            self.check_prefix(flag)?;
            self.end_message_if_full();
        }
        Ok(rest)
    }

    fn check_prefix(&self, flag: u8) -> Result<(), Mismatch> {
        if flag != 0 {
            return Err(Mismatch::Compressed(flag));
        }
        let content_bytes = self.expectation.content.as_ref().map(Bytes::len);
        match self.expectation.message_bytes.or(content_bytes) {
            Some(expected) if expected != self.message_length => {
                Err(Mismatch::Length { got: self.message_length, expected })
            }
            _ => Ok(()),
        }
    }

    fn take_content<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], Mismatch> {
        let take = data.len().min(self.message_length - self.message_filled);
        let (head, rest) = data.split_at(take);
        let end = self.message_filled + take;
        if let Some(content) = &self.expectation.content
            && content.get(self.message_filled..end) != Some(head)
        {
            return Err(Mismatch::Content);
        }
        self.message_filled = end;
        self.payload_bytes += take as u64;
        self.end_message_if_full();
        Ok(rest)
    }

    fn end_message_if_full(&mut self) {
        if self.message_filled == self.message_length {
            self.messages += 1;
            self.prefix_filled = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expectation: &Expectation, body: &[u8]) -> Result<u64, Mismatch> {
        let mut results = Vec::new();
        for piece in 1..=body.len().max(1) {
            let mut answer = AnswerCheck::new(expectation);
            let outcome = body
                .chunks(piece)
                .try_for_each(|chunk| answer.on_data(chunk))
                .and_then(|()| answer.finish())
                .map(|()| answer.messages());
            results.push(outcome);
        }
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "depends on pieces: {results:?}"
        );
        results.remove(0)
    }

    #[test]
    fn sized_messages_are_protobuf_with_field_one() {
        assert_eq!(Bytes::new(), sized_message(0));
        assert_eq!(&[0x0a, 2, 0, 1][..], sized_message(2));
        let message = sized_message(300);
        assert_eq!(&[0x0a, 0xac, 0x02, 0, 1][..], &message[..5]);
        assert_eq!(303, message.len());
    }

    #[test]
    fn a_frame_is_flag_length_and_message() {
        assert_eq!(&[0, 0, 0, 0, 2, 7, 8][..], frame(&[7, 8]));
        assert_eq!(&[0, 0, 0, 0, 0][..], frame(&[]));
    }

    #[test]
    fn right_answers_pass_in_pieces_of_any_size() {
        let any = Expectation::default();
        assert_eq!(Ok(0), check(&any, &[]));
        let body = [frame(b"ab"), frame(b""), frame(b"cde")].concat();
        assert_eq!(Ok(3), check(&any, &body));
        let exact = Expectation {
            messages: Some(2),
            message_bytes: Some(2),
            content: Some(Bytes::from_static(b"ab")),
        };
        assert_eq!(Ok(2), check(&exact, &[frame(b"ab"), frame(b"ab")].concat()));
    }

    #[test]
    fn wrong_answers_are_told_apart() {
        let one = Expectation { messages: Some(1), ..Expectation::default() };
        assert_eq!(Err(Mismatch::Count { got: 0, expected: 1 }), check(&one, &[]));
        let two = [frame(b"ab"), frame(b"ab")].concat();
        assert_eq!(Err(Mismatch::Count { got: 2, expected: 1 }), check(&one, &two));
        assert_eq!(Err(Mismatch::Truncated), check(&one, &frame(b"ab")[..6]));
        assert_eq!(Err(Mismatch::Truncated), check(&one, &[0, 0]));
        assert_eq!(Err(Mismatch::Compressed(1)), check(&one, &[1, 0, 0, 0, 1, 9]));
        let sized = Expectation { message_bytes: Some(3), ..Expectation::default() };
        assert_eq!(Err(Mismatch::Length { got: 2, expected: 3 }), check(&sized, &frame(b"ab")));
        let content = Bytes::from_static(b"ac");
        let equal = Expectation { content: Some(content), ..Expectation::default() };
        assert_eq!(Err(Mismatch::Content), check(&equal, &frame(b"ab")));
        assert_eq!(Err(Mismatch::Length { got: 3, expected: 2 }), check(&equal, &frame(b"abc")));
    }
}
