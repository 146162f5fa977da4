//! The codecs that a server accepts by method and by trust, over real sockets.

mod server_support;

use server_support::*;

const PICKLE: (&str, &str) = ("content-type", "application/grpc+pickle");
const JSON: (&str, &str) = ("content-type", "application/grpc+json");
const FRAMING: (&str, &str) = ("pyserve-framing", "1");

/// The status and the message or the body of one call, on a connection that proved itself or not.
async fn ask(path: &str, extra: &[(&str, &str)], size: usize, is_trusted: bool) -> Answer {
    let fixture = Fixture::start(config());
    let mut client = fixture.connect().await;
    if is_trusted {
        assert_eq!(200, introduce(&mut client, b"secret").await.as_u16());
    }
    let answer = call(&mut client, request(path, extra), frame(0, &vec![b'x'; size])).await;
    fixture.settle().await;
    assert!(fixture.user.cancelled.lock().is_empty(), "a refused call never came to its user");
    answer
}

fn status(answer: &Answer) -> &str {
    answer.status.as_deref().expect("a status")
}

#[tokio::test]
async fn pickles_are_for_proven_connections() {
    for path in [UNARY, PICKY, STREAM, "/not.Registered/Path"] {
        let refused = ask(path, &[PICKLE], 1, false).await;
        assert_eq!("12", status(&refused), "{path}");
        assert!(refused.message.contains("only inside the mesh"), "{}", refused.message);
    }
    for path in [UNARY, PICKY] {
        assert_eq!("0", status(&ask(path, &[PICKLE], 1, true).await), "{path}");
    }
}

#[tokio::test]
async fn a_codec_that_the_method_does_not_take_is_refused_by_name() {
    for is_trusted in [false, true] {
        let foreign = [("content-type", "application/grpc+foo")];
        let refused = ask(PICKY, &foreign, 1, is_trusted).await;
        let expected = "the method /test.T/Picky takes application/grpc+{pickle,json}, the client \
                        sent application/grpc+foo";
        assert_eq!(("12", expected), (status(&refused), refused.message.as_str()));
        assert_eq!("0", status(&ask(PICKY, &[JSON], 1, is_trusted).await));
        assert_eq!("0", status(&ask(UNARY, &foreign, 1, is_trusted).await));
    }
    let refused = ask(PICKY, &[], 1, false).await;
    assert!(refused.message.ends_with("application/grpc+proto"), "{}", refused.message);
}

#[tokio::test]
async fn a_method_has_its_own_limit_of_messages_for_handles() {
    assert_eq!("0", status(&ask(PICKY, &[JSON, FRAMING], 100, true).await));
    let refused = ask(PICKY, &[JSON, FRAMING], 101, true).await;
    assert_eq!("8", status(&refused));
    assert!(refused.message.contains("limit of 100 bytes"), "{}", refused.message);
    assert_eq!("0", status(&ask(UNARY, &[FRAMING], 101, true).await));
    assert_eq!("0", status(&ask(PICKY, &[JSON], 101, true).await));
    assert_eq!("0", status(&ask(PICKY, &[JSON, FRAMING], 101, false).await));
}

#[tokio::test]
async fn only_a_proven_connection_is_framed() {
    for (extra, is_trusted, expected) in [
        (FRAMING, true, "framed=true"),
        (FRAMING, false, "framed=false"),
        (("pyserve-framing", "0"), true, "framed=false"),
    ] {
        let answer = ask(ABOUT, &[extra], 1, is_trusted).await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(body.contains(expected), "{body}");
    }
}

#[tokio::test]
async fn the_user_learns_codec_and_model_and_names_the_answers_codec() {
    for name in ["multiplexed_model_id", "serve-multiplexed-model-id"] {
        let answer = ask(ABOUT, &[JSON, (name, "m1")], 1, false).await;
        assert_eq!("application/grpc+raw", answer.headers["content-type"]);
        assert_eq!("json framed=false model=m1", String::from_utf8_lossy(&answer.body[5..]));
    }
    let answer = ask(UNARY, &[JSON], 1, false).await;
    assert_eq!("application/grpc+json", answer.headers["content-type"]);
}
