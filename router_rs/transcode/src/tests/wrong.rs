//! Errors about JSON that does not match its message: the place, the expected value, and the actual
//! one.

use super::*;

fn told(json: &str) -> String {
    let status = thing().read(json.as_bytes()).unwrap_err();
    assert_eq!(Code::InvalidArgument, status.code, "{json}");
    status.message.strip_prefix("malformed body: ").expect("all begin so").to_owned()
}

#[test]
fn the_place_of_a_wrong_value_is_its_path() {
    for (json, expected) in [
        (r#"{"name":1}"#, "request.name: expected a text, got 1"),
        (r#"{"weight":"x"}"#, r#"request.weight: expected a number, got "x""#),
        (r#"{"isNew":1}"#, "request.isNew: expected true or false, got 1"),
        (r#"{"is_new":"yes"}"#, r#"request.is_new: expected true or false, got "yes""#),
        (
            r#"{"smallCount":2147483648}"#,
            "request.smallCount: expected a whole number from -2147483648 to 2147483647, got \
             2147483648",
        ),
        (
            r#"{"bigCount":"-1"}"#,
            r#"request.bigCount: expected a whole number from 0 to 18446744073709551615, got "-1""#,
        ),
        (r#"{"data":"*"}"#, r#"request.data: expected a text in base64, got "*""#),
        (
            r#"{"colour":true}"#,
            "request.colour: expected a name of Colour (COLOUR_UNSPECIFIED, COLOUR_RED, \
             COLOUR_BLUE) or its number, got true",
        ),
        (r#"{"tags":"a"}"#, r#"request.tags: expected a list, got "a""#),
        (r#"{"tags":["a",2]}"#, "request.tags[1]: expected a text, got 2"),
        (r#"{"tags":[[]]}"#, "request.tags[0]: expected a text, got a list"),
        (r#"{"sizes":[]}"#, "request.sizes: expected an object, got a list"),
        (
            r#"{"sizes":{"a":1,"b c":"x"}}"#,
            "request.sizes[\"b c\"]: expected a whole number from -2147483648 to 2147483647, got \
             \"x\"",
        ),
        (r#"{"inner":3}"#, "request.inner: expected an object, got 3"),
        (
            r#"{"parts":[{},{"inner":{"weight":{}}}]}"#,
            "request.parts[1].inner.weight: expected a number, got an object",
        ),
        (
            r#"{"made":"yesterday"}"#,
            "request.made: expected a time such as \"2026-01-02T03:04:05Z\", got \"yesterday\"",
        ),
        (r#"{"age":5}"#, "request.age: expected a duration such as \"1.5s\", got 5"),
        (r#"{"maybe":"no"}"#, r#"request.maybe: expected true or false, got "no""#),
        (
            r#"{"word":"a","number":"1"}"#,
            "request: number and word are both there, but choice is one of them",
        ),
        ("[]", "request: expected an object, got a list"),
        ("null", "request: expected an object, got null"),
    ] {
        assert_eq!(expected, told(json), "{json}");
    }
}

#[test]
fn the_place_of_a_wrong_value_is_found_in_an_any() {
    for (json, expected) in [
        (
            r#"{"any":{"@type":"type.googleapis.com/no.Such"}}"#,
            "request.any: the service does not know the type \"type.googleapis.com/no.Such\"",
        ),
        (
            r#"{"any":{"@type":"x/things.v1.Thing","parts":[{"isNew":1}]}}"#,
            "request.any.parts[0].isNew: expected true or false, got 1",
        ),
        (
            r#"{"any":{"value":5,"@type":"x/google.protobuf.Duration"}}"#,
            "request.any.value: expected a duration such as \"1.5s\", got 5",
        ),
        (
            r#"{"any":{"@type":"x/google.protobuf.Any","value":{"a":1}}}"#,
            "request.any.value: \"@type\" is missing, the type of the message",
        ),
        (
            r#"{"any":{"@type":"x/google.protobuf.BoolValue"}}"#,
            "request.any: \"value\" is missing, the BoolValue",
        ),
        (r#"{"any":{"@type":1}}"#, "request.any.@type: expected a text, got 1"),
        (
            r#"{"any":[]}"#,
            "request.any: expected an object with \"@type\" and the message's fields, got a list",
        ),
    ] {
        assert_eq!(expected, told(json), "{json}");
    }
}

#[test]
fn an_unknown_field_is_named_beside_what_is_wrong() {
    let told_of = told(r#"{"nmae":"a","parts":[{"wieght":1}],"isNew":2}"#);
    assert_eq!(
        "request.isNew: expected true or false, got 2; request has no field \"nmae\", did you \
         mean name?",
        told_of
    );
    let told_of = told(r#"{"entirely else":"a","isNew":2}"#);
    assert!(told_of.ends_with("request has no field \"entirely else\""), "{told_of}");
    let fine = thing().read(br#"{"nmae":"a"}"#);
    assert!(fine.is_ok(), "by itself it says nothing: {fine:?}");
}

#[test]
fn long_values_are_cut_and_large_bodies_are_not_searched() {
    let text = told(&format!(r#"{{"isNew":"{}"}}"#, "☃".repeat(1000)));
    let expected = format!("got \"{}\"...", "☃".repeat(40));
    assert!(text.ends_with(&expected), "{text}");

    let large = format!(r#"{{"name":"{}","isNew":2}}"#, "a".repeat(64 * 1024));
    let text = told(&large);
    assert!(text.contains("line 1 column"), "{text}");
}

#[test]
fn what_is_no_json_is_told_with_line_and_column() {
    let text = told("{\n\"name\": }");
    assert!(text.contains("line 2 column 9"), "{text}");
}

#[test]
fn many_values_that_need_a_try_end_the_search() {
    let values = vec![r#""1""#; 2000].join(",");
    let text = told(&format!(r#"{{"parts":[{{"sizes":{{}}}}],"mask":1,"tags":[{values},1]}}"#));
    assert!(text.starts_with("request.mask: expected names of fields"), "{text}");
    let counts: Vec<String> = (0..2000).map(|key| format!(r#""{key}":"1""#)).collect();
    let text = told(&format!(r#"{{"sizes":{{{},"last":"x"}}}}"#, counts.join(",")));
    assert!(text.contains("line 1 column"), "{text}");
}
