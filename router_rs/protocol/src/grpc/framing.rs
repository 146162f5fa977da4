//! Length-prefixed messages: extracting them from DATA frames, and encoding them.

use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::{Code, SizeLimit, Status};

/// One flag byte and four length bytes precede every message.
pub const PREFIX_BYTES: usize = 5;

/// A message in consecutive pieces that are not joined: parts of the connection's read buffers, or
/// the parts that a sender gave.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub segments: SmallVec<[Bytes; 1]>,
    pub compressed: bool,
}

impl Message {
    pub fn from_bytes(bytes: Bytes) -> Self {
        let mut segments = SmallVec::new();
        if !bytes.is_empty() {
            segments.push(bytes);
        }
        Self { segments, compressed: false }
    }

    /// A plain message of parts.
    pub fn from_parts(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let segments = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self { segments, compressed: false }
    }

    pub fn len(&self) -> usize {
        self.segments.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Copies the pieces into `target`, which has the message's length.
    pub fn copy_to(&self, mut target: &mut [u8]) {
        for segment in &self.segments {
            let (head, rest) = target.split_at_mut(segment.len());
            head.copy_from_slice(segment);
            target = rest;
        }
    }

    /// The joined bytes; copies only when there is more than one piece.
    pub fn into_bytes(mut self) -> Bytes {
        match self.segments.len() {
            0 => Bytes::new(),
            1 => self.segments.remove(0),
            _ => {
                let mut joined = vec![0; self.len()];
                self.copy_to(&mut joined);
                joined.into()
            }
        }
    }
}

/// Extracts messages from a byte stream. A message's size is checked before it is collected.
#[derive(Debug)]
pub struct Decoder {
    size_limit: SizeLimit,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    missing: usize,
    partial: Message,
}

impl Decoder {
    /// `size_limit` applies to one message as it is sent (compressed).
    pub fn new(size_limit: impl Into<SizeLimit>) -> Self {
        Self {
            size_limit: size_limit.into(),
            prefix: [0; PREFIX_BYTES],
            prefix_filled: 0,
            missing: 0,
            partial: Message::default(),
        }
    }

    /// No byte of a further message has come: the only place where a stream may end.
    pub fn is_between_messages(&self) -> bool {
        self.prefix_filled == 0
    }

    /// Takes the next whole message out of `chunk`, or all of `chunk`.
    ///
    /// # Errors
    /// `INTERNAL` for a flag other than 0 and 1, `RESOURCE_EXHAUSTED` for a length over the limit.
    pub fn decode(&mut self, chunk: &mut Bytes) -> Result<Option<Message>, Status> {
        if self.prefix_filled < PREFIX_BYTES {
            let take = chunk.len().min(PREFIX_BYTES - self.prefix_filled);
            self.prefix[self.prefix_filled..self.prefix_filled + take]
                .copy_from_slice(&chunk[..take]);
            chunk.advance(take);
            self.prefix_filled += take;
            if self.prefix_filled < PREFIX_BYTES {
                return Ok(None);
            }
            self.begin_message()?;
        }
        let take = chunk.len().min(self.missing);
        if take > 0 {
            self.partial.segments.push(chunk.split_to(take));
            self.missing -= take;
        }
        if self.missing > 0 {
            return Ok(None);
        }
        self.prefix_filled = 0;
        Ok(Some(std::mem::take(&mut self.partial)))
    }

    fn begin_message(&mut self) -> Result<(), Status> {
        let [flag, length @ ..] = self.prefix;
        let size = u32::from_be_bytes(length) as usize;
        self.partial.compressed = match flag {
            0 => false,
            1 => true,
            _ => {
                return Err(Status::new(
                    Code::Internal,
                    format!("malformed frame: compression flag is {flag}, allowed are 0 and 1"),
                ));
            }
        };
        self.size_limit.check("received", size)?;
        self.missing = size;
        Ok(())
    }
}

impl From<Bytes> for Framed {
    fn from(bytes: Bytes) -> Self {
        Self::raw(bytes.into())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::from_bytes(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_bytes(bytes.into())
    }
}

/// A message's prefix.
///
/// The message is shorter than 4 GiB: sizes are limited where messages enter.
pub fn prefix(message: &Message) -> [u8; PREFIX_BYTES] {
    let length = u32::try_from(message.len()).expect("invariant: message below 4 GiB");
    let [a, b, c, d] = length.to_be_bytes();
    [u8::from(message.compressed), a, b, c, d]
}

/// The prefix of an uncompressed message of `size` bytes, as [`prefix`].
pub fn put_prefix(frame: &mut BytesMut, size: usize) {
    frame.put_u8(0);
    frame.put_u32(u32::try_from(size).expect("invariant: message below 4 GiB"));
}

/// A message of protobuf with its prefix, in one piece.
pub fn frame(message: &impl prost::Message) -> Bytes {
    let size = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + size);
    put_prefix(&mut frame, size);
    message.encode(&mut frame).expect("invariant: a BytesMut grows");
    frame.freeze()
}

/// A message with its prefix, to be written without joining anything.
#[derive(Debug)]
pub struct Framed {
    prefix: [u8; PREFIX_BYTES],
    prefix_sent: u8,
    segments: SmallVec<[Bytes; 1]>,
    /// The first segment that is not completely sent; those before it are freed.
    current: usize,
    /// The bytes left in all segments.
    unsent_bytes: usize,
}

impl Framed {
    /// As for [`prefix`], the message is shorter than 4 GiB.
    pub fn new(message: Message) -> Self {
        let prefix = prefix(&message);
        let unsent_bytes = message.len();
        Self { prefix, prefix_sent: 0, segments: message.segments, current: 0, unsent_bytes }
    }

    /// Bytes without a prefix: a piece of a plain HTTP body.
    pub fn raw(bytes: Message) -> Self {
        let unsent_bytes = bytes.len();
        let prefix_sent = PREFIX_BYTES as u8;
        let segments = bytes.segments;
        Self { prefix: [0; PREFIX_BYTES], prefix_sent, segments, current: 0, unsent_bytes }
    }

    /// The rest of it, in pieces.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        let prefix = Bytes::copy_from_slice(&self.prefix[usize::from(self.prefix_sent)..]);
        let segments = self.segments.into_iter().skip(self.current);
        std::iter::once(prefix).chain(segments).filter(|piece| !piece.is_empty())
    }

    fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let prefix = &self.prefix[usize::from(self.prefix_sent)..];
        let segments = self.segments[self.current..].iter().map(|segment| &segment[..]);
        std::iter::once(prefix).chain(segments).filter(|part| !part.is_empty())
    }
}

impl Buf for Framed {
    fn remaining(&self) -> usize {
        PREFIX_BYTES - usize::from(self.prefix_sent) + self.unsent_bytes
    }

    fn chunk(&self) -> &[u8] {
        self.unsent().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, target: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, part) in target.iter_mut().zip(self.unsent()) {
            *slot = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        let of_prefix = count.min(PREFIX_BYTES - usize::from(self.prefix_sent));
        self.prefix_sent += of_prefix as u8;
        let mut left = count - of_prefix;
        self.unsent_bytes -= left;
        while left > 0 {
            let segment = &mut self.segments[self.current];
            let taken = left.min(segment.len());
            segment.advance(taken);
            left -= taken;
            if segment.is_empty() {
                // Its memory goes back to its owner before the rest of the message is sent.
                *segment = Bytes::new();
                self.current += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use bytes::BufMut;
    use proptest::prelude::*;

    fn decode_all(chunks: &[Bytes], size_max: usize) -> Result<Vec<(bool, Bytes)>, Status> {
        let mut decoder = Decoder::new(size_max);
        let mut messages = Vec::new();
        for chunk in chunks {
            let mut chunk = chunk.clone();
            while let Some(message) = decoder.decode(&mut chunk)? {
                messages.push((message.compressed, message.into_bytes()));
                if chunk.is_empty() {
                    break;
                }
            }
        }
        assert!(decoder.is_between_messages());
        Ok(messages)
    }

    proptest! {
        #[test]
        fn any_cutting_of_the_stream_gives_the_same_messages(
            messages in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cuts in prop::collection::vec(1_usize..9, 1..80),
        ) {
            let mut wire = Vec::new();
            for (compressed, payload) in &messages {
                let segments = Message::from_parts(payload.chunks(7).map(Bytes::copy_from_slice));
                wire.put(Framed::new(Message { compressed: *compressed, ..segments }));
            }
            let mut chunks = Vec::new();
            let mut wire = Bytes::from(wire);
            for cut in cuts.into_iter().cycle() {
                if wire.is_empty() {
                    break;
                }
                chunks.push(wire.split_to(cut.min(wire.len())));
            }
            let expected: Vec<(bool, Bytes)> =
                messages.into_iter().map(|(flag, payload)| (flag, payload.into())).collect();
            prop_assert_eq!(expected, decode_all(&chunks, 40).unwrap());
        }
    }

    #[test]
    fn a_bad_flag_is_internal_and_a_long_message_exhausts() {
        let bad_flag = decode_all(&[Bytes::from_static(&[2, 0, 0, 0, 0])], 4);
        assert_eq!(Code::Internal, bad_flag.unwrap_err().code);

        let too_long = decode_all(&[Bytes::from_static(&[0, 0, 0, 0, 5])], 4).unwrap_err();
        assert_eq!(Code::ResourceExhausted, too_long.code);
        assert!(too_long.message.contains("5 bytes") && too_long.message.contains("4 bytes"));
    }

    #[test]
    fn vectored_chunks_cover_what_remains() {
        let mut framed = Framed::new(Message::from_bytes(Bytes::from_static(b"abc")));
        framed.advance(3);
        let mut slices = [IoSlice::new(&[]), IoSlice::new(&[])];
        assert_eq!(2, framed.chunks_vectored(&mut slices));
        assert_eq!(5, slices[0].len() + slices[1].len());
        framed.advance(4);
        assert_eq!(b"c", framed.chunk());
    }

    #[test]
    fn a_sent_part_is_given_back_while_others_wait() {
        let (first, second) = (Arc::new(*b"abc"), Arc::new(*b"def"));
        let parts = [&first, &second].map(|part| Bytes::from_owner(Owned(Arc::clone(part))));
        let mut framed = Framed::new(Message::from_parts(parts));
        framed.advance(PREFIX_BYTES + 2);
        assert_eq!((2, 2), (Arc::strong_count(&first), Arc::strong_count(&second)));
        framed.advance(2);
        assert_eq!((1, 2), (Arc::strong_count(&first), Arc::strong_count(&second)));
        assert_eq!((2, &b"ef"[..]), (framed.remaining(), framed.chunk()));
        framed.advance(2);
        assert_eq!((0, &b""[..]), (framed.remaining(), framed.chunk()));
        assert_eq!(1, Arc::strong_count(&second));
    }

    struct Owned(Arc<[u8; 3]>);

    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &*self.0
        }
    }
}
