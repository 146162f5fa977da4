//! Keys of maps.

use std::fmt;
use std::ops::Range;

use prost::encoding::encode_key;
use prost_reflect::Kind;
use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::raw::Reader;
use super::scalars::{wire_type, write_key};
use super::wire::delimited_field;
use super::write_scalars::write_scalar;

/// Writes the entries of a map, one after the other, and remembers where their keys are.
///
/// Which of two values of a key is meant nobody knows, and readers differ. `1` and `1.0` are one key,
/// so what has been written is compared, and not the texts.
pub(super) struct Entries<'a> {
    number: u32,
    key_kind: &'a Kind,
    keys: Vec<Range<usize>>,
}

impl<'a> Entries<'a> {
    /// Those of the field with this number.
    pub(super) fn new(number: u32, key_kind: &'a Kind) -> Self {
        Self { number, key_kind, keys: Vec::new() }
    }

    /// Writes an entry; `write` returns where its key ends, and whether the entry has a value.
    /// False: there is none any more.
    pub(super) fn write<E>(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<Option<(usize, bool)>, E>,
    ) -> Result<bool, E> {
        let start = out.len();
        let mut inside = 0..0;
        let written = delimited_field(self.number, out, |out| {
            inside.start = out.len();
            let written = write(out)?;
            inside.end = out.len();
            Ok(written)
        })?;
        if let Some((key_end, true)) = written {
            // The size before it may have moved it.
            let key_start = out.len() - inside.len();
            self.keys.push(key_start..key_start + (key_end - inside.start));
        } else {
            out.truncate(start);
        }
        Ok(written.is_some())
    }

    /// Checks what has been written.
    ///
    /// # Errors
    /// A sentence: a key is there twice.
    pub(super) fn check(mut self, out: &[u8]) -> Result<(), String> {
        let key = |range: &Range<usize>| &out[range.clone()];
        self.keys.sort_unstable_by(|one, other| key(one).cmp(key(other)));
        let twice = self.keys.windows(2).find(|pair| key(&pair[0]) == key(&pair[1]));
        twice.map_or(Ok(()), |pair| {
            let shown = shown(self.key_kind, key(&pair[0]));
            Err(format!("the key {shown} of a map is there twice"))
        })
    }
}

fn shown(kind: &Kind, key: &[u8]) -> String {
    let mut text = Vec::new();
    let written = Reader(key).field().and_then(|(_, value)| write_scalar(kind, value, &mut text));
    written.map_or_else(|_| "\"\"".to_owned(), |()| String::from_utf8_lossy(&text).into_owned())
}

/// Writes the next key of a map.
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
