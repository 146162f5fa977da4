//! Converts JSON to protobuf's binary form while reading: no message is built in between, which
//! would take many times the memory and the time.
//!

use std::fmt;

use prost::encoding::{WireType, decode_key, encode_key};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor, OneofDescriptor};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::any::{Opened, TYPE_URL_NUMBER, VALUE_NUMBER};
use super::field::{Field, Frame, Shape};
use super::forms;
use super::key::{Entries, KeySeed};
use super::message_set::write_item;
use super::scalars::{is_null_value, wire_type, write_scalar};
use super::values::ValueSeed;
use super::wire::{delimited, delimited_field, text_field};
use crate::well_known::{Form, Holder};

/// Writes the next message.
pub(super) struct MessageSeed<'a> {
    pub descriptor: &'a MessageDescriptor,
    pub out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match Form::of(self.descriptor) {
            None => json.deserialize_map(self),
            Some(Form::Any) => {
                let pool = self.descriptor.parent_pool();
                json.deserialize_map(AnyVisitor { pool, out: self.out })
            }
            Some(Form::Json(holder)) => holder.read(json, self.out),
            Some(Form::Timestamp) => forms::read_timestamp(json, self.out),
            Some(Form::Duration) => forms::read_duration(json, self.out),
            Some(Form::Mask) => forms::read_mask(json, self.out),
            Some(Form::Wrapper) => forms::read_wrapper(self.descriptor, json, self.out),
        }
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Seen::default();
        while let Some(named) = map.next_key_seed(NameSeed(self.descriptor))? {
            let Some(place) = named else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            seen.add(&place).map_err(A::Error::custom)?;
            if map.next_value_seed(OptionalSeed { place: &place, out: self.out })? {
                seen.add_to_oneof(&place).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Writes the next `Any`.
struct AnyVisitor<'a> {
    pool: &'a DescriptorPool,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for AnyVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with \"@type\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Some(opened) = Opened::new(self.pool, map)? else { return Ok(()) };
        let Opened { type_url, descriptor, packed } = opened;
        text_field(TYPE_URL_NUMBER, &type_url, self.out);
        let start = self.out.len();
        delimited_field(VALUE_NUMBER, self.out, |out| {
            let seed = MessageSeed { descriptor: &descriptor, out };
            match Form::of(&descriptor) {
                None => seed.visit_map(packed),
                Some(_) => packed.value(seed),
            }
        })?;
        if is_default(self.out, start) {
            self.out.truncate(start);
        }
        Ok(())
    }
}

/// Whether JSON is a message of a type, ignoring unknown fields.
pub(super) fn fits(descriptor: &MessageDescriptor, value: &serde_json::Value) -> bool {
    MessageSeed { descriptor, out: &mut Vec::new() }.deserialize(value).is_ok()
}

/// A field or an extension, for conversions of its values.
pub(super) struct Place {
    number: u32,
    pub kind: Kind,
    pub shape: Shape,
    is_packed: bool,
    frame: Frame,
    has_presence: bool,
    oneof: Option<OneofDescriptor>,
}

impl Place {
    pub(super) fn of(field: &Field) -> Self {
        Self {
            number: field.number(),
            kind: field.kind(),
            shape: field.shape(),
            is_packed: field.is_packed(),
            frame: field.frame(),
            has_presence: field.supports_presence(),
            oneof: field.oneof(),
        }
    }
}

/// The fields of a message named so far.
#[derive(Default)]
struct Seen {
    /// Sorted.
    numbers: SmallVec<[u32; 16]>,
    oneofs: SmallVec<[OneofDescriptor; 1]>,
}

impl Seen {
    /// Refuses a second value for a field: it is ambiguous which one is meant, and readers differ.
    fn add(&mut self, place: &Place) -> Result<(), String> {
        match self.numbers.binary_search(&place.number) {
            Err(at) => self.numbers.insert(at, place.number),
            Ok(_) => return Err(format!("field {} is there twice", place.number)),
        }
        Ok(())
    }

    fn add_to_oneof(&mut self, place: &Place) -> Result<(), String> {
        let Some(oneof) = &place.oneof else { return Ok(()) };
        if self.oneofs.contains(oneof) {
            return Err(format!("multiple fields provided for oneof '{}'", oneof.name()));
        }
        self.oneofs.push(oneof.clone());
        Ok(())
    }
}

/// Finds the field of a name; `None`: there is none, so the value says nothing.
struct NameSeed<'a>(&'a MessageDescriptor);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Option<Place>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Option<Place>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(place_of(self.0, name))
    }
}

/// The field or the extension for a name in JSON.
pub(super) fn place_of(descriptor: &MessageDescriptor, name: &str) -> Option<Place> {
    Field::named(descriptor, name).map(|field| Place::of(&field))
}

/// Writes a field; false: it is null, which is a value for some.
pub(super) struct OptionalSeed<'a> {
    pub place: &'a Place,
    pub out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for OptionalSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for OptionalSeed<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("option")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        let Place { number, kind, .. } = self.place;
        if is_null_value(kind) {
            encode_key(*number, WireType::Varint, self.out);
            self.out.push(0);
        } else if kind.as_message().and_then(Form::of) == Some(Form::Json(Holder::Value)) {
            delimited_field(*number, self.out, |out| ValueSeed(out).visit_unit())?;
        }
        Ok(false)
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        let Place { number, kind, .. } = self.place;
        match self.place.shape {
            Shape::Map => json.deserialize_map(EntriesVisitor {
                number: *number,
                entry: kind.as_message().expect("invariant: a map has entries"),
                out: self.out,
            })?,
            Shape::List if self.place.is_packed => {
                let start = self.out.len();
                let count = delimited_field(*number, self.out, |out| {
                    json.deserialize_seq(ElementsVisitor { place: self.place, out })
                })?;
                if count == 0 {
                    self.out.truncate(start);
                }
            }
            Shape::List => {
                json.deserialize_seq(ElementsVisitor { place: self.place, out: self.out })?;
            }
            Shape::Single => {
                let start = self.out.len();
                ElementSeed { place: self.place, out: self.out }.deserialize(json)?;
                if !self.place.has_presence && is_default(self.out, start) {
                    self.out.truncate(start);
                }
            }
        }
        Ok(true)
    }
}

/// Writes one value, with its key unless it is packed; false: there is none.
struct ElementSeed<'a> {
    place: &'a Place,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ElementSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        let Place { number, kind, .. } = self.place;
        match (kind.as_message(), self.place.frame) {
            (Some(descriptor), Frame::Group) => {
                encode_key(*number, WireType::StartGroup, self.out);
                MessageSeed { descriptor, out: self.out }.deserialize(json)?;
                encode_key(*number, WireType::EndGroup, self.out);
                return Ok(true);
            }
            (Some(descriptor), Frame::Item) => {
                write_item(*number, self.out, |out| {
                    MessageSeed { descriptor, out }.deserialize(json)
                })?;
                return Ok(true);
            }
            _ => {}
        }
        let start = self.out.len();
        if !(self.place.is_packed && self.place.shape == Shape::List) {
            encode_key(*number, wire_type(kind), self.out);
        }
        let is_there = write_value(kind, json, self.out)?;
        if !is_there {
            self.out.truncate(start);
        }
        Ok(is_there)
    }
}

/// Whether a field that begins here has its default, all of whose bytes are 0.
fn is_default(out: &[u8], start: usize) -> bool {
    let mut value = &out[start..];
    decode_key(&mut value).is_ok() && value.iter().all(|byte| *byte == 0)
}

fn write_value<'de, D: Deserializer<'de>>(
    kind: &Kind,
    json: D,
    out: &mut Vec<u8>,
) -> Result<bool, D::Error> {
    match kind {
        Kind::Message(descriptor) => {
            delimited(out, |out| MessageSeed { descriptor, out }.deserialize(json))?;
            Ok(true)
        }
        kind => write_scalar(kind, json, out),
    }
}

/// Writes the elements of a list; returns how many there are.
struct ElementsVisitor<'a> {
    place: &'a Place,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for ElementsVisitor<'_> {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<usize, A::Error> {
        let mut count = 0;
        loop {
            let element = ElementSeed { place: self.place, out: &mut *self.out };
            let Some(is_there) = seq.next_element_seed(element)? else { return Ok(count) };
            count += usize::from(is_there);
        }
    }
}

/// Writes the entries of a map.
struct EntriesVisitor<'a> {
    number: u32,
    entry: &'a MessageDescriptor,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for EntriesVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let key = self.entry.map_entry_key_field();
        let (key_kind, key_number) = (key.kind(), key.number());
        let value = Place::of(&Field::Own(self.entry.map_entry_value_field()));
        let mut entries = Entries::new(self.number, &key_kind);
        while entries.write(self.out, |out| {
            let key = KeySeed { number: key_number, kind: &key_kind, out: &mut *out };
            if map.next_key_seed(key)?.is_none() {
                return Ok(None);
            }
            let key_end = out.len();
            let is_there = map.next_value_seed(ElementSeed { place: &value, out })?;
            Ok(Some((key_end, is_there)))
        })? {}
        entries.check(self.out).map_err(A::Error::custom)
    }
}
