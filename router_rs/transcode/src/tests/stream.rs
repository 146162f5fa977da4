//! Connect's streams, and streams as plain JSON.

use proptest::prelude::*;

use super::*;

const CHAT: &str = "/things.v1.Things/Chat";
const LIST: &str = "/things.v1.Things/List";
const JSON: (&str, &str) = ("content-type", "application/connect+json");
const PROTO: (&str, &str) = ("content-type", "application/connect+proto");

fn envelope(flags: u8, bytes: &[u8]) -> Vec<u8> {
    let mut envelope = vec![flags];
    envelope.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    envelope.extend_from_slice(bytes);
    envelope
}

#[test]
fn json_is_converted_message_by_message() {
    let headers = [JSON, ("connect-content-encoding", "gzip")];
    let mut chat = call("POST", CHAT, &headers);
    let wire = [
        envelope(0, br#"{"name":"a"}"#),
        envelope(1, &gzip(br#"{"name":"b"}"#)),
        envelope(0, b"{}"),
    ];
    let made = upload(&mut *chat.request, &[wire.concat().into()]).unwrap();
    assert_eq!(vec![r#"{"name":"a"}"#, r#"{"name":"b"}"#, "{}"], messages(&thing(), made.clone()));

    let pieces = cut(&made, &[4]);
    let trailers = header_map(&[("grpc-status", "0"), ("x-a", "1"), ("x-b-bin", "AAE")]);
    let told =
        download(&mut *chat.answer, Answer { pieces: &pieces, trailers, ..Answer::default() });
    assert_eq!(Some("application/connect+json"), told.header("content-type"));
    let end = br#"{"metadata":{"x-a":["1"],"x-b-bin":["AAE"]}}"#;
    let expected = [
        envelope(0, br#"{"name":"a"}"#),
        envelope(0, br#"{"name":"b"}"#),
        envelope(0, b"{}"),
        envelope(2, end),
    ];
    assert_eq!(String::from_utf8_lossy(&expected.concat()), told.text());
}

#[test]
fn protobuf_passes_compressed_or_not() {
    let headers =
        [PROTO, ("connect-content-encoding", "gzip"), ("connect-accept-encoding", "gzip,br")];
    let mut chat = call("POST", CHAT, &headers);
    assert_eq!("gzip", chat.head.headers["grpc-encoding"]);
    assert_eq!("identity,gzip", chat.head.headers["grpc-accept-encoding"]);
    let wire: Bytes = [envelope(1, &gzip(b"\x0a\x01a")), envelope(0, b"")].concat().into();
    assert_eq!(Ok(wire.clone()), upload(&mut *chat.request, &cut(&wire, &[3])));

    let answer = Answer {
        headers: header_map(&[("grpc-encoding", "gzip")]),
        pieces: std::slice::from_ref(&wire),
        ..Answer::default()
    };
    let told = download(&mut *chat.answer, answer);
    assert_eq!(Some("gzip"), told.header("connect-content-encoding"));
    assert_eq!([&wire[..], &envelope(2, b"{}")].concat(), told.body);
    let plain = call("POST", CHAT, &[PROTO]);
    assert_eq!("identity", plain.head.headers["grpc-accept-encoding"]);
    assert!(!plain.head.headers.contains_key("grpc-encoding"));
}

#[test]
fn wrong_envelopes_are_refused_in_both_codecs() {
    let good = envelope(0, b"{}");
    for (wire, expected) in [
        (envelope(4, b"{}"), "flag"),
        (envelope(2, b"{}"), "flag"),
        (envelope(1, b"{}"), "compressed"),
        (good[..3].to_vec(), "ends inside"),
        ([&good[..], &good[..6]].concat(), "ends inside"),
    ] {
        let code_expected =
            if expected == "compressed" { Code::Internal } else { Code::InvalidArgument };
        for content_type in [JSON, PROTO] {
            let mut chat = call("POST", CHAT, &[content_type]);
            let (code, text) = refused(upload(&mut *chat.request, &[wire.clone().into()]));
            assert_eq!(code_expected, code, "{wire:?}");
            assert!(text.contains(expected) || text.contains("end-of-stream"), "{wire:?}: {text}");
        }
    }
}

#[test]
fn a_method_without_a_request_stream_takes_one_message() {
    let one = envelope(0, b"{}");
    for content_type in [JSON, PROTO] {
        for (wire, expected) in [(vec![], "there is none"), ([&one[..], &one].concat(), "")] {
            let mut list = call("POST", LIST, &[content_type]);
            let (code, text) = refused(upload(&mut *list.request, &[wire.into()]));
            assert_eq!(Code::Unimplemented, code);
            assert!(text.contains(expected), "{text}");
        }
    }
    let two = [envelope(0, b"{}"), envelope(0, b"{}")].concat();
    let mut list = call("POST", LIST, &[JSON]);
    assert!(refused(upload(&mut *list.request, &[two.into()])).1.contains("there are more"));
    let mut collect = call("POST", "/things.v1.Things/Collect", &[JSON]);
    assert_eq!(Ok(Bytes::new()), upload(&mut *collect.request, &[]));
}

#[test]
fn a_failed_stream_ends_with_its_error() {
    let error = br#"{"error":{"code":"aborted","message":"no"},"metadata":{"x-a":["1"]}}"#;
    let trailers = header_map(&[("grpc-status", "10"), ("grpc-message", "no"), ("x-a", "1")]);
    let mut chat = call("POST", CHAT, &[JSON]);
    let told = download_trailers(&mut *chat.answer, trailers.clone());
    assert_eq!((StatusCode::OK, &envelope(2, error)[..]), (told.status, &told.body[..]));
    let mut chat = call("POST", CHAT, &[PROTO]);
    let pieces = [frame("{}")];
    let told =
        download(&mut *chat.answer, Answer { pieces: &pieces, trailers, ..Answer::default() });
    assert_eq!([&frame("{}")[..], &envelope(2, error)].concat(), told.body);

    let status = Status::new(Code::Unavailable, "gone");
    let mut outbox = Outbox::default();
    fail(&mut *call("POST", CHAT, &[PROTO]).answer, &status, &mut outbox);
    let end = br#"{"error":{"code":"unavailable","message":"gone"}}"#;
    assert_eq!(envelope(2, end), Told::take(outbox).body);
}

#[test]
fn plain_json_gets_an_array_or_lines() {
    let plain = ("content-type", "application/json");
    let pieces = cut(&[frame(r#"{"name":"a"}"#), frame(r#"{"name":"b"}"#)].concat(), &[9]);
    for (accept, pieces, content_type, body) in [
        ("*/*", &pieces[..], "application/json", r#"[{"name":"a"},{"name":"b"}]"#),
        (
            "application/x-ndjson",
            &pieces,
            "application/x-ndjson",
            "{\"name\":\"a\"}\n{\"name\":\"b\"}\n",
        ),
        ("text/html, application/jsonl;q=1", &[], "application/x-ndjson", ""),
        ("application/json", &[], "application/json", "[]"),
    ] {
        let mut list = call("POST", LIST, &[plain, ("accept", accept)]);
        assert!(upload(&mut *list.request, &[Bytes::from_static(b"{}")]).is_ok());
        let told = download(&mut *list.answer, Answer { pieces, ..Answer::default() });
        assert_eq!((Some(content_type), body), (told.header("content-type"), told.text()));
    }
}

#[test]
fn plain_json_fails_by_status_before_the_first_message_and_by_an_element_after_it() {
    let plain = ("content-type", "application/json");
    let error = r#"{"error":{"code":409,"message":"no","status":"ABORTED"}}"#;
    let trailers = || header_map(&[("grpc-status", "10"), ("grpc-message", "no")]);
    for accept in ["*/*", "application/x-ndjson"] {
        let mut list = call("POST", LIST, &[plain, ("accept", accept)]);
        let told =
            download(&mut *list.answer, Answer { trailers: trailers(), ..Answer::default() });
        assert_eq!((409, error), (told.status.as_u16(), told.text()));
        assert_eq!(Some("application/json"), told.header("content-type"));
    }
    let pieces = [frame("{}")];
    for (accept, expected) in
        [("*/*", format!("[{{}},{error}]")), ("application/jsonl", format!("{{}}\n{error}\n"))]
    {
        let mut list = call("POST", LIST, &[plain, ("accept", accept)]);
        let answer = Answer { pieces: &pieces, trailers: trailers(), ..Answer::default() };
        let told = download(&mut *list.answer, answer);
        assert_eq!((200, &*expected), (told.status.as_u16(), told.text()));
    }
}

proptest! {
    #[test]
    fn any_cutting_of_a_stream_gives_the_same_frames(
        names in prop::collection::vec("[a-z]{0,12}", 0..6),
        cuts in prop::collection::vec(1_usize..11, 1..30),
        is_json: bool,
    ) {
        let json = |name: &String| format!("{{\"name\":\"{name}\"}}");
        let wire: Vec<u8> = if is_json {
            names.iter().flat_map(|name| envelope(0, json(name).as_bytes())).collect()
        } else {
            names.iter().flat_map(|name| frame(&json(name))).collect()
        };
        let content_type = if is_json { JSON } else { PROTO };
        let expected: Vec<u8> = names.iter().flat_map(|name| frame(&json(name))).collect();
        let mut chat = call("POST", CHAT, &[content_type]);
        prop_assert_eq!(&expected, &upload(&mut *chat.request, &cut(&wire, &cuts)).unwrap()[..]);

        let whole = [Bytes::from(expected.clone())];
        let pieces = cut(&expected, &cuts);
        let answers = [&whole[..], &pieces].map(|pieces| {
            let mut chat = call("POST", CHAT, &[content_type]);
            download(&mut *chat.answer, Answer { pieces, ..Answer::default() })
        });
        prop_assert_eq!(&answers[0], &answers[1]);
    }
}
