//! JSON that must be kept until its type is known.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::well_known::TYPE;

/// Any JSON. Unlike `serde_json::Value` it keeps duplicate names, so that they can be refused.
#[derive(Debug)]
pub(super) enum Buffered {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Buffered>),
    /// `@type` comes first if it is present, so that a second reading need not keep anything.
    Map(Vec<(String, Buffered)>),
}

impl<'de> Deserialize<'de> for Buffered {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Keep)
    }
}

struct Keep;

impl<'de> Visitor<'de> for Keep {
    type Value = Buffered;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Buffered, E> {
        Ok(Buffered::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Buffered, E> {
        Ok(Buffered::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Buffered, E> {
        Ok(Buffered::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Buffered, E> {
        Ok(Buffered::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Buffered, E> {
        Ok(Buffered::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Buffered, E> {
        Ok(Buffered::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Buffered, E> {
        Ok(Buffered::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Buffered, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element()? {
            list.push(element);
        }
        Ok(Buffered::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Buffered, A::Error> {
        let mut entries = Vec::<(String, Buffered)>::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        if let Some(at) = entries.iter().position(|(name, _)| name == TYPE) {
            entries[..=at].rotate_right(1);
        }
        Ok(Buffered::Map(entries))
    }
}

impl<E: Error> IntoDeserializer<'_, E> for Buffered {
    type Deserializer = Replay<E>;

    fn into_deserializer(self) -> Replay<E> {
        Replay(self, PhantomData)
    }
}

/// Reads the kept JSON, as `serde_json` would.
pub(super) struct Replay<E>(Buffered, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for Replay<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.0 {
            Buffered::Null => visitor.visit_unit(),
            Buffered::Bool(value) => visitor.visit_bool(value),
            Buffered::Signed(value) => visitor.visit_i64(value),
            Buffered::Unsigned(value) => visitor.visit_u64(value),
            Buffered::Float(value) => visitor.visit_f64(value),
            Buffered::Text(text) => visitor.visit_string(text),
            Buffered::List(list) => visitor.visit_seq(SeqDeserializer::new(list.into_iter())),
            Buffered::Map(entries) => visitor.visit_map(MapDeserializer::new(entries.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.0 {
            Buffered::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
