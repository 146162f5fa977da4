//! Messages from JSON and back: any accepted form is written in one form.

use prost_reflect::DynamicMessage;

use super::*;

/// `json` parsed and written again.
fn again(json: &str) -> String {
    let wire = thing().read(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error:?}"));
    let strict = thing().refusing_unknown(true).read(json.as_bytes());
    let has_unknown = json.contains("unknown") || json.contains("FUTURE");
    assert_eq!(has_unknown, strict.is_err(), "{json}: {strict:?}");
    String::from_utf8(thing().write(&wire).unwrap()).unwrap()
}

#[test]
fn every_kind_of_value_is_written_in_one_form() {
    for (json, expected) in [
        (
            r#"{"bigCount":"18446744073709551615","smallCount":-5,"name":"a\nb\u00e9\ud83d\ude00"}"#,
            "{\"name\":\"a\\nb\u{e9}\u{1f600}\",\"smallCount\":-5,\"bigCount\":\"18446744073709551615\"}",
        ),
        (r#"{"smallCount":1.0,"bigCount":"1E1"}"#, r#"{"smallCount":1,"bigCount":"10"}"#),
        (
            r#"{"weight":"-Infinity","colour":2}"#,
            r#"{"weight":"-Infinity","colour":"COLOUR_BLUE"}"#,
        ),
        (r#"{"weight":"NaN","colour":"77"}"#, r#"{"weight":"NaN","colour":77}"#),
        (r#"{"weight":-0.0}"#, r#"{"weight":-0.0}"#),
        (
            r#"{"weight":"1e308","data":"AAEC_-8","colour":1.0}"#,
            r#"{"weight":1e+308,"data":"AAEC/+8=","colour":"COLOUR_RED"}"#,
        ),
        (r#"{"tags":[],"sizes":{},"name":"","inner":{}}"#, r#"{"inner":{}}"#),
        (r#"{"tags":["","a"],"sizes":{"":0}}"#, r#"{"tags":["","a"],"sizes":{"":0}}"#),
        (r#"{"sizes":{"a":"1e2"}}"#, r#"{"sizes":{"a":100}}"#),
        (r#"{"made":"2024-02-03T05:04:05.7+01:00"}"#, r#"{"made":"2024-02-03T04:04:05.700Z"}"#),
        (
            r#"{"age":"-1.5s","mask":"a,inner.smallCount"}"#,
            r#"{"age":"-1.500s","mask":"a,inner.smallCount"}"#,
        ),
        (r#"{"mask":"","maybe":false,"extra":{}}"#, r#"{"mask":"","maybe":false,"extra":{}}"#),
        (
            r#"{"extra":{"a":null,"b":[1,-2.5,"x",true,{},[]]}}"#,
            r#"{"extra":{"a":null,"b":[1.0,-2.5,"x",true,{},[]]}}"#,
        ),
        (r#"{"word":"","number":null}"#, r#"{"word":""}"#),
        (r#"{"name":null,"tags":null,"inner":null,"extra":null,"maybe":null,"any":null}"#, "{}"),
        (r#"{"colour":"COLOUR_OF_THE_FUTURE","word":"w"}"#, r#"{"word":"w"}"#),
        (r#"{"unknown":[{"a":1}],"name":"n"}"#, r#"{"name":"n"}"#),
        (
            r#"{"inner":{"inner":{"parts":[{"unknown":1}]}}}"#,
            r#"{"inner":{"inner":{"parts":[{}]}}}"#,
        ),
    ] {
        assert_eq!(expected, again(json), "{json}");
        assert_eq!(expected, again(expected));
    }
}

/// A message packed into an `Any`, with its type before or after it.
#[test]
fn what_is_in_an_any_is_read_and_written_as_elsewhere() {
    for (kind, inner) in [
        ("things.v1.Thing", r#""weight":-0.0"#),
        ("things.v1.Thing", r#""name":"a","tags":["b"],"sizes":{"c":1},"parts":[{}]"#),
        ("things.v1.Thing", r#""any":{}"#),
        (
            "things.v1.Thing",
            r#""any":{"@type":"x/things.v1.Thing","any":{"@type":"y/things.v1.Filter"}}"#,
        ),
        ("google.protobuf.Duration", r#""value":"1s""#),
        ("google.protobuf.Struct", r#""value":{"@type":"a","value":null}"#),
        ("google.protobuf.BoolValue", r#""value":false"#),
        ("google.protobuf.Any", r#""value":{"@type":"x/google.protobuf.FieldMask","value":"aB"}"#),
        ("google.protobuf.Any", r#""value":{}"#),
    ] {
        let (before, behind) = (
            format!(r#"{{"any":{{"@type":"x/{kind}",{inner}}}}}"#),
            format!(r#"{{"any":{{{inner},"@type":"x/{kind}"}}}}"#),
        );
        assert_eq!(before, again(&before));
        assert_eq!(before, again(&behind));
    }
    assert_eq!(r#"{"any":{}}"#, again(r#"{"any":{}}"#));
    let lenient = r#"{"any":{"unknown":[1],"tagName":"t","@type":"x/things.v1.Filter"}}"#;
    assert_eq!(r#"{"any":{"@type":"x/things.v1.Filter","tagName":"t"}}"#, again(lenient));
}

#[test]
fn types_may_come_late_at_every_level() {
    let packed = |depth: usize| {
        let (start, end) = (r#"{"any":"#, r#","@type":"x/things.v1.Thing"}"#);
        format!(r#"{{"any":{}{{}}{}}}"#, start.repeat(depth), end.repeat(depth))
    };
    assert_eq!(90, again(&packed(90)).matches("@type").count());
    assert_eq!(Code::InvalidArgument, thing().read(packed(5000).as_bytes()).unwrap_err().code);
}

#[test]
fn a_key_that_is_there_twice_is_refused_and_named() {
    let long = "l".repeat(200);
    for (json, key) in [
        (r#"{"sizes":{"a":1,"a":1}}"#.to_owned(), "a"),
        (r#"{"sizes":{"a":1,"b":2,"":3,"a":4}}"#.to_owned(), "a"),
        (format!(r#"{{"sizes":{{"{long}":1,"b":2,"{long}":3}}}}"#), &long),
        (r#"{"extra":{"a":1,"a":null}}"#.to_owned(), "a"),
        (format!(r#"{{"extra":{{"c":1,"a":"{long}","b":["{long}"],"a":{{}}}}}}"#), "a"),
        (r#"{"extra":{"o":{"b":1,"b":2}}}"#.to_owned(), "b"),
        (r#"{"extra":{"o":[[{"b":1,"b":2}]]}}"#.to_owned(), "b"),
        (r#"{"any":{"sizes":{"a":1,"a":2},"@type":"x/things.v1.Thing"}}"#.to_owned(), "a"),
    ] {
        let refused = thing().read(json.as_bytes()).unwrap_err();
        let expected = format!("the key \"{key}\" of a map is there twice");
        assert!(refused.message.contains(&expected), "{json}: {refused:?}");
    }
    let once =
        format!(r#"{{"sizes":{{"a":1,"{long}":2}},"extra":{{"a":"{long}","{long}":{{}}}}}}"#);
    let read = thing().read(once.as_bytes()).unwrap();
    assert_eq!(4, String::from_utf8_lossy(&read).matches(&long).count() + 1);
}

#[test]
fn what_has_the_form_of_another_kind_is_unknown() {
    let number = |json: &str| thing().read(json.as_bytes()).unwrap()[0] >> 3;
    let good =
        thing().read(br#"{"name":"a","smallCount":1,"tags":["t"],"sizes":{"k":1}}"#).unwrap();
    let written = String::from_utf8(thing().write(&good).unwrap()).unwrap();
    let forms: [(u8, &[u8]); 4] = [(0, &[5]), (1, &[0; 8]), (2, &[1, b'x']), (5, &[0; 4])];
    for (json, own) in [
        (r#"{"name":"a"}"#, 2),
        (r#"{"smallCount":1}"#, 0),
        (r#"{"tags":["a"]}"#, 2),
        (r#"{"sizes":{"a":1}}"#, 2),
        (r#"{"inner":{"name":"a"}}"#, 2),
    ] {
        for (form, value) in forms.iter().filter(|(form, _)| *form != own) {
            let other = [&[number(json) << 3 | form], *value].concat();
            for wire in [[&good[..], &other].concat(), [&other[..], &good].concat()] {
                let again = String::from_utf8(thing().write(&wire).unwrap()).unwrap();
                assert_eq!(written, again, "{json} in form {form}");
            }
        }
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for json in [
        r#"{"word":"a","number":1}"#,
        r#"{"word":"a","word":"b"}"#,
        r#"{"name":"a","name":"b"}"#,
        r#"{"name":null,"name":"b"}"#,
        r#"{"smallCount":1,"small_count":1}"#,
        r#"{"tags":[],"tags":["b"]}"#,
        r#"{"sizes":{"a":1},"sizes":{"b":1}}"#,
        r#"{"inner":{},"inner":{}}"#,
        r#"{"tags":[null]}"#,
        r#"{"sizes":{"a":null}}"#,
        r#"{"smallCount":1.5}"#,
        r#"{"smallCount":"1e-1"}"#,
        r#"{"smallCount":true}"#,
        r#"{"colour":1.5}"#,
        r#"{"weight":"inf"}"#,
        r#"{"weight":"1e999"}"#,
        r#"{"parts":{}}"#,
        r#"{"parts":[[]]}"#,
        r#"{"extra":[]}"#,
        r#"{"maybe":"true"}"#,
        r#"{"made":"2024-02-30T00:00:00Z"}"#,
        r#"{"age":"315576000001s"}"#,
        r#"{"mask":"a_b"}"#,
        r#"{"any":{"value":"1s"}}"#,
        r#"{"any":{"@type":5}}"#,
        r#"{"any":{"@type":""}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Duration"}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Duration","value":"1s","value":"2s"}}"#,
        r#"{"any":{"@type":"x/things.v1.Filter","@type":"x/things.v1.Thing"}}"#,
        r#"{"any":{"@type":"x/things.v1.Thing","inner":{"weight":1},"inner":{"weight":2}}}"#,
        r#"{"any":{"inner":{"weight":1},"inner":{"weight":2},"@type":"x/things.v1.Thing"}}"#,
        r#"{"any":[]}"#,
        "[]",
        r#""a""#,
        "null",
    ] {
        assert_eq!(
            Code::InvalidArgument,
            thing().read(json.as_bytes()).unwrap_err().code,
            "{json}"
        );
    }
}

#[test]
fn sizes_of_any_length_stand_before_what_they_count() {
    for size in [0, 1, 126, 127, 128, 16_383, 16_384, 20_000, 2_100_000] {
        let name = "a".repeat(size);
        let json = format!(
            r#"{{"inner":{{"inner":{{"name":"{name}"}},"parts":[{{}},{{"name":"{name}"}}]}}}}"#
        );
        let expected = json.replace(r#""name":"""#, "");
        assert!(expected == again(&json), "{size}");
    }
}

/// Fields of one message in some order, each in its wire form.
#[test]
fn fields_in_any_order_are_put_in_order() {
    let part = |json: &str| thing().read(json.as_bytes()).unwrap();
    let (name, tag) = (part(r#"{"name": "a"}"#), part(r#"{"tags": ["t"]}"#));
    let (word, number) = (part(r#"{"word": "w"}"#), part(r#"{"number": "5"}"#));
    let (one, other) =
        (part(r#"{"inner": {"name": "a"}}"#), part(r#"{"inner": {"smallCount": 3}}"#));
    let zero = part(r#"{"weight": -0.0}"#);
    let unknown = vec![0xf8, 0x07, 0x01]; // number 127, a varint
    for (parts, expected) in [
        (vec![&tag, &name], r#"{"name":"a","tags":["t"]}"#),
        (vec![&name, &tag, &name], r#"{"name":"a","tags":["t"]}"#),
        (vec![&word, &number], r#"{"number":"5"}"#),
        (vec![&number, &word], r#"{"word":"w"}"#),
        (vec![&one, &other], r#"{"inner":{"name":"a","smallCount":3}}"#),
        (vec![&unknown, &name, &unknown, &tag, &tag], r#"{"name":"a","tags":["t","t"]}"#),
        (vec![&name, &name], r#"{"name":"a"}"#),
        (vec![&zero, &name], r#"{"name":"a","weight":-0.0}"#),
        (vec![&word, &number, &word], r#"{"word":"w"}"#),
    ] {
        let wire: Vec<u8> = parts.into_iter().flatten().copied().collect();
        let written = String::from_utf8(thing().write(&wire).unwrap()).unwrap();
        assert_eq!(expected, written, "{wire:?}");
        // The same inside an `Any`, whose content no reader of the enclosing message inspects.
        let any = [&b"\x0a\x11x/things.v1.Thing\x12"[..], &[wire.len() as u8], &wire].concat();
        let packed = [&[0x8a, 0x01, any.len() as u8][..], &any].concat();
        let written = String::from_utf8(thing().write(&packed).unwrap()).unwrap();
        let inner = expected.strip_prefix('{').unwrap();
        assert_eq!(format!(r#"{{"any":{{"@type":"x/things.v1.Thing",{inner}}}"#), written);
    }
}

#[test]
fn what_has_no_form_in_json_is_an_error_of_the_servicer() {
    let made = |seconds: u64| [&[0x62, 11, 0x08][..], &varint(seconds)].concat();
    assert!(thing().write(&made(1 << 63)).is_err(), "a time before the year 1");
    for wire in [
        &[0x72, 3, 0x0a, 1, b'A'][..], // a mask with an upper case letter
        &[0x8a, 0x01, 5, 0x0a, 3, b'x', b'/', b'y'], // an Any of an unknown type
        &[0x8a, 0x01, 3, 0x12, 1, 0],  // an Any without a type
        &[0x0a, 1, 0xff],              // no UTF-8
        &[0x0b],                       // a group without an end
        &[0x0c],                       // an end without a group
    ] {
        let error = thing().write(wire).unwrap_err();
        assert_eq!(Code::Internal, error.code, "{wire:?}");
        let begins = "the answer's things.v1.Thing cannot be written as JSON: ";
        assert!(error.message.starts_with(begins), "{}", error.message);
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

proptest::proptest! {
    #[test]
    fn bytes_are_a_message_in_both_forms_or_in_none(bytes: Vec<u8>) {
        if let Ok(json) = thing().write(&bytes) {
            let read = thing().read(&json).unwrap();
            proptest::prop_assert_eq!(&json, &thing().write(&read).unwrap());
            // The bytes of unknown fields may not be valid strings, and their groups not valid
            // groups.
            if let Ok(message) = DynamicMessage::decode(thing().descriptor, &bytes[..]) {
                let ordered = thing().write(&message.encode_to_vec()).unwrap();
                proptest::prop_assert_eq!(&json, &ordered);
            }
        }
    }
}
