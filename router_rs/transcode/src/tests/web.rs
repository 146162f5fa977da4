//! gRPC-Web.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

const PATH: &str = "/things.v1.Things/Echo";

#[test]
fn frames_pass_and_trailers_become_a_frame() {
    let mut web = call("POST", PATH, &[("content-type", "application/grpc-web+proto")]);
    assert_eq!("application/grpc+proto", web.head.headers["content-type"]);
    assert_eq!("trailers", web.head.headers["te"]);
    let sent = frame("{\"name\": \"a\"}");
    assert_eq!(Ok(sent.clone()), upload(&mut *web.request, std::slice::from_ref(&sent)));

    let trailers =
        header_map(&[("grpc-status", "5"), ("grpc-message", "no%20thing"), ("x-user", "u")]);
    let pieces = [sent.clone()];
    let answer = Answer { pieces: &pieces, trailers, ..Answer::default() };
    let told = download(&mut *web.answer, answer);
    assert_eq!(Some("application/grpc-web+proto"), told.header("content-type"));
    let (body, end) = told.body.split_at(sent.len());
    assert_eq!(&sent[..], body);
    assert_eq!((0x80, (end.len() - 5) as u8), (end[0], end[4]));
    let mut lines: Vec<&str> =
        std::str::from_utf8(&end[5..]).unwrap().split_terminator("\r\n").collect();
    lines.sort_unstable();
    assert_eq!(vec!["grpc-message: no%20thing", "grpc-status: 5", "x-user: u"], lines);
}

#[test]
fn an_answer_of_trailers_only_has_them_in_its_head() {
    let headers = [("content-type", "application/grpc-web"), ("origin", "https://a.test")];
    let mut web = call("POST", PATH, &headers);
    let trailers =
        header_map(&[("content-type", "application/grpc"), ("grpc-status", "12"), ("x-user", "u")]);
    let told = download_trailers(&mut *web.answer, trailers);
    assert_eq!((StatusCode::OK, &b""[..]), (told.status, &told.body[..]));
    assert_eq!(Some("12"), told.header("grpc-status"));
    assert_eq!(Some("application/grpc-web+proto"), told.header("content-type"));
    assert_eq!(Some("*"), told.header("access-control-allow-origin"));
    let exposed = told.header("access-control-expose-headers").unwrap();
    assert_eq!(
        "grpc-status,grpc-message,grpc-status-details-bin,x-request-id,x-pyserve-request-id,x-user",
        exposed
    );
}

#[test]
fn a_failure_is_a_status_before_and_after_the_head() {
    let status = Status::new(Code::Unavailable, "no replica");
    let mut web = call("POST", PATH, &[("content-type", "application/grpc-web")]);
    let mut outbox = Outbox::default();
    fail(&mut *web.answer, &status, &mut outbox);
    assert_eq!(Some("14"), Told::take(outbox).header("grpc-status"));

    let mut web = call("POST", PATH, &[("content-type", "application/grpc-web")]);
    let mut outbox = Outbox::default();
    web.answer.head(HeaderMap::new(), &mut outbox);
    fail(&mut *web.answer, &status, &mut outbox);
    let told = Told::take(outbox);
    assert_eq!(None, told.header("grpc-status"));
    let end = String::from_utf8_lossy(&told.body);
    assert!(end.contains("grpc-status: 14\r\ngrpc-message: no replica\r\n"), "{end:?}");
}

#[test]
fn a_codec_nobody_has_described_passes_too() {
    let web = call("POST", "/other.Service/Do", &[("content-type", "application/grpc-web+json")]);
    assert_eq!("application/grpc+json", web.head.headers["content-type"]);
    assert_eq!("/other.Service/Do", web.head.uri.path());
}

#[test]
fn letter_case_means_nothing_in_a_content_type() {
    for (sent, forwarded) in [
        ("Application/GRPC-Web", "application/grpc"),
        ("APPLICATION/GRPC-WEB-TEXT+Proto", "application/grpc+Proto"),
    ] {
        let web = call("POST", PATH, &[("content-type", sent)]);
        assert_eq!(forwarded, web.head.headers["content-type"]);
    }
}

#[test]
fn only_post_calls() {
    let response = answered("GET", PATH, &[("content-type", "application/grpc-web")]);
    assert_eq!(
        (StatusCode::METHOD_NOT_ALLOWED, "POST"),
        (response.status(), response.headers()["allow"].to_str().unwrap())
    );
}

#[test]
fn preflights_are_answered_for_methods_and_for_rpc_headers() {
    let preflight = [
        ("origin", "https://a.test"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,x-grpc-web"),
    ];
    for (uri, headers, expected) in [
        (PATH, &preflight[..2], Some("GET, POST")),
        ("/other.Service/Do", &preflight[..], Some("GET, POST")),
        ("/v1/echo", &preflight[..2], Some("POST")),
        ("/page", &preflight[..2], None),
        (PATH, &preflight[..1], Some("")),
    ] {
        let methods = match opened("OPTIONS", uri, headers) {
            Opened::Answer(answer) => {
                let methods = answer.headers().get("access-control-allow-methods").cloned();
                Some(methods.map_or_else(String::new, |value| value.to_str().unwrap().to_owned()))
            }
            _ => None,
        };
        assert_eq!(expected, methods.as_deref(), "{uri}");
    }
}

#[test]
fn text_is_decoded_and_encoded() {
    let mut web = call("POST", PATH, &[("content-type", "application/grpc-web-text+proto")]);
    assert_eq!("application/grpc+proto", web.head.headers["content-type"]);
    let sent = frame("{\"name\": \"abc\"}");
    let wire = Bytes::from(STANDARD.encode(&sent));
    assert_eq!(Ok(sent.clone()), upload(&mut *web.request, &[wire]));

    let pieces = cut(&sent, &[4]);
    let answer = Answer { pieces: &pieces, ..Answer::default() };
    let told = download(&mut *web.answer, answer);
    assert_eq!(Some("application/grpc-web-text+proto"), told.header("content-type"));
    let groups = told.body.chunks(4).flat_map(|group| STANDARD.decode(group).unwrap());
    let decoded: Vec<u8> = groups.collect();
    assert_eq!([&sent[..], b"\x80\x00\x00\x00\x10grpc-status: 0\r\n"].concat(), decoded);
}

#[test]
fn truncated_text_is_refused() {
    for (wire, expected) in [("AAAAAAA", "after 3 of"), ("AAAA*AAA", "no base64")] {
        let mut web = call("POST", PATH, &[("content-type", "application/grpc-web-text")]);
        let (code, message) =
            refused(upload(&mut *web.request, &[Bytes::from_static(wire.as_bytes())]));
        assert_eq!(Code::InvalidArgument, code);
        assert!(message.contains(expected), "{message}");
    }
}

proptest! {
    #[test]
    fn any_cutting_of_text_gives_the_same_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(1_usize..9, 1..20),
    ) {
        let mut web = call("POST", PATH, &[("content-type", "application/grpc-web-text")]);
        let wire = STANDARD.encode(&bytes);
        let made = upload(&mut *web.request, &cut(wire.as_bytes(), &cuts)).unwrap();
        prop_assert_eq!(&bytes[..], &made[..]);
    }
}
