//! The adaptor between a client's end and the exchange.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::response;
use router_call as call;
use router_call::{Caller, Cancelled, ClientEnd, Piece};

use super::*;
use crate::Transcoded;

const CHAT: &str = "/things.v1.Things/Chat";

/// A client whose pieces and room are set by the test.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) is_complete: bool,
    pub(super) accepted: usize,
    pub(super) room: usize,
    pub(super) head: Option<response::Parts>,
    pub(super) body: Vec<u8>,
    pub(super) is_ended: bool,
    pub(super) is_gone: bool,
}

impl Client {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Caller for Client {
    fn on_sent(&mut self, _peer: &Arc<str>) {}

    fn poll_piece(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Piece, Cancelled>> {
        match self.pieces.pop_front() {
            Some(bytes) => {
                let is_last = self.is_complete && self.pieces.is_empty();
                Poll::Ready(Ok(Piece { bytes, is_last }))
            }
            None if self.is_complete => {
                Poll::Ready(Ok(Piece { bytes: Bytes::new(), is_last: true }))
            }
            None => Poll::Pending,
        }
    }

    fn accepted(&mut self, bytes: usize) {
        assert!(bytes > 0);
        self.accepted += bytes;
    }

    fn poll_cancelled(&mut self, _cx: &mut Context<'_>) -> Poll<Cancelled> {
        if self.is_gone { Poll::Ready(Cancelled) } else { Poll::Pending }
    }

    fn head(&mut self, head: response::Parts, is_last: bool) -> Result<(), Cancelled> {
        assert!(self.head.is_none());
        self.head = Some(head);
        self.is_ended = is_last;
        Ok(())
    }

    fn poll_room(
        &mut self,
        wanted: usize,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Cancelled>> {
        if self.room == 0 { Poll::Pending } else { Poll::Ready(Ok(self.room.min(wanted))) }
    }

    fn body(&mut self, bytes: Bytes) -> Result<(), Cancelled> {
        assert!(!self.is_ended && bytes.len() <= self.room);
        self.room -= bytes.len();
        self.body.extend_from_slice(&bytes);
        Ok(())
    }

    fn trailers(&mut self, trailers: HeaderMap) -> Result<(), Cancelled> {
        assert!(trailers.is_empty() && !self.is_ended);
        self.is_ended = true;
        Ok(())
    }
}

impl ClientEnd for Client {
    fn fail(&mut self, _failure: &call::Failure) {
        unreachable!("the client is told in its own protocol");
    }
}

fn chat(client: Client, headers: &[(&'static str, &str)]) -> Transcoded<Client> {
    Transcoded::new(client, call("POST", CHAT, headers))
}

pub(super) fn head() -> response::Parts {
    Response::new(()).into_parts().0
}

fn envelope(bytes: &[u8]) -> Vec<u8> {
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

const JSON: [(&str, &str); 1] = [("content-type", "application/connect+json")];
const PROTO: [(&str, &str); 1] = [("content-type", "application/connect+proto")];

#[test]
fn window_returns_for_what_is_held_and_for_what_the_replica_took() {
    let mut cx = Context::from_waker(Waker::noop());
    let wire = [envelope(br#"{"name":"a"}"#), envelope(br#"{"name":"b"}"#)].concat();
    // The first message in two pieces; the second piece has the second message, too.
    let pieces = [&wire[..10], &wire[10..]].map(Bytes::copy_from_slice).into();
    let client = Client { pieces, is_complete: true, ..Client::default() };
    let mut chat = chat(client, &JSON);
    let Poll::Ready(Ok(first)) = chat.poll_piece(&mut cx) else { panic!("no piece") };
    assert_eq!((frame(r#"{"name":"a"}"#), false), (first.bytes, first.is_last));
    // The window for held bytes is returned at once: without it the message could not be completed.
    assert_eq!(10, chat.end().accepted);
    let Poll::Ready(Ok(second)) = chat.poll_piece(&mut cx) else { panic!("no piece") };
    assert_eq!(frame(r#"{"name":"b"}"#), second.bytes);
    assert_eq!(10, chat.end().accepted);
    chat.accepted(8);
    assert_eq!(17, chat.end().accepted);
    chat.accepted(4);
    assert_eq!(17 + 17 / 2, chat.end().accepted);
    chat.accepted(4);
    assert_eq!(wire.len(), chat.end().accepted);
    let Poll::Ready(Ok(last)) = chat.poll_piece(&mut cx) else { panic!("no end") };
    assert_eq!((0, true), (last.bytes.len(), last.is_last));
}

#[test]
fn a_wrong_request_ends_the_exchange_and_is_answered() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut client = Client { room: 1000, ..Client::default() };
    client.pieces = [Bytes::from(envelope(b"{"))].into();
    let mut chat = chat(client, &JSON);
    assert!(matches!(chat.poll_piece(&mut cx), Poll::Ready(Err(Cancelled))));
    assert_eq!(Some(Code::InvalidArgument), chat.refused().map(|refusal| refusal.status.code));
    assert!(chat.poll_cancelled(&mut cx).is_ready());
    assert!(chat.poll_finish(&mut cx).is_ready());
    assert!(chat.end().is_ended);
    let body = String::from_utf8_lossy(&chat.end().body).into_owned();
    assert!(body.contains("invalid_argument"), "{body}");
}

#[test]
fn a_client_without_room_holds_the_answer_back() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut chat = chat(Client::default(), &PROTO);
    chat.head(head(), false).unwrap();
    assert_eq!(200, chat.end().head.as_ref().unwrap().status.as_u16());
    assert!(matches!(chat.poll_room(10, &mut cx), Poll::Ready(Ok(10))));
    chat.body(frame("{}")).unwrap();
    assert!(chat.poll_room(10, &mut cx).is_pending());
    chat.end().room = 3;
    assert!(chat.poll_cancelled(&mut cx).is_pending());
    assert_eq!(3, chat.end().body.len());
    chat.trailers(ok()).unwrap();
    assert!(chat.poll_finish(&mut cx).is_pending());
    chat.end().room = 1000;
    assert!(chat.poll_finish(&mut cx).is_ready());
    assert!(chat.end().is_ended);
    assert_eq!([&frame("{}")[..], b"\x02\0\0\0\x02{}"].concat(), chat.end().body);
}

#[test]
fn a_broken_answer_is_replaced_by_its_failure() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut chat = chat(Client { room: 1000, ..Client::default() }, &JSON);
    chat.head(head(), false).unwrap();
    chat.body(Bytes::from_static(&[9, 0, 0, 0, 0])).unwrap();
    assert!(matches!(chat.poll_room(1, &mut cx), Poll::Ready(Err(Cancelled))));
    assert_eq!(Some(Code::Internal), chat.refused().map(|refusal| refusal.status.code));
    assert!(chat.poll_finish(&mut cx).is_ready());
    assert!(String::from_utf8_lossy(&chat.end().body).contains("internal"));
}

/// A `Thing` whose `made` lies beyond the years that JSON can have, as a gRPC frame.
const THING_OF_NO_TIME: &[u8] = b"\0\0\0\0\x0c\x62\x0a\x08\x80\x80\x80\x80\x80\x80\x80\x80\x10";

/// Passes a whole answer on, as the exchange does.
fn pass_on(chat: &mut Transcoded<Client>, body: &[u8], cx: &mut Context<'_>) {
    chat.head(head(), false).unwrap();
    assert!(matches!(chat.poll_room(body.len(), cx), Poll::Ready(Ok(_))));
    chat.body(Bytes::copy_from_slice(body)).unwrap();
    chat.trailers(ok()).unwrap();
}

#[test]
fn what_the_client_is_told_is_known_before_it_has_the_end() {
    let mut cx = Context::from_waker(Waker::noop());
    let unary = [("content-type", "application/json")];
    for (method, headers) in [("/v1/echo", &unary), ("/things.v1.Things/Echo", &unary)] {
        for (body, expected) in [(&*frame("{}"), None), (THING_OF_NO_TIME, Some(Code::Internal))] {
            let mut echo = Transcoded::new(Client::default(), call("POST", method, headers));
            pass_on(&mut echo, body, &mut cx);
            assert_eq!(None, echo.refused());
            assert!(echo.poll_settled(&mut cx).is_ready());
            assert_eq!(expected, echo.refused().map(|refusal| refusal.status.code));
            assert!(echo.end().head.is_none(), "the client has got something already");
            echo.end().room = 1000;
            assert!(echo.poll_finish(&mut cx).is_ready());
            let status = echo.end().head.as_ref().map(|head| head.status.as_u16());
            assert_eq!(Some(if expected.is_some() { 500 } else { 200 }), status);
        }
    }
}

#[test]
fn the_end_of_a_stream_is_known_when_the_client_has_room_for_what_is_before_it() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut chat = chat(Client::default(), &JSON);
    pass_on(&mut chat, &[&frame("{}"), THING_OF_NO_TIME].concat(), &mut cx);
    assert!(chat.poll_settled(&mut cx).is_pending());
    chat.end().room = 1000;
    assert!(chat.poll_settled(&mut cx).is_ready());
    assert_eq!(envelope(b"{}"), chat.end().body);
    let refusal = chat.refused().expect("it cannot be written");
    assert!(refusal.status.message.contains("a time is of the years"), "{refusal:?}");
    assert!(chat.poll_finish(&mut cx).is_ready());
    assert!(String::from_utf8_lossy(&chat.end().body).contains("internal"));
}

#[test]
fn a_failure_of_the_mesh_and_one_of_http_are_told() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut failed = chat(Client { room: 1000, ..Client::default() }, &JSON);
    failed.fail(&call::Failure::new(Status::new(Code::Unavailable, "no replica"), true));
    failed.fail(&call::Failure::new(Status::new(Code::Internal, "twice"), true));
    assert!(failed.poll_finish(&mut cx).is_ready());
    let body = String::from_utf8_lossy(&failed.end().body).into_owned();
    assert!(body.contains("no replica") && !body.contains("twice"), "{body}");
    let headers = &failed.end().head.as_ref().unwrap().headers;
    assert_eq!("ingress", headers["pyserve-answered-by"]);

    let mut strange = chat(Client { room: 1000, ..Client::default() }, &JSON);
    let mut head = head();
    head.status = StatusCode::BAD_GATEWAY;
    assert_eq!(Err(Cancelled), strange.head(head, false));
    assert!(strange.poll_finish(&mut cx).is_ready());
    assert!(String::from_utf8_lossy(&strange.end().body).contains("unavailable"));
}

#[test]
fn a_client_that_is_gone_ends_it() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut chat = chat(Client { is_gone: true, ..Client::default() }, &JSON);
    assert!(chat.poll_cancelled(&mut cx).is_ready());
    assert_eq!(None, chat.refused());
}

/// On a runtime, as on an I/O thread.
pub(super) fn on_io_thread(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Keeps the conversion thread busy until the sender is dropped.
fn busy_elsewhere() -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || released.recv());
    release
}

fn large(letter: &str) -> String {
    format!(r#"{{"name":"{}"}}"#, letter.repeat(2 * super::super::work::LONG_BYTES))
}

#[test]
fn a_long_message_is_converted_elsewhere_and_those_behind_it_wait() {
    on_io_thread(async {
        let texts = [large("a"), r#"{"name":"b"}"#.to_owned(), large("c")];
        let wire: Vec<u8> = texts.iter().flat_map(|text| envelope(text.as_bytes())).collect();
        let pieces = [Bytes::from(wire)].into();
        let client = Client { pieces, is_complete: true, ..Client::default() };
        let mut chat = chat(client, &JSON);
        let busy = busy_elsewhere();
        assert!(chat.poll_piece(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(busy);
        for text in texts {
            let piece = std::future::poll_fn(|cx| chat.poll_piece(cx)).await.unwrap();
            assert_eq!(frame(&text), piece.bytes);
        }
        let last = std::future::poll_fn(|cx| chat.poll_piece(cx)).await.unwrap();
        assert!(last.is_last);
    });
}

#[test]
fn a_packed_message_of_a_query_is_converted_elsewhere() {
    let query = |packed: &[u8]| {
        let message = URL_SAFE_NO_PAD.encode(packed);
        format!("/things.v1.Things/Get?encoding=json&base64=1&compression=gzip&message={message}")
    };
    on_io_thread(async {
        let text = large("a");
        let call = call("GET", &query(&gzip(text.as_bytes())), &[]);
        let mut chat = Transcoded::new(Client { is_complete: true, ..Client::default() }, call);
        let busy = busy_elsewhere();
        assert!(chat.poll_piece(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(busy);
        let piece = std::future::poll_fn(|cx| chat.poll_piece(cx)).await.unwrap();
        assert_eq!(frame(&text), piece.bytes);
    });
    on_io_thread(async {
        let call = call("GET", &query(b"no gzip"), &[]);
        let mut chat = Transcoded::new(Client { is_complete: true, ..Client::default() }, call);
        assert!(std::future::poll_fn(|cx| chat.poll_piece(cx)).await.is_err());
        assert_eq!(Some(Code::InvalidArgument), chat.refused().map(|refusal| refusal.status.code));
    });
}

#[test]
fn a_long_answer_is_converted_elsewhere_and_those_behind_it_wait() {
    on_io_thread(async {
        let texts = [r#"{"name":"b"}"#.to_owned(), large("a"), r#"{"name":"c"}"#.to_owned()];
        let mut chat = chat(Client { room: 1 << 20, ..Client::default() }, &JSON);
        chat.head(head(), false).unwrap();
        let frames: Vec<Bytes> = texts.iter().map(|text| frame(text)).collect();
        let busy = busy_elsewhere();
        chat.body(frames.concat().into()).unwrap();
        assert!(chat.poll_room(1, &mut Context::from_waker(Waker::noop())).is_pending());
        drop(busy);
        chat.trailers(ok()).unwrap();
        std::future::poll_fn(|cx| chat.poll_finish(cx)).await;
        let expected: Vec<u8> = texts.iter().flat_map(|text| envelope(text.as_bytes())).collect();
        assert_eq!([&expected[..], b"\x02\0\0\0\x02{}"].concat(), chat.end().body);
    });
}

#[test]
fn others_have_their_turn_between_many_short_messages() {
    let count = 10_000;
    let wire: Vec<u8> = envelope(b"{}").repeat(count);
    let client =
        Client { pieces: [Bytes::from(wire)].into(), is_complete: true, ..Client::default() };
    let mut chat = chat(client, &JSON);
    let mut cx = Context::from_waker(Waker::noop());
    let (mut in_turn, mut most, mut taken) = (0, 0, 0);
    let expected = frame("{}");
    while taken < count {
        match chat.poll_piece(&mut cx) {
            Poll::Ready(piece) => {
                assert_eq!(expected, piece.unwrap().bytes);
                (in_turn, taken) = (in_turn + 1, taken + 1);
            }
            Poll::Pending => in_turn = 0,
        }
        most = most.max(in_turn);
    }
    assert!(most <= 100, "{most} in one turn");
}

#[test]
fn a_failure_while_an_answer_is_converted_takes_its_place() {
    on_io_thread(async {
        let mut chat = chat(Client { room: 1 << 20, ..Client::default() }, &JSON);
        chat.head(head(), false).unwrap();
        let busy = busy_elsewhere();
        chat.body(frame(&large("a"))).unwrap();
        assert!(chat.poll_room(1, &mut Context::from_waker(Waker::noop())).is_pending());
        chat.fail(&call::Failure::new(Status::new(Code::Unavailable, "gone"), true));
        drop(busy);
        std::future::poll_fn(|cx| chat.poll_finish(cx)).await;
        let body = String::from_utf8_lossy(&chat.end().body).into_owned();
        assert!(body.contains("gone") && !body.contains("aaa"), "{body}");
    });
}
