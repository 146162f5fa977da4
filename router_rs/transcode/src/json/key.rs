//! Keys of maps.

use std::fmt;

use prost::encoding::encode_key;
use prost_reflect::Kind;
use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::scalars::{wire_type, write_key};

/// Writes the key of a map that comes next.
pub(super) struct KeySeed<'a> {
    pub number: u32,
    pub kind: &'a Kind,
    pub out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        encode_key(self.number, wire_type(self.kind), self.out);
        write_key(self.kind, text, self.out).map_err(E::custom)
    }
}
