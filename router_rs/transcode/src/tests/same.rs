//! The conversions are those of `prost-reflect`, which builds messages.

use prost_reflect::{DeserializeOptions, DynamicMessage, SerializeOptions};

use super::*;

/// The message that `json` is, as `prost-reflect` reads it.
fn read(thing: &JsonType, json: &str, refuses_unknown: bool) -> Option<DynamicMessage> {
    let options = DeserializeOptions::new().deny_unknown_fields(refuses_unknown);
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let descriptor = thing.descriptor.clone();
    DynamicMessage::deserialize_with_options(descriptor, &mut deserializer, &options).ok()
}

#[track_caller]
fn check(json: &str) {
    let thing = thing();
    let strict = thing.refusing_unknown(true).read(json.as_bytes());
    assert_eq!(read(&thing, json, true).is_some(), strict.is_ok(), "{json}: {strict:?}");
    let expected = read(&thing, json, false);
    let wire = thing.read(json.as_bytes()).ok();
    assert_eq!(expected.is_some(), wire.is_some(), "{json}");
    let (Some(expected), Some(wire)) = (expected, wire) else { return };
    let decode = |wire: &[u8]| DynamicMessage::decode(thing.descriptor.clone(), wire).unwrap();
    let read = decode(&wire);
    // Both once more over the wire: what is empty is as good as not there.
    let again = |message: &DynamicMessage| decode(&message.encode_to_vec());
    // Not by `assert_eq`: what it would show has no end.
    assert!(again(&expected) == again(&read), "{json}");

    let mut written = serde_json::Serializer::new(Vec::new());
    expected.serialize_with_options(&mut written, &SerializeOptions::new()).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&written.into_inner()).unwrap();
    for wire in [wire, read.encode_to_vec()] {
        let written = thing.write(&wire).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(expected, json);
    }
}

#[test]
fn every_kind_of_value_is_read_and_written_alike() {
    for json in [
        r#"{"name": "a\nb\u00e9\ud83d\ude00", "smallCount": -5, "bigCount": "18446744073709551615"}"#,
        r#"{"smallCount": 1.0, "bigCount": 5, "weight": "Infinity", "isNew": true}"#,
        r#"{"weight": "-Infinity", "data": "AAEC_-8", "colour": 2}"#,
        r#"{"weight": 1e308, "data": "", "colour": "COLOUR_RED", "name": ""}"#,
        r#"{"tags": [], "sizes": {}, "parts": [], "inner": {}}"#,
        r#"{"tags": ["", "a"], "sizes": {"": 0, "b": -1}, "parts": [{}, {"name": "c"}]}"#,
        r#"{"inner": {"inner": {"parts": [{"tags": ["d"]}]}}}"#,
        r#"{"made": "2024-02-03T04:05:06.7Z", "age": "-1.5s", "mask": "a,inner.name"}"#,
        r#"{"maybe": false, "extra": {}}"#,
        r#"{"extra": {"a": null, "b": [1, -2.5, "x", true, {}, []], "c": {"d": {"e": []}}}}"#,
        r#"{"any": {"@type": "x/things.v1.Filter", "tagName": "t"}}"#,
        r#"{"any": {"@type": "x/google.protobuf.Duration", "value": "1s"}}"#,
        r#"{"word": "", "number": null}"#,
        r#"{"number": "-9223372036854775808"}"#,
        r#"{"word": "a", "word": "b"}"#,
        r#"{"word": "a", "number": 1}"#,
        r#"{"name": null, "tags": null, "sizes": null, "inner": null, "extra": null, "maybe": null}"#,
        r#"{"tags": [null]}"#,
        r#"{"sizes": {"a": null}}"#,
        r#"{"colour": "COLOUR_OF_THE_FUTURE"}"#,
        r#"{"colour": 77}"#,
        r#"{"unknown": [{"a": 1}], "name": "n"}"#,
        r#"{"name": "a", "name": "b", "smallCount": 1, "smallCount": 0}"#,
        r#"{"smallCount": 2147483648}"#,
        r#"{"smallCount": 1.5}"#,
        r#"{"smallCount": "x"}"#,
        r#"{"parts": {}}"#,
        r#"{"parts": [[]]}"#,
        r#"{"sizes": []}"#,
        r#"{"inner": []}"#,
        r#"{"extra": []}"#,
        r#"{"isNew": 1}"#,
        "[]",
        r#""a""#,
        "null",
    ] {
        check(json);
    }
}

#[test]
fn what_is_no_number_stays_a_text() {
    let json = r#"{"weight":"NaN"}"#;
    let written = thing().write(&thing().read(json.as_bytes()).unwrap()).unwrap();
    assert_eq!(json.as_bytes(), written);
}

#[test]
fn sizes_of_any_length_stand_before_what_they_count() {
    for size in [0, 1, 126, 127, 128, 16_383, 16_384, 20_000, 2_100_000] {
        let name = "a".repeat(size);
        check(&format!(
            r#"{{"inner":{{"inner":{{"name":"{name}"}},"parts":[{{}},{{"name":"{name}"}}]}}}}"#
        ));
    }
}

#[test]
fn what_has_parts_is_not_there_twice() {
    for json in [
        r#"{"tags": ["a"], "tags": ["b"]}"#,
        r#"{"sizes": {"a": 1}, "sizes": {"b": 1}}"#,
        r#"{"inner": {}, "inner": {}}"#,
    ] {
        let (code, text) = refused(thing().read(json.as_bytes()).map(Bytes::from));
        assert_eq!(
            (Code::InvalidArgument, true),
            (code, text.contains("is there twice")),
            "{text}"
        );
    }
    // An empty list has no parts.
    assert!(thing().read(br#"{"tags": [], "tags": ["b"]}"#).is_ok());
}

/// Fields of one message in some order, each as it stands on the wire.
#[test]
fn unusual_messages_are_written_as_they_are_read() {
    let part = |json: &str| thing().read(json.as_bytes()).unwrap();
    let (name, tag) = (part(r#"{"name": "a"}"#), part(r#"{"tags": ["t"]}"#));
    let (word, number) = (part(r#"{"word": "w"}"#), part(r#"{"number": "5"}"#));
    let (one, other) =
        (part(r#"{"inner": {"name": "a"}}"#), part(r#"{"inner": {"smallCount": 3}}"#));
    let unknown = vec![0xf8, 0x07, 0x01]; // number 127, a varint
    for parts in [
        vec![&tag, &name],
        vec![&name, &tag, &name],
        vec![&word, &number],
        vec![&number, &word],
        vec![&one, &other],
        vec![&unknown, &name, &unknown, &tag, &tag, &unknown],
        vec![&name, &name],
    ] {
        let wire: Vec<u8> = parts.into_iter().flatten().copied().collect();
        let message = DynamicMessage::decode(thing().descriptor, &wire[..]).unwrap();
        let expected = serde_json::to_value(&message).unwrap();
        let written: serde_json::Value =
            serde_json::from_slice(&thing().write(&wire).unwrap()).unwrap();
        assert_eq!(expected, written, "{wire:?}");
    }
}

proptest::proptest! {
    #[test]
    fn bytes_that_are_no_message_are_refused_alike(bytes: Vec<u8>) {
        let message = DynamicMessage::decode(thing().descriptor, &bytes[..]);
        let written = message.ok().map(|message| serde_json::to_value(&message).ok());
        let ours = thing().write(&bytes).ok();
        let ours = ours.map(|json| serde_json::from_slice::<serde_json::Value>(&json).unwrap());
        if let (Some(Some(expected)), Some(ours)) = (written, ours) {
            proptest::prop_assert_eq!(expected, ours);
        }
    }
}
