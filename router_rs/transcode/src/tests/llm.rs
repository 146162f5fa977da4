//! Answers of engines for language models.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use router_call as call;
use router_call::{Caller, Cancelled, ClientEnd, Door};
use router_llm::{Head, Opened, Output};

use super::adaptor::{Client, head, on_io_thread};
use super::*;
use crate::work::LONG_BYTES;
use crate::{Transcoded, open_llm};

const PATH: &str = "/pyserve.llm.v1.Engine/Generate";

/// Writes each message as a line, and has enough after `stop`.
#[derive(Debug, Default)]
struct Lines {
    has_begun: bool,
}

impl Lines {
    fn begin(&mut self, status: StatusCode, output: &mut Output) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let headers = header_map(&[("content-type", "text/event-stream")]);
            output.head = Some(Head { status, headers });
        }
    }
}

impl router_llm::Answer for Lines {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        if message == b"wrong" {
            return Err(Status::new(Code::Internal, "no message"));
        }
        self.begin(StatusCode::OK, output);
        output.body.extend_from_slice(message);
        output.body.extend_from_slice(b"\n");
        output.is_ended = message == b"stop";
        Ok(())
    }

    fn finish(&mut self, output: &mut Output) {
        self.begin(StatusCode::OK, output);
        output.body.extend_from_slice(b"done\n");
        output.is_ended = true;
    }

    fn fail(&mut self, status: &Status, headers: &HeaderMap, output: &mut Output) {
        self.begin(StatusCode::IM_A_TEAPOT, output);
        if let Some(head) = &mut output.head {
            head.headers.extend(headers.clone());
        }
        output.body.extend_from_slice(status.message.as_bytes());
        output.is_ended = true;
    }

    fn keep_alive(&mut self, output: &mut Output) {
        self.begin(StatusCode::OK, output);
        output.body.extend_from_slice(b": waiting\n");
    }
}

/// One object, whose head has its length.
#[derive(Debug)]
struct Whole;

impl router_llm::Answer for Whole {
    fn message(&mut self, message: &[u8], output: &mut Output) -> Result<(), Status> {
        output.body.extend_from_slice(message);
        Ok(())
    }

    fn finish(&mut self, output: &mut Output) {
        let length = output.body.len().into();
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, length)]);
        output.head = Some(Head { status: StatusCode::OK, headers });
        output.is_ended = true;
    }

    fn fail(&mut self, status: &Status, _headers: &HeaderMap, output: &mut Output) {
        output.body.clear();
        output.body.extend_from_slice(status.message.as_bytes());
        self.finish(output);
    }

    fn keep_alive(&mut self, _output: &mut Output) {}
}

fn opened(headers: &[(&'static str, &str)]) -> Transcoding {
    opened_for(Box::new(Lines::default()), headers)
}

fn opened_for(
    answer: Box<dyn router_llm::Answer>,
    headers: &[(&'static str, &str)],
) -> Transcoding {
    let parts = parts("POST", "/v1/chat/completions", headers);
    let opened = Opened { path: PATH, message: Bytes::from_static(b"request"), answer };
    open_llm(&parts, opened, Door::OpenAi, &limits(1 << 20)).expect("a call")
}

fn framed(message: &[u8]) -> Bytes {
    frame_of(&[message])
}

fn told(answer: Answer<'_>) -> Told {
    download(&mut *opened(&[]).answer, answer)
}

#[test]
fn a_request_is_a_call_with_the_clients_metadata_and_timeout() {
    let mut call = opened(&[
        ("content-type", "application/json"),
        ("content-length", "9"),
        ("x-session-id", "s"),
        ("x-request-timeout-seconds", "2"),
    ]);
    let head = call.take_head();
    assert_eq!((PATH, "POST"), (head.uri.path(), head.method.as_str()));
    let value = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(Some("application/grpc+proto"), value("content-type"));
    assert_eq!((Some("s"), None), (value("x-session-id"), value("content-length")));
    assert_eq!(framed(b"request"), upload(&mut *call.request, &[]).unwrap());
}

#[test]
fn messages_are_written_however_they_are_cut() {
    let wire = [framed(b"a"), framed(b""), framed(b"bc")].concat();
    for cuts in [&[1][..], &[3, 7], &[100]] {
        let told = told(Answer { pieces: &cut(&wire, cuts), ..Answer::default() });
        assert_eq!("a\n\nbc\ndone\n", told.text());
        assert_eq!(Some("text/event-stream"), told.header("content-type"));
        assert_eq!(StatusCode::OK, told.status);
    }
}

#[test]
fn what_is_written_before_the_head_follows_it() {
    let long = Bytes::from(vec![b'y'; 2 * LONG_BYTES]);
    for message in [Bytes::from_static(b"one"), long] {
        let wire = [framed(&message), framed(b"two")].concat();
        let answer = Answer { pieces: &cut(&wire, &[2]), ..Answer::default() };
        let told = download(&mut *opened_for(Box::new(Whole), &[]).answer, answer);
        let expected = [&message[..], b"two"].concat();
        assert_eq!(expected, told.text().as_bytes());
        assert_eq!(Some(expected.len().to_string().as_str()), told.header("content-length"));
    }
}

#[test]
fn what_has_come_together_is_sent_together_up_to_a_limit() {
    let mut call = opened(&[]);
    let mut outbox = Outbox::default();
    let line = [b'x'; 999];
    call.answer.give(Bytes::from(framed(&line).repeat(100)));
    while call.answer.step(&mut outbox).unwrap() {}
    let sizes: Vec<usize> = outbox.body.iter().map(Bytes::len).collect();
    assert_eq!(100 * 1000, sizes.iter().sum::<usize>());
    let most = sizes.iter().max().unwrap();
    assert!((LONG_BYTES..LONG_BYTES + 1000).contains(most) && sizes.len() < 10, "{sizes:?}");
}

#[test]
fn packed_messages_and_long_ones_are_written_too() {
    let packed = gzip(b"packed");
    let long = vec![b'y'; 2 * LONG_BYTES];
    let wire = [framed(b"a"), packed_frame(&packed), framed(&long), framed(b"b")].concat();
    let headers = header_map(&[("grpc-encoding", "gzip"), ("x-of-engine", "1")]);
    let told = told(Answer { headers, pieces: &[wire.into()], ..Answer::default() });
    let long = String::from_utf8_lossy(&long).into_owned();
    assert_eq!(format!("a\npacked\n{long}\nb\ndone\n"), told.text());
    assert_eq!(Some("1"), told.header("x-of-engine"));
    assert_eq!(None, told.header("grpc-encoding"));
}

fn packed_frame(packed: &[u8]) -> Bytes {
    [&[1][..], &(packed.len() as u32).to_be_bytes(), packed].concat().into()
}

#[test]
fn a_failure_before_the_first_message_has_a_status() {
    let trailers = header_map(&[
        ("grpc-status", "8"),
        ("grpc-message", "full"),
        ("grpc-retry-pushback-ms", "2500"),
        ("pyserve-answered-by", "replica"),
    ]);
    for told in [
        told(Answer { trailers: trailers.clone(), ..Answer::default() }),
        download_trailers(&mut *opened(&[]).answer, trailers),
    ] {
        assert_eq!((StatusCode::IM_A_TEAPOT, "full"), (told.status, told.text()));
        assert_eq!(Some("3"), told.header("retry-after"));
        assert_eq!(Some("replica"), told.header("pyserve-answered-by"));
    }
}

/// Clients repeat a request after `RESOURCE_EXHAUSTED`, and would get the same message again.
#[test]
fn a_message_that_is_too_large_is_an_error_of_the_engine() {
    let large = Bytes::from_static(&[0, 0, 16, 0, 1]);
    let mut call = opened(&[]);
    call.answer.give(large);
    let error = call.answer.step(&mut Outbox::default()).unwrap_err();
    assert_eq!(Code::Internal, error.code);
    let bomb = gzip(&vec![b'x'; (1 << 20) + 1]);
    let headers = header_map(&[("grpc-encoding", "gzip")]);
    let pieces = &[packed_frame(&bomb)];
    let told = told(Answer { headers, pieces, ..Answer::default() });
    assert_eq!(StatusCode::IM_A_TEAPOT, told.status);
}

#[test]
fn a_failure_in_mid_stream_is_the_last_that_is_written() {
    let trailers = header_map(&[("grpc-status", "13"), ("grpc-message", "out of memory")]);
    let told_of =
        |pieces: &[Bytes], trailers| told(Answer { pieces, trailers, ..Answer::default() });
    let told = told_of(&[framed(b"a")], trailers);
    assert_eq!((StatusCode::OK, "a\nout of memory"), (told.status, told.text()));
    let wrong = [framed(b"a"), framed(b"wrong"), framed(b"b")].concat();
    assert_eq!("a\nno message", told_of(&[wrong.into()], ok()).text());
    assert!(told_of(&[framed(b"ab").slice(..6)], ok()).text().contains("inside of a message"));
    let large = Bytes::from_static(&[0, 0, 16, 0, 1]);
    assert!(told_of(&[large], ok()).text().contains("larger than the limit"));
}

fn transcoded(room: usize) -> Transcoded<Client> {
    Transcoded::new(Client { room, ..Client::default() }, opened(&[]))
}

#[test]
fn a_client_that_has_enough_ends_the_exchange_as_answered() {
    on_io_thread(async {
        let mut cx = Context::from_waker(Waker::noop());
        let mut chat = transcoded(1000);
        chat.head(head(), false).unwrap();
        assert!(chat.end().head.is_none(), "nothing is sent before the first message");
        assert!(matches!(chat.poll_room(10, &mut cx), Poll::Ready(Ok(10))));
        chat.body([framed(b"a"), framed(b"stop"), framed(b"b")].concat().into()).unwrap();
        assert!(!chat.has_enough());
        assert!(chat.poll_cancelled(&mut cx).is_ready());
        assert!(chat.has_enough() && chat.refused().is_none());
        assert!(matches!(chat.poll_room(10, &mut cx), Poll::Ready(Err(Cancelled))));
        assert!(chat.poll_settled(&mut cx).is_ready());
        assert!(chat.poll_finish(&mut cx).is_ready());
        assert_eq!("a\nstop\n", chat.end().text());
        assert!(chat.end().is_ended);
    });
}

#[test]
fn an_answer_that_has_come_to_its_end_is_not_cut() {
    on_io_thread(async {
        let mut cx = Context::from_waker(Waker::noop());
        let mut chat = transcoded(1000);
        chat.head(head(), false).unwrap();
        chat.body(framed(b"stop")).unwrap();
        chat.trailers(ok()).unwrap();
        assert!(chat.poll_settled(&mut cx).is_ready());
        assert!(!chat.has_enough());
        let mut failed = transcoded(1000);
        failed.fail(&call::Failure::new(Status::new(Code::Unavailable, "no replica"), true));
        assert!(failed.poll_finish(&mut cx).is_ready());
        assert_eq!("no replica", failed.end().text());
        let headers = &failed.end().head.as_ref().unwrap().headers;
        assert_eq!("ingress", headers["pyserve-answered-by"]);
        assert!(!headers.contains_key(RETRY_AFTER) && headers.contains_key(CONTENT_TYPE));
    });
}

#[test]
fn a_client_without_room_holds_the_engine_back() {
    on_io_thread(async {
        let mut cx = Context::from_waker(Waker::noop());
        let mut chat = transcoded(3);
        chat.head(head(), false).unwrap();
        chat.body(framed(b"abcd")).unwrap();
        assert!(chat.poll_room(10, &mut cx).is_pending());
        assert_eq!("abc", chat.end().text());
        chat.end().room = 2;
        assert!(matches!(chat.poll_room(10, &mut cx), Poll::Ready(Ok(10))));
        assert_eq!("abcd\n", chat.end().text());
    });
}

#[test]
fn a_silent_stream_is_kept_alive() {
    on_paused_clock(async {
        let mut chat = transcoded(1000);
        let begun = tokio::time::Instant::now();
        let silence = super::limits(1).keep_alive;
        for count in 1..3 {
            poll_fn(|cx| {
                assert!(chat.poll_cancelled(cx).is_pending());
                let is_there = chat.end().text().matches(": waiting\n").count() == count;
                if is_there { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        assert!(begun.elapsed() >= silence && begun.elapsed() <= silence * 3);
        assert_eq!(StatusCode::OK, chat.end().head.as_ref().unwrap().status);
        chat.fail(&call::Failure::new(Status::new(Code::Unavailable, "no replica"), true));
        poll_fn(|cx| chat.poll_finish(cx)).await;
        assert_eq!(": waiting\n: waiting\nno replica", chat.end().text());
    });
}

fn on_paused_clock(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}
