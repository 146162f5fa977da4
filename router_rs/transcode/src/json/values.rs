//! `google.protobuf.Struct`, `ListValue` and `Value`: any JSON, encoded as messages. Clients can
//! put any amount of data into them, so both directions are converted here without a message in
//! between.

use std::fmt;

use prost::encoding::{WireType, encode_key};
use prost_reflect::Kind;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::key::{Entries, KeySeed};
use super::wire::{delimited, delimited_field, text_field};
use crate::well_known::Holder;

/// The numbers of `google/protobuf/struct.proto`.
pub(super) const FIELDS: u32 = 1;
pub(super) const ENTRY_KEY: u32 = 1;
pub(super) const ENTRY_VALUE: u32 = 2;
pub(super) const VALUES: u32 = 1;
pub(super) const NULL: u32 = 1;
pub(super) const NUMBER: u32 = 2;
pub(super) const STRING: u32 = 3;
pub(super) const BOOL: u32 = 4;
pub(super) const STRUCT: u32 = 5;
pub(super) const LIST: u32 = 6;

impl Holder {
    /// Writes the message for the JSON.
    pub(super) fn read<'de, D: Deserializer<'de>>(
        self,
        json: D,
        out: &mut Vec<u8>,
    ) -> Result<(), D::Error> {
        match self {
            Self::Struct => json.deserialize_map(StructVisitor(out)),
            Self::List => json.deserialize_seq(ListVisitor(out)),
            Self::Value => json.deserialize_any(ValueSeed(out)),
        }
    }
}

struct StructVisitor<'a>(&'a mut Vec<u8>);

impl<'de> Visitor<'de> for StructVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut entries = Entries::new(FIELDS, &Kind::String);
        while entries.write(self.0, |out| {
            let key = KeySeed { number: ENTRY_KEY, kind: &Kind::String, out: &mut *out };
            if map.next_key_seed(key)?.is_none() {
                return Ok(None);
            }
            let key_end = out.len();
            encode_key(ENTRY_VALUE, WireType::LengthDelimited, out);
            delimited(out, |out| map.next_value_seed(ValueSeed(out)))?;
            Ok(Some((key_end, true)))
        })? {}
        entries.check(self.0).map_err(A::Error::custom)
    }
}

struct ListVisitor<'a>(&'a mut Vec<u8>);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let out = self.0;
        loop {
            let start = out.len();
            let element =
                delimited_field(VALUES, out, |out| seq.next_element_seed(ValueSeed(out)))?;
            if element.is_none() {
                out.truncate(start);
                return Ok(());
            }
        }
    }
}

/// Writes the next `Value`.
pub(super) struct ValueSeed<'a>(pub &'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        encode_key(NULL, WireType::Varint, self.0);
        self.0.push(0);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        encode_key(BOOL, WireType::Varint, self.0);
        self.0.push(value.into());
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        encode_key(NUMBER, WireType::SixtyFourBit, self.0);
        self.0.extend(value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        text_field(STRING, text, self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        delimited_field(LIST, self.0, |out| ListVisitor(out).visit_seq(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        delimited_field(STRUCT, self.0, |out| StructVisitor(out).visit_map(map))
    }
}
