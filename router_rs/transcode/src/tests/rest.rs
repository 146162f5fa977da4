//! Methods with their own paths.

use proptest::prelude::*;

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

/// The message for a request, as JSON.
fn made(method: &str, uri: &str, body: &str) -> String {
    let (mut rest, path) = {
        let rest = call(method, uri, &[JSON]);
        let path = rest.head.uri.path().to_owned();
        (rest, path)
    };
    let pieces = cut(body.as_bytes(), &[5]);
    let frames = upload(&mut *rest.request, &pieces).unwrap();
    let table = things();
    messages(&table.find(&path, None).unwrap().input, frames).join(" ")
}

#[test]
fn fields_come_from_path_query_and_body() {
    for (method, uri, body, expected) in [
        ("GET", "/v1/shelves/1/things/a%20b", "", r#"{"name":"shelves/1/things/a b"}"#),
        ("GET", "/v1/things/x?name=y&unknown=1&filter.unknown=2", "", r#"{"name":"x"}"#),
        (
            "GET",
            "/v1/things/x?filter.tag_name=t&filter.isNew=true&filter.data=AAE%3D",
            "",
            r#"{"name":"x","filter":{"tagName":"t","isNew":true,"data":"AAE="}}"#,
        ),
        (
            "GET",
            "/v1/things/x?colours=COLOUR_RED&colours=2&numbers=1&numbers=-2",
            "",
            r#"{"name":"x","colours":["COLOUR_RED","COLOUR_BLUE"],"numbers":["1","-2"]}"#,
        ),
        (
            "GET",
            "/v1/things/x?since=2024-01-02T03:04:05Z&maybe=false",
            "",
            r#"{"name":"x","since":"2024-01-02T03:04:05Z","maybe":false}"#,
        ),
        (
            "GET",
            "/v1/things/x?thing.inner.weight=1.5&thing.small_count=3",
            "",
            r#"{"name":"x","thing":{"smallCount":3,"inner":{"weight":1.5}}}"#,
        ),
        (
            "GET",
            "/v1/things/x?thing.sizes[a.b]=1&thing.sizes%5Bc%5D=2",
            "",
            r#"{"name":"x","thing":{"sizes":{"a.b":1,"c":2}}}"#,
        ),
        ("HEAD", "/v1/things/x", "", r#"{"name":"x"}"#),
        ("GET", "/v1/things?count=1&count=2", "", r#"{"count":2}"#),
        ("POST", "/v1/echo?name=q", r#"{"small_count": 1}"#, r#"{"smallCount":1}"#),
        ("POST", "/v1/echo", "", "{}"),
        (
            "POST",
            "/v1/echo/n:again",
            r#"{"name": "b", "isNew": true}"#,
            r#"{"name":"n","isNew":true}"#,
        ),
        (
            "PUT",
            "/v1/echo/inner?name=q&inner.name=r",
            r#"{"name": "i", "x": 1}"#,
            r#"{"name":"q","inner":{"name":"i"}}"#,
        ),
        ("PUT", "/v1/echo/inner", "", "{}"),
        (
            "POST",
            "/v1/echo/maybe/false",
            r#"{"name": "n", "maybe": true, "weight": -0.0}"#,
            r#"{"name":"n","weight":-0.0,"maybe":false}"#,
        ),
        ("POST", "/v1/echo/maybe/true", r#"{"maybe": null}"#, r#"{"maybe":true}"#),
    ] {
        assert_eq!(expected, made(method, uri, body), "{method} {uri}");
    }
}

#[test]
fn what_does_not_fit_a_field_is_refused() {
    for (uri, expected) in [
        ("/v1/things/x?filter=1", "is a message"),
        ("/v1/things/x?maybe=2", "write true or false"),
        ("/v1/things/x?thing.sizes.a=1", "write sizes[key]=value"),
        ("/v1/things/x?thing.parts.name=a", "write it in the body"),
        ("/v1/things/x?thing.extra.a=1", "write it in the body"),
        ("/v1/things/x?numbers=one", "malformed query: request.numbers"),
        ("/v1/things/x?colours=PURPLE", "Colour has no name"),
        ("/v1/things/x?numbers=9223372036854775808", "malformed query: request.numbers"),
        ("/v1/things?count=2147483648", "malformed query: request.count"),
        ("/v1/things/x?filter.data=*", "malformed query: request.filter.data"),
        ("/v1/things/x?since=yesterday", "malformed query: request.since"),
        ("/v1/things/x?filter.tag_name=%ff", "UTF-8"),
    ] {
        let answer = answered("GET", uri, &[]);
        assert_eq!(StatusCode::BAD_REQUEST, answer.status(), "{uri}");
        let start = r#"{"error":{"code":400,"message":""#;
        assert!(text(&answer).starts_with(start), "{uri}: {}", text(&answer));
        assert!(text(&answer).contains(expected), "{uri}: {}", text(&answer));
    }
    for body in ["[]", "1", "{", "{} {}", "nul", r#"{"name": 1}"#, "\u{feff}{}"] {
        let mut rest = call("POST", "/v1/echo", &[JSON]);
        let (code, text) = refused(upload(&mut *rest.request, &cut(body.as_bytes(), &[64])));
        assert_eq!(
            (Code::InvalidArgument, true),
            (code, text.starts_with("malformed body")),
            "{body}"
        );
    }
}

#[test]
fn a_wrong_value_of_the_path_is_not_said_to_be_in_the_body() {
    // Here `{name}` is `{made}`, a time. prost's own types would lose the paths.
    let files: Vec<Bytes> = files()
        .into_iter()
        .map(|file| {
            let mut bytes = file.to_vec();
            if let Some(at) = file.windows(12).position(|part| part == b"{name}:again") {
                bytes[at..at + 6].copy_from_slice(b"{made}");
            }
            bytes.into()
        })
        .collect();
    let services = [service()];
    let source =
        MethodSource { application: "app", deployment: "D", services: &services, files: &files };
    let table = MethodTable::default().next([source]);
    for (made, body, expected) in [
        ("yesterday", "{}", "malformed path: request.made"),
        ("2026-01-01T00:00:00Z", "{", "malformed body: EOF"),
    ] {
        let parts = parts("POST", &format!("/v1/echo/{made}:again"), &[JSON]);
        let Opened::Call(mut rest) = open(&table, &parts, &limits(1 << 20), &|_| true) else {
            panic!("no call")
        };
        let (code, text) = refused(upload(&mut *rest.request, &cut(body.as_bytes(), &[64])));
        assert_eq!((Code::InvalidArgument, true), (code, text.starts_with(expected)), "{text}");
    }
}

#[test]
fn answers_are_json_or_one_field_of_it() {
    let pieces = [frame(r#"{"name":"a","tags":["t"],"inner":{"weight":2}}"#)];
    let nothing = [frame("{}")];
    for (method, uri, pieces, expected) in [
        ("GET", "/v1/things/x", &pieces, r#"{"name":"a","tags":["t"],"inner":{"weight":2.0}}"#),
        ("GET", "/v1/tags", &pieces, r#"["t"]"#),
        ("GET", "/v1/tags", &nothing, "[]"),
        ("PUT", "/v1/echo/inner", &pieces, r#"{"weight":2.0}"#),
        ("PUT", "/v1/echo/inner", &nothing, "null"),
    ] {
        let mut rest = call(method, uri, &[JSON]);
        let told = download(&mut *rest.answer, Answer { pieces, ..Answer::default() });
        assert_eq!((200, expected), (told.status.as_u16(), told.text()), "{uri}");
        assert_eq!(Some("application/json"), told.header("content-type"));
    }
}

#[test]
fn errors_have_googles_form() {
    let mut rest = call("GET", "/v1/things/x", &[]);
    let details = "GhsKFnR5cGUudGVzdC90aGluZ3MudjEuUXgSAf8";
    let trailers = header_map(&[
        ("grpc-status", "5"),
        ("grpc-message", "no thing"),
        ("grpc-status-details-bin", details),
    ]);
    let told = download_trailers(&mut *rest.answer, trailers);
    assert_eq!(404, told.status.as_u16());
    let start = r#"{"error":{"code":404,"details":[{"@type":"#;
    assert!(told.text().starts_with(start), "{}", told.text());
    assert!(told.text().ends_with(r#""message":"no thing","status":"NOT_FOUND"}}"#));
}

#[test]
fn a_path_of_a_stream_answers_in_pieces() {
    let mut rest = call("GET", "/v1/things?count=2", &[("accept", "application/x-ndjson")]);
    let pieces = [frame("{}"), frame("{}")];
    let told = download(&mut *rest.answer, Answer { pieces: &pieces, ..Answer::default() });
    assert_eq!("{}\n{}\n", told.text());
}

#[test]
fn timeouts_of_plain_http_bound_the_call() {
    for (value, expected) in [("1.5", Some("1500000u")), ("0", None), ("-1", None), ("1e300", None)]
    {
        let said = ("x-request-timeout-seconds", value);
        let of_connect = ("connect-timeout-ms", "7");
        let rest = call("GET", "/v1/things/x", &[said]);
        let json = call("POST", "/things.v1.Things/Echo", &[JSON, said]);
        for call in [rest, json] {
            let timeout = call.head.headers.get("grpc-timeout");
            assert_eq!(expected, timeout.map(|value| value.to_str().unwrap()), "{value}");
        }
        let both = call("POST", "/things.v1.Things/Echo", &[JSON, said, of_connect]);
        assert_eq!("7000000n", both.head.headers["grpc-timeout"]);
    }
    for (method, uri) in [("GET", "/v1/things/x"), ("POST", "/things.v1.Things/Echo")] {
        for value in ["soon", "inf", "nan", "1e400"] {
            let wrong = answered(method, uri, &[JSON, ("x-request-timeout-seconds", value)]);
            assert_eq!(StatusCode::BAD_REQUEST, wrong.status());
            let said = format!("x-request-timeout-seconds=\\\"{value}\\\" is not allowed");
            assert!(text(&wrong).contains(&said), "{}", text(&wrong));
        }
    }
}

#[test]
fn other_paths_and_methods_may_be_plain_http() {
    assert!(matches!(opened("GET", "/page", &[]), Opened::NotOurs(None)));
    assert!(matches!(opened("POST", "/page", &[JSON]), Opened::NotOurs(None)));
    match opened("DELETE", "/v1/echo", &[]) {
        Opened::NotOurs(Some(answer)) => {
            assert_eq!(
                (405, "POST"),
                (answer.status().as_u16(), answer.headers()["allow"].to_str().unwrap())
            );
        }
        other => panic!("{other:?}"),
    }
    let form = ("content-type", "application/x-www-form-urlencoded");
    assert_eq!(415, answered("POST", "/v1/echo", &[form]).status().as_u16());
    for name in ["application/merge-patch+json", "application/vnd.api+json; charset=utf-8"] {
        call("POST", "/v1/echo", &[("content-type", name)]);
    }
}

proptest! {
    #[test]
    fn any_text_survives_path_and_query(name in "\\PC{1,20}", tag in "\\PC{0,20}") {
        use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let uri = format!("/v1/things/{}?filter.tag_name={}", encode(&name), encode(&tag));
        let mut rest = call("GET", &uri, &[]);
        let frames = upload(&mut *rest.request, &[]).unwrap();
        let table = things();
        let input = &table.find("/things.v1.Things/Get", None).unwrap().input;
        let json = input.write(&frames[5..]).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        prop_assert_eq!(&name, value["name"].as_str().unwrap());
        prop_assert_eq!(&tag, value["filter"]["tagName"].as_str().unwrap_or_default());
    }

    #[test]
    fn no_uri_panics(path in "/[a-z0-9/%:{}*=.~_-]{0,40}", query in "[a-z0-9&=%+._]{0,40}") {
        if let Ok(uri) = format!("{path}?{query}").parse::<http::Uri>() {
            let mut parts = parts("GET", "/", &[]);
            parts.uri = uri;
            let _opened = open(&things(), &parts, &limits(100), &|_| true);
        }
    }
}
