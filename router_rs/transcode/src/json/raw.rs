//! Protobuf's binary form without interpretation: keys and values, one after the other.

use prost::DecodeError;
use prost::encoding::{WireType, decode_key, decode_varint};

/// Why no JSON was written.
pub(super) enum Unwritten {
    /// Its fields must be sorted first.
    Unusual,
    /// It is malformed, or has no form in JSON.
    Wrong(String),
}

pub(super) type Written = Result<(), Unwritten>;

impl From<DecodeError> for Unwritten {
    fn from(error: DecodeError) -> Self {
        Self::Wrong(error.to_string())
    }
}

pub(super) fn wrong(text: &str) -> Unwritten {
    Unwritten::Wrong(text.to_owned())
}

/// Reads the binary form from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub &'a [u8]);

/// One value, uninterpreted.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    Varint(u64),
    SixtyFourBit([u8; 8]),
    ThirtyTwoBit([u8; 4]),
    Bytes(&'a [u8]),
    /// A group between its markers.
    Group(&'a [u8]),
}

/// The nesting limit for messages, including those in `Any`, and groups; the same as `prost`'s.
const DEPTH_MAX: usize = 100;

/// `depth`: how many messages enclose this one.
pub(super) fn check_depth(depth: usize) -> Written {
    if depth > DEPTH_MAX {
        return Err(wrong(&format!("it is nested deeper than {DEPTH_MAX} messages")));
    }
    Ok(())
}

impl<'a> Reader<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The number and the value of the next field.
    pub(super) fn field(&mut self) -> Result<(u32, Raw<'a>), Unwritten> {
        let (number, wire_type) = decode_key(&mut self.0)?;
        let raw = match wire_type {
            WireType::StartGroup => Raw::Group(self.group(number)?),
            wire_type => self.value(wire_type)?,
        };
        Ok((number, raw))
    }

    /// The content of a group that has begun.
    fn group(&mut self, number: u32) -> Result<&'a [u8], Unwritten> {
        let start = self.0;
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let end = start.len() - self.0.len();
            match decode_key(&mut self.0)? {
                (number, WireType::EndGroup) if number == *innermost => {
                    open.pop();
                    if open.is_empty() {
                        return Ok(&start[..end]);
                    }
                }
                (number, WireType::StartGroup) if open.len() < DEPTH_MAX => open.push(number),
                (_, wire_type) => {
                    self.value(wire_type)?;
                }
            }
        }
        unreachable!("invariant: the group that has begun is open until it returns")
    }

    /// The number of the next field, without consuming it; 0 at the end.
    pub(super) fn next_number(mut self) -> Result<u32, Unwritten> {
        if self.is_empty() { Ok(0) } else { Ok(decode_key(&mut self.0)?.0) }
    }

    pub(super) fn value(&mut self, wire_type: WireType) -> Result<Raw<'a>, Unwritten> {
        Ok(match wire_type {
            WireType::Varint => Raw::Varint(decode_varint(&mut self.0)?),
            WireType::SixtyFourBit => Raw::SixtyFourBit(self.array()?),
            WireType::ThirtyTwoBit => Raw::ThirtyTwoBit(self.array()?),
            WireType::LengthDelimited => {
                let size = decode_varint(&mut self.0)?;
                let size = usize::try_from(size).map_err(|_| wrong("buffer underflow"))?;
                Raw::Bytes(self.take(size)?)
            }
            WireType::StartGroup | WireType::EndGroup => return Err(wrong("invalid group")),
        })
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], Unwritten> {
        let Some((taken, rest)) = self.0.split_at_checked(size) else {
            return Err(wrong("buffer underflow"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Unwritten> {
        Ok(self.take(SIZE)?.try_into().expect("invariant: as many as were taken"))
    }
}
