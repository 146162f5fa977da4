//! JSON with unknown fields, where those are refused.

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
const REFUSE: &str = "x-pyserve-refuse-unknown-fields";

fn told(json: &str) -> String {
    let status = thing().refusing_unknown(true).read(json.as_bytes()).unwrap_err();
    assert_eq!(Code::InvalidArgument, status.code, "{json}");
    status.message.strip_prefix("malformed body: ").expect("all begin so").to_owned()
}

#[test]
fn what_is_unknown_is_named_with_its_path() {
    for (json, expected) in [
        (r#"{"nmae":"a"}"#, "request has no field \"nmae\", did you mean name?"),
        (r#"{"entirely else":[1,{"a":2}]}"#, "request has no field \"entirely else\""),
        (r#"{"@type":"a"}"#, "request has no field \"@type\""),
        (
            r#"{"inner":{"name":"a","parts":[{},{"wieght":1}]}}"#,
            "request.inner.parts[1] has no field \"wieght\", did you mean weight?",
        ),
        (
            r#"{"inner":{"smal_count":1}}"#,
            "request.inner has no field \"smal_count\", did you mean smallCount?",
        ),
        (
            r#"{"colour":"COLOUR_RDE"}"#,
            "request.colour: Colour has no name \"COLOUR_RDE\", did you mean COLOUR_RED?",
        ),
        (
            r#"{"any":{"tagNmae":"t","@type":"x/things.v1.Filter"}}"#,
            "request.any has no field \"tagNmae\", did you mean tagName?",
        ),
    ] {
        assert_eq!(expected, told(json), "{json}");
    }
}

#[test]
fn a_body_of_any_length_is_looked_through() {
    let parts = r#"{"name":"n"},"#.repeat(100_000);
    let found = told(&format!(r#"{{"parts":[{parts}{{"nmae":"a"}}]}}"#));
    assert_eq!("request.parts[100000] has no field \"nmae\", did you mean name?", found);
}

#[test]
fn what_holds_any_json_has_no_unknown_fields() {
    let json = r#"{"sizes":{"nmae":1},"extra":{"nmae":{"a":[null]}},"tags":["x"],"any":null,
        "small_count":1,"colour":7,"maybe":null,"inner":null,
        "made":"2024-01-02T03:04:05Z","parts":[{"colour":"COLOUR_RED"}]}"#;
    let read = |thing: JsonType| thing.read(json.as_bytes()).unwrap();
    assert_eq!(read(thing()), read(thing().refusing_unknown(true)));
}

fn opened_by(uri: &str, headers: &[(&'static str, &str)], refuses: bool) -> Opened {
    let limits = Limits { refuses_unknown_fields: refuses, ..limits(1 << 20) };
    let method = if uri.contains('?') { "GET" } else { "POST" };
    open(&things(), &parts(method, uri, headers), &limits, &|_| true)
}

/// The error for a misspelt field; empty: it is accepted.
fn said(uri: &str, headers: &[(&'static str, &str)], refuses: bool, body: &[u8]) -> String {
    match opened_by(uri, headers, refuses) {
        Opened::Call(mut call) => {
            assert!(!call.head.headers.contains_key(REFUSE), "it is for the door alone");
            upload(&mut *call.request, &cut(body, &[9]))
                .err()
                .map(|status| status.message)
                .unwrap_or_default()
        }
        Opened::Answer(answer) => {
            assert_eq!(StatusCode::BAD_REQUEST, answer.status(), "{}", text(&answer));
            text(&answer).to_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// Target, headers, body.
type Asked<'a> = (&'a str, &'a [(&'static str, &'a str)], &'a [u8]);

#[test]
fn every_door_for_json_does_as_the_client_says_or_else_as_the_ingress() {
    let json = br#"{"nmae":"a"}"#;
    let envelope = [&[0, 0, 0, 0, json.len() as u8][..], json].concat();
    let stream = [("content-type", "application/connect+json")];
    let of_connect = [JSON, ("connect-protocol-version", "1")];
    let get = "/things.v1.Things/Get?connect=v1&encoding=json&message=%7B%22nmae%22%3A%22a%22%7D";
    let doors: [Asked<'_>; 7] = [
        ("/things.v1.Things/Echo", &[JSON], json),
        ("/things.v1.Things/Echo", &of_connect, json),
        ("/things.v1.Things/Chat", &stream, &envelope),
        (get, &[], b""),
        ("/v1/echo", &[JSON], json),
        ("/v1/echo/n:again", &[JSON], json),
        ("/v1/things/x?nmae=a", &[], b""),
    ];
    for (uri, headers, body) in doors {
        for (header, of_ingress, is_refused) in [
            (None, false, false),
            (None, true, true),
            (Some("1"), false, true),
            (Some("0"), true, false),
        ] {
            let header = header.map(|value| (REFUSE, value));
            let headers: Vec<_> = headers.iter().copied().chain(header).collect();
            let said = said(uri, &headers, of_ingress, body);
            assert_eq!(is_refused, said.contains("did you mean name?"), "{uri}: {said}");
            assert_eq!(!is_refused, said.is_empty(), "{uri}: {said}");
        }
    }
}

#[test]
fn a_field_as_the_body_is_looked_at_as_the_field() {
    let headers = [JSON, (REFUSE, "1")];
    let mut call = match open(
        &things(),
        &parts("PUT", "/v1/echo/inner", &headers),
        &limits(1000),
        &|_| true,
    ) {
        Opened::Call(call) => call,
        other => panic!("{other:?}"),
    };
    let sent = [Bytes::from_static(br#"{"parts": [{"nmae": "a"}]}"#)];
    let (code, text) = refused(upload(&mut *call.request, &sent));
    assert_eq!(Code::InvalidArgument, code);
    assert!(text.contains("request.inner.parts[0] has no field \"nmae\""), "{text}");
}

#[test]
fn an_unclear_wish_is_refused_and_not_guessed() {
    let answer = opened_by("/v1/echo", &[JSON, (REFUSE, "true")], false);
    let Opened::Answer(answer) = answer else { panic!("{answer:?}") };
    assert_eq!(StatusCode::BAD_REQUEST, answer.status());
    assert!(text(&answer).contains("write 1 or 0"), "{}", text(&answer));
}
