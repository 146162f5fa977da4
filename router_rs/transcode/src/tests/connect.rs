//! Connect's unary calls, GET, and plain JSON to a method's path.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::*;

const ECHO: &str = "/things.v1.Things/Echo";
const GET: &str = "/things.v1.Things/Get";
const JSON: (&str, &str) = ("content-type", "application/json");
const PROTO: (&str, &str) = ("content-type", "application/proto");

fn message(json: &str) -> Bytes {
    frame(json).slice(5..)
}

#[test]
fn json_becomes_a_message_and_back() {
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("connect-protocol-version", "1"),
        ("connect-timeout-ms", "1500"),
        ("x-user", "u"),
        ("accept-encoding", "identity"),
    ];
    let mut connect = call("POST", ECHO, &headers);
    let head = &connect.head.headers;
    assert_eq!("application/grpc+proto", head["content-type"]);
    assert_eq!(
        ("1500000u", "u"),
        (head["grpc-timeout"].to_str().unwrap(), head["x-user"].to_str().unwrap())
    );
    assert!(!head.contains_key("connect-timeout-ms") && !head.contains_key("accept-encoding"));

    let body =
        br#"{"name": "a", "smallCount": 1, "big_count": "18446744073709551615", "unknown": [{}]}"#;
    let made = upload(&mut *connect.request, &cut(body, &[7])).unwrap();
    let expected = r#"{"name":"a","smallCount":1,"bigCount":"18446744073709551615"}"#;
    assert_eq!(vec![expected], messages(&thing(), made.clone()));

    let pieces = cut(&made, &[3]);
    let headers = header_map(&[("x-head", "h"), ("grpc-encoding", "identity")]);
    let trailers = header_map(&[("grpc-status", "0"), ("x-end-bin", "AAE")]);
    let told = download(&mut *connect.answer, Answer { headers, pieces: &pieces, trailers });
    assert_eq!((StatusCode::OK, expected), (told.status, told.text()));
    assert_eq!(Some("application/json"), told.header("content-type"));
    assert_eq!(Some(&*expected.len().to_string()), told.header("content-length"));
    assert_eq!((Some("h"), Some("AAE")), (told.header("x-head"), told.header("trailer-x-end-bin")));
    assert_eq!((None, None), (told.header("grpc-encoding"), told.header("grpc-status")));
}

fn piece(coder: &mut dyn RequestCoder) -> Bytes {
    match coder.take() {
        Ok(Taken::Piece(bytes)) => bytes,
        other => panic!("no piece: {other:?}"),
    }
}

#[test]
fn protobuf_passes_as_it_comes_when_its_length_is_known() {
    let body = message(r#"{"name": "abc"}"#);
    let length = body.len().to_string();
    let mut connect = call("POST", ECHO, &[PROTO, ("content-length", &length)]);
    assert_eq!([0, 0, 0, 0, 5], *piece(&mut *connect.request));
    assert!(matches!(connect.request.take(), Ok(Taken::NeedsMore)));
    connect.request.give(body.slice(..2), false);
    assert_eq!(body[..2], *piece(&mut *connect.request));
    connect.request.give(body.slice(2..), true);
    assert_eq!(body[2..], *piece(&mut *connect.request));
    assert!(matches!(connect.request.take(), Ok(Taken::End)));

    for wrong in [&body[..4], &b"123456"[..]] {
        let mut connect = call("POST", ECHO, &[PROTO, ("content-length", &length)]);
        let (code, text) = refused(upload(&mut *connect.request, &cut(wrong, &[2])));
        assert_eq!(Code::InvalidArgument, code);
        assert!(text.contains("content-length"), "{text}");
    }

    let mut connect = call("POST", ECHO, &[PROTO]);
    assert_eq!(
        frame(r#"{"name": "abc"}"#),
        upload(&mut *connect.request, &cut(&body, &[1])).unwrap()
    );
    let pieces = [frame(r#"{"name": "abc"}"#)];
    let told = download(&mut *connect.answer, Answer { pieces: &pieces, ..Answer::default() });
    assert_eq!(
        (Some("application/proto"), &body[..]),
        (told.header("content-type"), &told.body[..])
    );
}

#[test]
fn an_empty_body_is_an_empty_message_in_protobuf_only() {
    for headers in
        [&[PROTO, ("content-length", "0")][..], &[PROTO], &[PROTO, ("content-encoding", "gzip")]]
    {
        let mut connect = call("POST", ECHO, headers);
        assert_eq!(frame("{}"), upload(&mut *connect.request, &[]).unwrap());
    }
    let mut connect = call("POST", ECHO, &[JSON]);
    let (code, text) = refused(upload(&mut *connect.request, &[]));
    assert_eq!(Code::InvalidArgument, code);
    assert!(text.contains("write {}"), "{text}");
}

#[test]
fn gzip_is_taken_and_given() {
    let name = "a".repeat(5000);
    let json = format!("{{\"name\":\"{name}\"}}");
    let headers = [JSON, ("content-encoding", "gzip"), ("accept-encoding", "br, gzip;q=0.5")];
    let mut connect = call("POST", ECHO, &headers);
    let made = upload(&mut *connect.request, &cut(&gzip(json.as_bytes()), &[10])).unwrap();
    assert_eq!(vec![&*json], messages(&thing(), made.clone()));
    let pieces = [made];
    let told = download(&mut *connect.answer, Answer { pieces: &pieces, ..Answer::default() });
    assert_eq!(Some("gzip"), told.header("content-encoding"));
    assert!(told.body.len() < 200);
    assert_eq!(gzip(json.as_bytes()), told.body);

    for coding in ["GZIP", "x-gzip", "identity, gzip"] {
        let mut connect = call("POST", ECHO, &[JSON, ("content-encoding", coding)]);
        assert_eq!(pieces[0], upload(&mut *connect.request, &[gzip(json.as_bytes())]).unwrap());
        let mut rest = call("POST", "/v1/echo", &[JSON, ("content-encoding", coding)]);
        assert_eq!(pieces[0], upload(&mut *rest.request, &[gzip(json.as_bytes())]).unwrap());
    }
    let twice = [JSON, ("content-encoding", "gzip, gzip")];
    assert_eq!(StatusCode::NOT_IMPLEMENTED, answered("POST", ECHO, &twice).status());
    for accept in ["gzip;q=0", "br", "identity"] {
        let mut connect = call("POST", ECHO, &[JSON, ("accept-encoding", accept)]);
        let told = download(&mut *connect.answer, Answer { pieces: &pieces, ..Answer::default() });
        assert_eq!((None, &*json), (told.header("content-encoding"), told.text()));
    }
}

#[test]
fn errors_are_json_with_the_status_of_their_code() {
    for (code, status, name) in [
        (1, 499, "canceled"),
        (2, 500, "unknown"),
        (3, 400, "invalid_argument"),
        (4, 504, "deadline_exceeded"),
        (5, 404, "not_found"),
        (6, 409, "already_exists"),
        (7, 403, "permission_denied"),
        (8, 429, "resource_exhausted"),
        (9, 400, "failed_precondition"),
        (10, 409, "aborted"),
        (11, 400, "out_of_range"),
        (12, 501, "unimplemented"),
        (13, 500, "internal"),
        (14, 503, "unavailable"),
        (15, 500, "data_loss"),
        (16, 401, "unauthenticated"),
    ] {
        let mut connect = call("POST", ECHO, &[PROTO]);
        let trailers = header_map(&[
            ("grpc-status", &code.to_string()),
            ("grpc-message", "a%20b"),
            ("x-user", "u"),
        ]);
        let told = download_trailers(&mut *connect.answer, trailers);
        assert_eq!(status, told.status.as_u16(), "{name}");
        assert_eq!(format!("{{\"code\":\"{name}\",\"message\":\"a b\"}}"), told.text());
        assert_eq!(Some("application/json"), told.header("content-type"));
        assert_eq!(Some("u"), told.header("trailer-x-user"));
    }
}

#[test]
fn details_have_their_bytes_and_their_json_where_the_type_is_known() {
    // google.rpc.Status{details: [Any(Filter{tag_name: "t"}), Any(unknown)]}
    let mut status = vec![8, 5];
    for (url, value) in [("x/things.v1.Filter", &b"\x0a\x01t"[..]), ("x/a.B", b"\xff")] {
        let mut any = vec![0x0a, url.len() as u8];
        any.extend_from_slice(url.as_bytes());
        any.extend_from_slice(&[0x12, value.len() as u8]);
        any.extend_from_slice(value);
        status.extend_from_slice(&[0x1a, any.len() as u8]);
        status.extend_from_slice(&any);
    }
    let mut connect = call("POST", ECHO, &[JSON]);
    let trailers = header_map(&[
        ("grpc-status", "5"),
        ("grpc-status-details-bin", &STANDARD_NO_PAD.encode(&status)),
    ]);
    let told = download_trailers(&mut *connect.answer, trailers);
    assert_eq!(
        concat!(
            r#"{"code":"not_found","details":["#,
            r#"{"debug":{"tagName":"t"},"type":"things.v1.Filter","value":"CgF0"},"#,
            r#"{"type":"a.B","value":"/w"}]}"#
        ),
        told.text()
    );
    assert_eq!(None, told.header("trailer-grpc-status-details-bin"));
}

#[test]
fn a_get_has_its_message_in_the_query() {
    let binary = URL_SAFE_NO_PAD.encode(message(r#"{"name": "a?>"}"#));
    let zipped = URL_SAFE_NO_PAD.encode(gzip(br#"{"name":"a?>"}"#));
    for query in [
        "connect=v1&encoding=json&message=%7B%22name%22%3A%22a%3F%3E%22%7D".to_owned(),
        "encoding=json&message={%22name%22:%22a?%3E%22}".to_owned(),
        format!("connect=v1&encoding=proto&base64=1&message={binary}"),
        format!("connect=v1&encoding=proto&base64=1&message={binary}%3D"),
        format!("encoding=json&base64=1&compression=gzip&message={zipped}"),
        "encoding=proto&message=%0A%03a%3f%3E".to_owned(),
    ] {
        let mut connect = call("GET", &format!("{GET}?{query}"), &[]);
        assert_eq!(
            (http::Method::POST, GET),
            (connect.head.method.clone(), connect.head.uri.path())
        );
        let made = upload(&mut *connect.request, &[]).unwrap();
        assert_eq!(vec![r#"{"name":"a?>"}"#], messages(&thing(), made), "{query}");
    }
}

#[test]
fn protobuf_in_a_query_need_not_be_text() {
    let mut connect = call("GET", &format!("{GET}?encoding=proto&message=%12%03%1A%01%FF"), &[]);
    let made = upload(&mut *connect.request, &[]).unwrap();
    assert_eq!([0x12, 3, 0x1a, 1, 0xff], made[5..]);
}

#[test]
fn a_wrong_get_is_answered_at_once() {
    for (query, expected) in [
        ("encoding=json", "no message="),
        ("message={}", "encoding=\\\"\\\""),
        ("message={}&encoding=xml", "encoding=\\\"xml\\\""),
        ("connect=v2&encoding=json&message={}", "connect=\\\"v2\\\""),
        ("encoding=proto&base64=1&message=*", "base64"),
        ("encoding=json&message={", "EOF"),
        ("encoding=json&message=%ff", "malformed query"),
    ] {
        let answer = answered("GET", &format!("{GET}?{query}"), &[]);
        assert_eq!(StatusCode::BAD_REQUEST, answer.status(), "{query}");
        assert!(text(&answer).starts_with(r#"{"code":"invalid_argument""#), "{}", text(&answer));
        assert!(text(&answer).contains(expected), "{query}: {}", text(&answer));
    }
    let uri = format!("{GET}?encoding=json&compression=br&message=AAAA");
    assert_eq!(StatusCode::NOT_IMPLEMENTED, answered("GET", &uri, &[]).status());
}

#[test]
fn wrong_methods_and_content_types_are_answered_at_once() {
    for (method, uri, allowed) in [
        ("GET", ECHO, "POST"),
        ("PUT", ECHO, "POST"),
        ("DELETE", GET, "GET, POST"),
        ("GET", "/things.v1.Things/List", "POST"),
    ] {
        let answer = answered(method, uri, &[]);
        let allow = answer.headers()["allow"].to_str().unwrap();
        assert_eq!((StatusCode::METHOD_NOT_ALLOWED, allowed), (answer.status(), allow));
        assert_eq!(format!("this path takes {allowed}\n").as_bytes(), &answer.body()[..]);
    }
    for (uri, content_type, expected) in [
        (ECHO, "text/plain", "application/proto"),
        (ECHO, "application/json; charset=latin1", "application/proto"),
        (ECHO, "application/connect+json", "application/proto"),
        ("/things.v1.Things/List", "application/proto", "application/connect+proto"),
        ("/things.v1.Things/Chat", "application/json", "application/connect+proto"),
    ] {
        let answer =
            answered("POST", uri, &[("content-type", content_type), ("origin", "https://a.test")]);
        assert_eq!(StatusCode::UNSUPPORTED_MEDIA_TYPE, answer.status(), "{uri} {content_type}");
        assert!(answer.headers()["accept-post"].to_str().unwrap().contains(expected));
        let told =
            format!("content-type \"{content_type}\" came, and {uri} takes application/grpc, ");
        assert!(text(&answer).starts_with(&told), "{}", text(&answer));
        assert!(text(&answer).contains(expected));
        assert_eq!("*", answer.headers()["access-control-allow-origin"]);
    }
    let answer = answered("POST", ECHO, &[]);
    assert_eq!(StatusCode::UNSUPPORTED_MEDIA_TYPE, answer.status());
    assert!(text(&answer).starts_with("no content-type came, and "), "{}", text(&answer));
}

#[test]
fn a_misspelt_method_of_a_known_service_is_no_plain_http() {
    let json = [("content-type", "application/json"), ("origin", "https://a.test")];
    for (uri, expected) in [
        ("/things.v1.Things/Ehco", "did you mean /things.v1.Things/Echo?"),
        ("/things.v1.Things/Delete", "its service has Chat, "),
    ] {
        let Opened::Misspelt(answer) = opened("POST", uri, &json) else {
            panic!("{uri}: {:?}", opened("POST", uri, &json));
        };
        assert_eq!(StatusCode::NOT_FOUND, answer.status());
        assert!(text(&answer).contains(expected), "{}", text(&answer));
        assert_eq!("*", answer.headers()["access-control-allow-origin"]);
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (method, uri, headers) in [
        ("POST", "/things.v1.Thing/Echo", &json[..]),
        ("POST", "/things.v1.Things", &json),
        ("POST", "/things.v1.Things/", &json),
        ("POST", "/things.v1.Things/a/b", &json),
        ("GET", "/things.v1.Things/Ehco", &json),
        ("POST", "/things.v1.Things/Ehco", &form),
        ("POST", "/things.v1.Things/Ehco", &[]),
    ] {
        let opened = opened(method, uri, headers);
        assert!(matches!(opened, Opened::NotOurs(None)), "{method} {uri}: {opened:?}");
    }
}

#[test]
fn versions_and_timeouts_are_checked() {
    for (name, value, expected) in [
        ("connect-protocol-version", "2", "is 1"),
        ("connect-timeout-ms", "", "at most ten digits"),
        ("connect-timeout-ms", "12345678901", "at most ten digits"),
        ("connect-timeout-ms", "-1", "at most ten digits"),
        ("connect-timeout-ms", "1.5", "at most ten digits"),
    ] {
        let answer = answered("POST", ECHO, &[JSON, (name, value)]);
        assert_eq!(StatusCode::BAD_REQUEST, answer.status());
        assert!(text(&answer).contains(expected), "{}", text(&answer));
    }
    let twice = [JSON, ("connect-timeout-ms", "1"), ("connect-timeout-ms", "2")];
    assert_eq!(StatusCode::BAD_REQUEST, answered("POST", ECHO, &twice).status());
    for (value, expected) in [("0", "0n"), ("9999999999", "10000000S"), ("1", "1000000n")] {
        let connect = call("POST", ECHO, &[JSON, ("connect-timeout-ms", value)]);
        assert_eq!(expected, connect.head.headers["grpc-timeout"]);
    }
}

#[test]
fn methods_that_nobody_described_take_protobuf_of_clients_that_say_who_they_are() {
    let version = ("connect-protocol-version", "1");
    assert_eq!("/a.B/C", call("POST", "/a.B/C", &[PROTO, version]).head.uri.path());
    assert_eq!(
        "/a.B/C",
        call("POST", "/a.B/C", &[("content-type", "application/connect+proto")]).head.uri.path()
    );
    let unknown = answered("POST", "/a.B/C", &[JSON, version]);
    assert_eq!(StatusCode::NOT_FOUND, unknown.status());
    assert!(text(&unknown).contains("unimplemented") && text(&unknown).contains("/a.B/C"));
    for headers in [&[PROTO][..], &[JSON], &[]] {
        assert!(matches!(opened("POST", "/a.B/C", headers), Opened::NotOurs(None)));
    }
    let mut connect = call("POST", "/a.B/C", &[PROTO, version]);
    let status = Status::new(Code::Unimplemented, "no deployment serves /a.B/C");
    let mut outbox = Outbox::default();
    let headers = HeaderMap::new();
    connect
        .answer
        .fail(&Failure { status: &status, headers: &headers, is_of_mesh: true }, &mut outbox);
    let told = Told::take(outbox);
    assert_eq!((404, true), (told.status.as_u16(), told.text().contains("unimplemented")));
}

#[test]
fn a_unary_answer_has_one_message() {
    let one = frame(r#"{"name": "a"}"#);
    let garbage = Bytes::from_static(&[0, 0, 0, 0, 1, 0xff]);
    for (pieces, expected) in [
        (vec![], "without a whole message"),
        (vec![one.slice(..6)], "without a whole message"),
        (vec![one.clone(), one.slice(..6)], "without a whole message"),
        (vec![one.clone(), one.clone()], "more than one"),
        (vec![garbage], "cannot be written as JSON"),
    ] {
        let mut connect = call("POST", ECHO, &[JSON]);
        let told = download(&mut *connect.answer, Answer { pieces: &pieces, ..Answer::default() });
        assert_eq!(500, told.status.as_u16());
        assert!(told.text().contains(expected), "{}", told.text());
    }
    let mut connect = call("POST", ECHO, &[JSON]);
    let told = download_trailers(&mut *connect.answer, HeaderMap::new());
    assert!(told.text().contains("without a status"), "{}", told.text());
}
