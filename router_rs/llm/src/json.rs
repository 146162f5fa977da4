//! Reads a request's JSON field by field.
//!
//! Known fields are checked, and an error says which one is wrong and why. The others are kept as
//! the client has written them. Values are read lazily, so that a picture in a message is not
//! copied before the engine's message is written.

use std::borrow::Cow;
use std::fmt::{Formatter, Write};

use serde::de::{MapAccess, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::errors::ApiError;

/// The same limit as `serde_json`'s. Engines may parse nested JSON recursively.
const DEPTH_MAX: usize = 128;

/// A field that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// From where the reader is; it grows on the way out.
    place: String,
    what: String,
}

/// One value of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a>(&'a str);

/// An object whose fields are taken one by one.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    fields: Vec<(Cow<'a, str>, Json<'a>)>,
}

// === impl Wrong ===

impl Wrong {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { place: String::new(), what: what.into() }
    }

    /// The same, seen from the object that has it under this name.
    pub(crate) fn at(mut self, name: &str) -> Self {
        let separator = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        self.place = format!("{name}{separator}{}", self.place);
        self
    }

    /// The same, seen from the array that has it at this index.
    pub(crate) fn at_index(self, index: usize) -> Self {
        self.at(&format!("[{index}]"))
    }
}

impl From<Wrong> for ApiError {
    fn from(wrong: Wrong) -> Self {
        if wrong.place.is_empty() {
            ApiError::new(http::StatusCode::BAD_REQUEST, wrong.what)
        } else {
            ApiError::invalid(wrong.place, wrong.what)
        }
    }
}

// === impl Json ===

impl<'a> Json<'a> {
    /// The body of a request.
    ///
    /// # Errors
    /// It is not JSON, or nested too deeply.
    pub(crate) fn body(body: &'a [u8]) -> Result<Self, Wrong> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(Wrong::new("the body is empty; send a JSON object"));
        }
        let text = std::str::from_utf8(body)
            .map_err(|error| Wrong::new(format!("the body is no UTF-8: {error}")))?;
        if depth(text) > DEPTH_MAX {
            let what = format!("the body is nested deeper than {DEPTH_MAX} levels");
            return Err(Wrong::new(what));
        }
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|error| Wrong::new(format!("the body is no JSON: {error}")))?;
        Ok(Self(raw.get()))
    }

    /// As the client has written it.
    pub(crate) fn raw(self) -> &'a str {
        self.0
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(crate) fn is_text(self) -> bool {
        self.0.starts_with('"')
    }

    pub(crate) fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    pub(crate) fn text(self) -> Result<String, Wrong> {
        if !self.is_text() {
            return Err(self.not("a string"));
        }
        serde_json::from_str(self.0).map_err(|error| Wrong::new(format!("is no text: {error}")))
    }

    pub(crate) fn boolean(self) -> Result<bool, Wrong> {
        serde_json::from_str(self.0).map_err(|_| self.not("true or false"))
    }

    /// An integer from `min` to `max`; `1.0` is one too, as in JSON Schema.
    pub(crate) fn integer<T>(self, min: T, max: T) -> Result<T, Wrong>
    where
        T: TryFrom<i64> + Into<i64> + Copy,
    {
        let (min, max): (i64, i64) = (min.into(), max.into());
        let number = serde_json::from_str::<i64>(self.0).ok().or_else(|| self.whole());
        let Some(number) = number else {
            return Err(self.not("an integer"));
        };
        if number < min || number > max {
            return Err(Wrong::new(format!("is {number}; allowed: {min} to {max}")));
        }
        T::try_from(number).map_err(|_| self.not("an integer"))
    }

    fn whole(self) -> Option<i64> {
        let number: f64 = serde_json::from_str(self.0).ok()?;
        // Beyond it, a float does not say which integer is meant.
        let is_exact = number.fract() == 0.0 && number.abs() < 9e15;
        is_exact.then_some(number as i64)
    }

    pub(crate) fn number(self, min: f32, max: f32) -> Result<f32, Wrong> {
        let number: f64 = serde_json::from_str(self.0).map_err(|_| self.not("a number"))?;
        let number = number as f32;
        if !(min..=max).contains(&number) {
            return Err(Wrong::new(format!("is {}; allowed: {min} to {max}", self.0)));
        }
        Ok(number)
    }

    /// The elements, as they are.
    pub(crate) fn items(self) -> Result<Vec<Self>, Wrong> {
        if !self.is_array() {
            return Err(self.not("an array"));
        }
        let items: Vec<&RawValue> = serde_json::from_str(self.0)
            .map_err(|error| Wrong::new(format!("is no array: {error}")))?;
        Ok(items.into_iter().map(|item| Self(item.get())).collect())
    }

    /// The elements, read one by one; an error says which one is wrong.
    pub(crate) fn each<T>(
        self,
        mut read: impl FnMut(Self) -> Result<T, Wrong>,
    ) -> Result<Vec<T>, Wrong> {
        let items = self.items()?.into_iter().enumerate();
        items.map(|(index, item)| read(item).map_err(|wrong| wrong.at_index(index))).collect()
    }

    pub(crate) fn object(self) -> Result<Object<'a>, Wrong> {
        if !self.is_object() {
            return Err(self.not("an object"));
        }
        let fields = serde_json::Deserializer::from_str(self.0)
            .deserialize_map(Fields)
            .map_err(|error| Wrong::new(format!("is no object: {error}")))?;
        Ok(Object { fields })
    }

    /// The error of a value that should have been another kind of one.
    pub(crate) fn not(self, expected: &str) -> Wrong {
        let actual = match self.0.as_bytes().first() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'n') => "null",
            Some(b't' | b'f') => self.0,
            _ => "a number",
        };
        // A number that should have been another number is worth repeating.
        let is_short = actual == "a number" && self.0.len() < 32;
        let actual = if is_short { self.0 } else { actual };
        Wrong::new(format!("has to be {expected}, not {actual}"))
    }
}

struct Fields;

impl<'a> Visitor<'a> for Fields {
    type Value = Vec<(Cow<'a, str>, Json<'a>)>;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((Name(name), value)) = map.next_entry::<Name<'a>, &'a RawValue>()? {
            fields.push((name, Json(value.get())));
        }
        Ok(fields)
    }
}

/// Borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// How deep arrays and objects are nested in each other, whether or not it is all JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut most, mut is_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'[' | b'{' => {
                depth += 1;
                most = most.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Takes a field out; null is as good as none. Of fields with one name the last one counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json<'a>> {
        let mut found = None;
        self.fields.retain(|(other, value)| {
            let is_it = other == name;
            if is_it {
                found = Some(*value);
            }
            !is_it
        });
        found.filter(|value| !value.is_null())
    }

    /// Looks at a field that stays.
    pub(crate) fn peek(&self, name: &str) -> Option<Json<'a>> {
        let found = self.fields.iter().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| *value).filter(|value| !value.is_null())
    }

    /// Takes a field out and reads it.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Json<'a>) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        self.take(name).map(read).transpose().map_err(|wrong| wrong.at(name))
    }

    /// Like [`Object::read`], for a field that must be there.
    pub(crate) fn need<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Json<'a>) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        self.read(name, read)?.ok_or_else(|| Wrong::new("is missing").at(name))
    }

    /// Checks a field that stays, for the engine.
    pub(crate) fn check<T>(
        &self,
        name: &str,
        read: impl FnOnce(Json<'a>) -> Result<T, Wrong>,
    ) -> Result<(), Wrong> {
        let checked = self.peek(name).map(read).transpose();
        checked.map(drop).map_err(|wrong| wrong.at(name))
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        self.read(name, Json::text)
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Wrong> {
        self.read(name, Json::boolean)
    }

    /// Rejects a field that is not supported.
    pub(crate) fn refuse(&mut self, name: &str, why: &str) -> Result<(), Wrong> {
        self.take(name).map_or(Ok(()), |_| Err(Wrong::new(why).at(name)))
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, Json<'a>)> {
        self.fields.iter().map(|(name, value)| (&**name, *value))
    }

    /// An object of the fields that have not been taken, as they were written; empty if there are
    /// none.
    pub(crate) fn rest(self) -> String {
        let mut rest = String::new();
        for (index, (name, value)) in self.fields.iter().enumerate() {
            rest.push(if index == 0 { '{' } else { ',' });
            let name = serde_json::to_string(name).expect("invariant: a text is JSON");
            write!(rest, "{name}:{}", value.raw()).expect("invariant: memory takes all");
        }
        if !rest.is_empty() {
            rest.push('}');
        }
        rest
    }
}

/// An object that the engine reads.
pub(crate) fn object_as_written(value: Json<'_>) -> Result<String, Wrong> {
    if !value.is_object() {
        return Err(value.not("an object"));
    }
    Ok(value.raw().into())
}

/// A value that is made here, for fields that hold JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("invariant: the value has no maps with other keys than texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(error: Wrong) -> (Option<String>, String) {
        let error = ApiError::from(error);
        (error.param, error.message)
    }

    #[test]
    fn an_error_says_where() {
        let body = br#"{"messages":[{},{"content":[{"type":7}]}]}"#;
        let error = Json::body(body)
            .and_then(Json::object)
            .and_then(|mut body| {
                body.need("messages", |messages| {
                    messages.each(|message| {
                        message.object()?.read("content", |content| {
                            content.each(|part| part.object()?.need("type", Json::text))
                        })
                    })
                })
            })
            .unwrap_err();
        let place = "messages[1].content[0].type";
        let expected = (Some(place.into()), format!("{place}: has to be a string, not 7"));
        assert_eq!(expected, message(error));
    }

    #[test]
    fn what_is_no_json_is_told_apart() {
        let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
        for (body, expected) in [
            (&b" \n"[..], "the body is empty"),
            (b"{", "the body is no JSON: EOF"),
            (b"{} {}", "the body is no JSON: trailing"),
            (b"\"\xff\"", "the body is no UTF-8"),
            (deep.as_bytes(), "the body is nested deeper"),
        ] {
            let error = Json::body(body).unwrap_err();
            assert!(error.what.starts_with(expected), "{error:?}");
        }
        let (texts, flat) = (format!("[\"\\\"{deep}\"]"), "[[],[]]");
        assert_eq!((1, 2), (depth(&texts), depth(flat)));
    }

    #[test]
    fn values_are_what_they_should_be() {
        let json = |text| Json(text);
        assert_eq!(Ok(3), json("3").integer(0_i32, 9));
        assert_eq!(Ok(3), json("3.0").integer(0_i32, 9));
        assert_eq!(Ok(true), json("true").boolean());
        assert_eq!(Ok(0.5), json("0.5").number(0.0, 1.0));
        assert_eq!(Ok("é\n".into()), json(r#""\u00e9\n""#).text());
        for (error, expected) in [
            (json("10").integer(0_i32, 9).unwrap_err(), "is 10; allowed: 0 to 9"),
            (json("1.5").integer(0_i32, 9).unwrap_err(), "has to be an integer, not 1.5"),
            (json("\"3\"").integer(0_i32, 9).unwrap_err(), "has to be an integer, not a string"),
            (json("1e99").integer(0_i32, 9).unwrap_err(), "has to be an integer, not 1e99"),
            (json("2").number(0.0, 1.0).unwrap_err(), "is 2; allowed: 0 to 1"),
            (json("1e99").number(0.0, 1.0).unwrap_err(), "is 1e99; allowed: 0 to 1"),
            (json("true").text().unwrap_err(), "has to be a string, not true"),
            (json("{}").items().unwrap_err(), "has to be an array, not an object"),
            (json("[]").object().unwrap_err(), "has to be an object, not an array"),
            (json("0").boolean().unwrap_err(), "has to be true or false, not 0"),
        ] {
            assert_eq!(expected, error.what);
        }
    }

    #[test]
    fn the_rest_is_as_it_was_written() {
        let body = br#"{"a": 1, "b\n":  [1.50, {"x" : null}], "c": null, "a": 2}"#;
        let mut object = Json::body(body).and_then(Json::object).unwrap();
        assert_eq!(Some("2"), object.peek("a").map(Json::raw));
        assert_eq!(Some("2"), object.take("a").map(Json::raw));
        assert!(object.peek("c").is_none());
        assert_eq!(r#"{"b\n":[1.50, {"x" : null}],"c":null}"#, object.rest());
        assert_eq!("", Json("{}").object().unwrap().rest());
    }
}
