//! Writes messages of protobuf, field by field (<https://protobuf.dev/programming-guides/encoding>).

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

/// A message that is being written. Callers omit fields without a value.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed_64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED_64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed_32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED_32);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH_DELIMITED);
        let start = self.bytes.len();
        write(self);
        let end = self.bytes.len();
        // The length precedes the message, and is known only now.
        self.varint((end - start) as u64);
        let length_bytes = self.bytes.len() - end;
        self.bytes[start..].rotate_right(length_bytes);
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// The same field numbers as written below.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Read {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(fixed64, tag = "2")]
        fixed_64: u64,
        #[prost(fixed32, tag = "16")]
        fixed_32: u32,
        #[prost(bytes = "vec", tag = "4")]
        bytes: Vec<u8>,
        #[prost(message, optional, boxed, tag = "5")]
        inner: Option<Box<Read>>,
    }

    fn write(read: &Read, message: &mut Message) {
        message.number(1, read.number);
        message.fixed_64(2, read.fixed_64);
        message.fixed_32(16, read.fixed_32);
        message.bytes(4, &read.bytes);
        if let Some(inner) = &read.inner {
            message.message(5, |message| write(inner, message));
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(
            number: u64, fixed_64: u64, fixed_32: u32,
            // Lengths on both sides of the limits of one, two and three bytes.
            sizes in proptest::collection::vec(0_usize..20_000, 0..4),
        ) {
            let mut read = Read { number, fixed_64, fixed_32, ..Read::default() };
            for size in sizes {
                let outer = Read { number, bytes: vec![7; size], ..Read::default() };
                read = Read { inner: Some(Box::new(read)), ..outer };
            }
            let mut message = Message::default();
            write(&read, &mut message);
            assert_eq!(Ok(read), Read::decode(&*message.into_bytes()));
        }
    }
}
