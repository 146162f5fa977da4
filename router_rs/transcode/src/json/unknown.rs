//! Finds fields and enum names in JSON that its message does not have.
//!
//! A second reading of JSON that was already read as a message, so that it costs nothing where
//! unknown fields are ignored. It keeps a path, and no values.

use std::fmt::{self, Write};

use prost_reflect::{EnumDescriptor, Kind, MessageDescriptor};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::any::Opened;
use super::field::Shape;
use super::read::{Place, place_of};
use super::scalars::enum_number;
use crate::near::nearest;
use crate::well_known::{Form, VALUE};
use crate::wrong::{no_field, shown};

/// A sentence about the first unknown name; `None`: there are none.
pub(super) fn of_message<'de, D: Deserializer<'de>>(
    descriptor: &MessageDescriptor,
    json: D,
) -> Option<String> {
    let kind = Kind::Message(descriptor.clone());
    search("request".to_owned(), &kind, Shape::Single, json)
}

/// Like [`of_message`], for JSON that is one field of it.
pub(super) fn of_field<'de, D: Deserializer<'de>>(
    name: &str,
    place: &Place,
    json: D,
) -> Option<String> {
    search(format!("request.{name}"), &place.kind, place.shape, json)
}

fn search<'de, D: Deserializer<'de>>(
    path: String,
    kind: &Kind,
    shape: Shape,
    json: D,
) -> Option<String> {
    let mut search = Search { path, found: None };
    // It fails only when something is found, since the JSON is a valid message.
    let _ends_with_what_is_found = Look { kind, shape, search: &mut search }.deserialize(json);
    search.found
}

struct Search {
    /// The path of the value being checked.
    path: String,
    found: Option<String>,
}

impl Search {
    /// Ends the reading.
    fn end<E: Error>(&mut self, found: String) -> E {
        self.found = Some(found);
        E::custom("")
    }

    /// Runs something one level deeper.
    fn inside<T, E>(
        &mut self,
        step: &str,
        look: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let length = self.path.len();
        self.path.push_str(step);
        let looked = look(self)?;
        self.path.truncate(length);
        Ok(looked)
    }

    fn fields<'de, A: MapAccess<'de>>(
        &mut self,
        message: &MessageDescriptor,
        mut map: A,
    ) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let Some(Place { kind, shape, .. }) = &place_of(message, &name) else {
                let text = no_field(&self.path, message, &name);
                return Err(self.end(text));
            };
            self.inside(&format!(".{name}"), |search| {
                map.next_value_seed(Look { kind, shape: *shape, search })
            })?;
        }
        Ok(())
    }

    /// Checks the message in an `Any`.
    fn packed<'de, A: MapAccess<'de>>(
        &mut self,
        any: &MessageDescriptor,
        map: A,
    ) -> Result<(), A::Error> {
        let opened = Opened::new(any.parent_pool(), map)?;
        let Some(Opened { descriptor, mut packed, .. }) = opened else { return Ok(()) };
        if Form::of(&descriptor).is_none() {
            return self.fields(&descriptor, packed);
        }
        let kind = &Kind::Message(descriptor);
        while let Some(name) = packed.next_key::<String>()? {
            if name != VALUE {
                let text = format!("{} has no field {}", self.path, shown(&name.into()));
                return Err(self.end(text));
            }
            self.inside(".value", |search| {
                packed.next_value_seed(Look { kind, shape: Shape::Single, search })
            })?;
        }
        Ok(())
    }

    fn entries<'de, A: MapAccess<'de>>(
        &mut self,
        entry: &MessageDescriptor,
        mut map: A,
    ) -> Result<(), A::Error> {
        let kind = &entry.map_entry_value_field().kind();
        while let Some(key) = map.next_key::<String>()? {
            self.inside(&format!("[{}]", shown(&key.into())), |search| {
                map.next_value_seed(Look { kind, shape: Shape::Single, search })
            })?;
        }
        Ok(())
    }

    fn enum_name<E: Error>(&mut self, names: &EnumDescriptor, name: &str) -> Result<(), E> {
        if enum_number(names, name).is_some() {
            return Ok(());
        }
        let (path, told) = (&self.path, shown(&name.into()));
        let mut text = format!("{path}: {} has no name {told}", names.name());
        let known: Vec<_> = names.values().map(|value| value.name().to_owned()).collect();
        if let Some(near) = nearest(name, known.iter().map(String::as_str), &|_| true) {
            write!(text, ", did you mean {near}?").expect("invariant: memory takes it");
        }
        Err(self.end(text))
    }
}

/// Checks the next value.
struct Look<'a> {
    kind: &'a Kind,
    shape: Shape,
    search: &'a mut Search,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let form = self.kind.as_message().and_then(Form::of);
        match (self.shape, self.kind) {
            (Shape::Single, _) if form.is_some_and(|form| form != Form::Any) => {
                IgnoredAny::deserialize(json).map(drop)
            }
            (Shape::Map, _) | (_, Kind::Message(_) | Kind::Enum(_)) => json.deserialize_any(self),
            _ => IgnoredAny::deserialize(json).map(drop),
        }
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("what has been read as a message")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _number: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _number: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _number: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        match self.kind {
            Kind::Enum(names) => self.search.enum_name(names, name),
            _ => Ok(()),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { kind, search, .. } = self;
        for index in 0.. {
            let element = search.inside(&format!("[{index}]"), |search| {
                seq.next_element_seed(Look { kind, shape: Shape::Single, search })
            })?;
            if element.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match (self.shape, self.kind) {
            (Shape::Map, Kind::Message(entry)) => self.search.entries(entry, map),
            (_, Kind::Message(message)) if Form::of(message) == Some(Form::Any) => {
                self.search.packed(message, map)
            }
            (_, Kind::Message(message)) => self.search.fields(message, map),
            _ => Ok(()),
        }
    }
}
