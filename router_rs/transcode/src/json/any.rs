//! `google.protobuf.Any`: JSON has the message in it unpacked, with its type as `@type`.
//!
//! The type may come after fields of that type, which are kept until then and read again.

use prost_reflect::{DescriptorPool, MessageDescriptor};
use serde::de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess};

use super::buffered::Buffered;
use crate::well_known::{TYPE, VALUE, type_of};

/// The numbers of `google/protobuf/any.proto`.
pub(super) const TYPE_URL_NUMBER: u32 = 1;
pub(super) const VALUE_NUMBER: u32 = 2;

/// An `Any` whose type is known.
pub(super) struct Opened<A> {
    pub type_url: String,
    pub descriptor: MessageDescriptor,
    pub packed: Packed<A>,
}

impl<'de, A: MapAccess<'de>> Opened<A> {
    /// Reads up to the type; `None`: it is empty.
    pub(super) fn new(pool: &DescriptorPool, mut map: A) -> Result<Option<Self>, A::Error> {
        let mut before = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name != TYPE {
                before.push((name, map.next_value()?));
                continue;
            }
            let type_url: String = map.next_value()?;
            let descriptor = type_of(pool, &type_url).ok_or_else(|| {
                A::Error::custom(format_args!("the type {type_url:?} is unknown here"))
            })?;
            let packed = Packed { before: before.into_iter(), value: None, rest: map };
            return Ok(Some(Self { type_url, descriptor, packed }));
        }
        if before.is_empty() {
            return Ok(None);
        }
        Err(A::Error::custom("an Any that is not empty needs \"@type\", the type of what is in it"))
    }
}

/// All members of an `Any` but its type: those before it, and those after.
pub(super) struct Packed<A> {
    before: std::vec::IntoIter<(String, Buffered)>,
    value: Option<Buffered>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> Packed<A> {
    /// Reads a message with a special form; other members are ignored.
    pub(super) fn value<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, A::Error> {
        let mut seed = Some(seed);
        let mut read = None;
        while let Some(name) = self.next_key::<String>()? {
            if name != VALUE {
                self.next_value::<IgnoredAny>()?;
                continue;
            }
            let seed = seed.take();
            let seed = seed.ok_or_else(|| A::Error::custom("\"value\" is there twice"))?;
            read = Some(self.next_value_seed(seed)?);
        }
        read.ok_or_else(|| {
            A::Error::custom("an Any of a type with a form of its own needs \"value\"")
        })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Packed<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let name = match self.before.next() {
            Some((name, value)) => {
                self.value = Some(value);
                name
            }
            None => match self.rest.next_key::<String>()? {
                Some(name) => name,
                None => return Ok(None),
            },
        };
        if name == TYPE {
            return Err(A::Error::custom("\"@type\" is there twice"));
        }
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value.into_deserializer()),
            None => self.rest.next_value_seed(seed),
        }
    }
}
