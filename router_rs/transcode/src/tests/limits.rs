//! Sizes, nesting, and other things of which a client can send too much.

use super::*;

const ECHO: &str = "/things.v1.Things/Echo";
const CHAT: &str = "/things.v1.Things/Chat";
const LIMIT: usize = 1000;

fn limited(uri: &str, headers: &[(&'static str, &str)]) -> Opened {
    open(&things(), &parts("POST", uri, headers), &limits(LIMIT), &|_| true)
}

fn limited_call(uri: &str, headers: &[(&'static str, &str)]) -> Transcoding {
    match limited(uri, headers) {
        Opened::Call(transcoding) => *transcoding,
        other => panic!("no call: {other:?}"),
    }
}

/// JSON of exactly this size.
fn json(size: usize) -> String {
    let json = format!("{{\"name\":\"{}\"}}", "a".repeat(size - 11));
    assert_eq!(size, json.len());
    json
}

fn envelope(flags: u8, bytes: &[u8]) -> Vec<u8> {
    [&[flags][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

#[test]
fn a_message_may_be_as_large_as_the_limit_and_not_larger() {
    type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], fn(usize) -> Vec<u8>);
    let plain = |size| json(size).into_bytes();
    let in_envelope = |size| envelope(0, json(size).as_bytes());
    let zipped = |size| gzip(json(size).as_bytes()).to_vec();
    let zipped_envelope = |size| envelope(1, &gzip(json(size).as_bytes()));
    let cases: [Case<'_>; 6] = [
        (ECHO, &[("content-type", "application/json")], plain),
        (ECHO, &[("content-type", "application/json"), ("content-encoding", "gzip")], zipped),
        ("/v1/echo", &[("content-type", "application/json")], plain),
        (CHAT, &[("content-type", "application/connect+json")], in_envelope),
        (CHAT, &[("content-type", "application/connect+proto")], in_envelope),
        (
            CHAT,
            &[("content-type", "application/connect+json"), ("connect-content-encoding", "gzip")],
            zipped_envelope,
        ),
    ];
    for (uri, headers, wire) in cases {
        let mut fits = limited_call(uri, headers);
        assert!(
            upload(&mut *fits.request, &cut(&wire(LIMIT), &[300])).is_ok(),
            "{uri} {headers:?}"
        );
        let mut exceeds = limited_call(uri, headers);
        let (code, message) =
            refused(upload(&mut *exceeds.request, &cut(&wire(LIMIT + 1), &[300])));
        assert_eq!(Code::ResourceExhausted, code, "{uri} {headers:?}");
        assert!(message.contains("1001 bytes") && message.contains("limit of 1000"), "{message}");
    }
}

#[test]
fn a_declared_size_over_the_limit_need_not_come() {
    for content_type in ["application/json", "application/proto"] {
        let headers = |length| [("content-type", content_type), ("content-length", length)];
        assert!(matches!(limited(ECHO, &headers("1000")), Opened::Call(_)));
        let Opened::Answer(answer) = limited(ECHO, &headers("1001")) else { panic!("a call") };
        assert_eq!(429, answer.status().as_u16());
        assert!(text(&answer).contains("resource_exhausted"), "{}", text(&answer));
    }
    let message = "a".repeat(LIMIT + 1);
    let uri = format!("/things.v1.Things/Get?encoding=proto&message={message}");
    let Opened::Answer(answer) =
        open(&things(), &parts("GET", &uri, &[]), &limits(LIMIT), &|_| true)
    else {
        panic!("a call")
    };
    assert_eq!(429, answer.status().as_u16());
}

#[test]
fn a_gzip_bomb_and_broken_gzip_are_refused() {
    let bomb = gzip(&vec![b' '; 50 << 20]);
    assert!(bomb.len() < 100_000);
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let wide = limits(100_000);
    let Opened::Call(mut call) = open(&things(), &parts("POST", ECHO, &headers), &wide, &|_| true)
    else {
        panic!("no call")
    };
    let (code, message) = refused(upload(&mut *call.request, &[bomb]));
    assert_eq!((Code::ResourceExhausted, true), (code, message.contains("decompressed")));

    let good = gzip(b"{}");
    for broken in [&b"no gzip"[..], &good[..good.len() - 1], &good[..4]] {
        let mut call = limited_call(ECHO, &headers);
        let (code, message) =
            refused(upload(&mut *call.request, &[Bytes::copy_from_slice(broken)]));
        assert_eq!(
            (Code::InvalidArgument, true),
            (code, message.contains("decompress")),
            "{message}"
        );
    }
    for (header, uri, content_type) in [
        ("content-encoding", ECHO, "application/json"),
        ("connect-content-encoding", CHAT, "application/connect+json"),
    ] {
        let headers = [("content-type", content_type), (header, "br")];
        let Opened::Answer(answer) = limited(uri, &headers) else { panic!("a call") };
        assert_eq!(501, answer.status().as_u16());
        assert!(text(&answer).contains("use gzip or identity"), "{}", text(&answer));
    }
}

#[test]
fn json_is_bounded_in_depth_and_checked() {
    let nested =
        |depth: usize| format!("{}{}", r#"{"inner":"#.repeat(depth) + "{}", "}".repeat(depth));
    let extra =
        |depth: usize| format!(r#"{{"extra":{{"a":{}{}}}}}"#, "[".repeat(depth), "]".repeat(depth));
    let unknown =
        |depth: usize| format!(r#"{{"unknown":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let any = |depth: usize| {
        let start = r#"{"any":{"@type":"x/things.v1.Thing","any":"#.repeat(depth);
        let inner = r#"{"@type":"x/things.v1.Filter"}"#;
        format!("{start}{inner}{}", "}}".repeat(depth))
    };
    assert_eq!(vec![nested(90)], messages(&thing(), frame(&nested(90))));
    assert!(thing().read(extra(40).as_bytes()).is_ok());
    // Ignored fields are skipped without recursion.
    assert_eq!(frame("{}"), frame(&unknown(100_000)));
    for json in [nested(100_000), extra(100_000), any(10_000), "[".repeat(1 << 20)] {
        assert_eq!(Code::InvalidArgument, thing().read(json.as_bytes()).unwrap_err().code);
    }
}

#[test]
fn answers_are_bounded_in_depth_through_any() {
    let nest = |depth: usize| {
        let mut bytes = Vec::new();
        for _ in 0..depth {
            let any =
                [&b"\x0a\x11"[..], b"x/things.v1.Thing", &[0x12], &varint(bytes.len()), &bytes]
                    .concat();
            bytes = [&[0x8a, 0x01][..], &varint(any.len()), &any].concat();
        }
        bytes
    };
    assert!(thing().write(&nest(20)).is_ok());
    let error = thing().write(&nest(5000)).unwrap_err();
    assert_eq!((Code::Internal, true), (error.code, error.message.contains("nested deeper")));
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn wrong_values_are_refused() {
    for body in [
        &br#"{"smallCount": 2147483648}"#[..],
        br#"{"smallCount": 1e100}"#,
        br#"{"bigCount": -1}"#,
        br#"{"bigCount": "18446744073709551616"}"#,
        br#"{"weight": 1e999}"#,
        br#"{"name": 1}"#,
        br#"{"name": "a", "isNew": "yes"}"#,
        br#"{"data": "*"}"#,
        br#"{"word": "a", "number": "1"}"#,
        br#"{"any": {"@type": "x/not.There"}}"#,
        br#"{"made": "2024-13-01T00:00:00Z"}"#,
        b"{\"name\": \"\xff\"}",
        b"{\"name\": \"a\"} x",
        b"{\"name\": \"\\ud800\"}",
        b"\xef\xbb\xbf{}",
    ] {
        let result = thing().read(body).map(|message| messages(&thing(), frame_of(&[&message])));
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!(Code::InvalidArgument, result.expect_err(&shown).code, "{shown}");
    }
}

#[test]
fn what_is_tolerated() {
    for (body, expected) in [
        (r#"{"small_count": "1", "tags": null}"#, r#"{"smallCount":1}"#),
        (r#"{"colour": "COLOUR_OF_THE_FUTURE", "word": "w"}"#, r#"{"word":"w"}"#),
        (r#"{"data": "_-8"}"#, r#"{"data":"/+8="}"#),
        (" {\n} ", "{}"),
    ] {
        assert_eq!(vec![expected], messages(&thing(), frame(body)), "{body}");
    }
}

#[test]
fn an_answer_over_the_limit_fails() {
    let headers = [("content-type", "application/json")];
    let large = [frame(&json(2 * LIMIT))];
    let mut call = limited_call(ECHO, &headers);
    let told = download(&mut *call.answer, Answer { pieces: &large, ..Answer::default() });
    assert_eq!(429, told.status.as_u16());
    let expected = "larger than the limit of 1000 bytes; to allow more, raise \
                    PYSERVE_INGRESS_MAX_MESSAGE_BYTES of the ingress";
    assert!(told.text().contains(expected), "{}", told.text());
}

proptest::proptest! {
    #[test]
    fn json_round_trips(
        name in "\\PC{0,10}", small: i32, big: u64, weight: f64, data: Vec<u8>, is_new: bool,
    ) {
        use base64::Engine;
        let json = serde_json::json!({
            "name": name, "smallCount": small, "bigCount": big.to_string(), "weight": weight,
            "data": base64::engine::general_purpose::STANDARD.encode(&data), "isNew": is_new,
        });
        let message = thing().read(json.to_string().as_bytes()).unwrap();
        for (field, expected) in json.as_object().unwrap() {
            let written = thing().write_field(&message, field).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&written).unwrap();
            proptest::prop_assert_eq!(expected, &value, "{}", field);
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _json = thing().read(&bytes);
        let _message = thing().write(&bytes);
    }
}
