//! Client calls of a channel: to an address, and through a routing table.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use router_net::client::{
    Channel, ChannelConfig, ClientCall, Connectivity, NewCall, ReconnectBackoff,
};
use router_net::dispatch::{CallOptions, Placement};
use router_net::grpc::{CONTENT_TYPE_GRPC, Code, Encoding, Encodings, Message, compress};
use router_net::io::IoThreads;
use router_net::link::{Command, Event, EventSink, Mailbox};
use support::{PATH, Replica, TOKEN, deployment, grpc_response, ok_trailers, table, until, within};
use tokio::sync::mpsc;

const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Collects the events of calls, as the bridge would.
#[derive(Debug)]
struct Sink {
    sender: mpsc::UnboundedSender<(u64, Event)>,
    receiver: Mutex<mpsc::UnboundedReceiver<(u64, Event)>>,
}

impl EventSink for Sink {
    fn push(&self, token: u64, event: Event) {
        self.sender.send((token, event)).unwrap();
    }
}

impl Sink {
    fn new() -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Arc::new(Self { sender, receiver: Mutex::new(receiver) })
    }

    fn take(&self) -> Option<(u64, Event)> {
        self.receiver.lock().try_recv().ok()
    }

    async fn next(&self) -> (u64, Event) {
        let mut taken = None;
        until("an event", || {
            taken = self.take();
            taken.is_some()
        })
        .await;
        taken.unwrap()
    }

    async fn done(&self) -> Option<Bytes> {
        match self.next().await.1 {
            Event::Done(message) => message.map(Message::into_bytes),
            other => panic!("expected Done, got {other:?}"),
        }
    }
}

struct Fixture {
    sink: Arc<Sink>,
    channel: Channel,
}

fn config() -> ChannelConfig {
    ChannelConfig {
        authority: None,
        user_agent: "test/1".to_owned(),
        receive_bytes_max: MESSAGE_BYTES_MAX,
        send_bytes_max: MESSAGE_BYTES_MAX,
        default_encoding: Encoding::Identity,
        encodings: Encodings::default(),
        tls: None,
        keepalive: None,
        reconnect: ReconnectBackoff::default(),
    }
}

fn threads() -> Arc<IoThreads> {
    IoThreads::start("test", 1).unwrap()
}

fn to_address(target: &str) -> Fixture {
    let channel = Channel::to_address(target, config(), threads()).unwrap();
    Fixture { sink: Sink::new(), channel }
}

/// A unary call of "ping".
fn ping() -> NewCall {
    NewCall {
        path: PATH.to_owned(),
        metadata: HeaderMap::new(),
        timeout: None,
        content_type: CONTENT_TYPE_GRPC,
        message: Some(Bytes::from_static(b"ping").into()),
        encoding: None,
        wait_for_ready: false,
        placement: Placement::Any,
        options: CallOptions::default(),
        is_response_streaming: false,
    }
}

impl Fixture {
    fn start(&self, new: NewCall) -> Arc<ClientCall> {
        let call = self.channel.start(self.sink.clone(), new);
        self.channel.thread().wake();
        call
    }

    fn tell(&self, call: &Arc<ClientCall>, command: Command) {
        let call = Arc::clone(call);
        self.channel.thread().run(move || call.link().deliver(command));
    }

    fn write(&self, call: &Arc<ClientCall>, payload: impl Into<Bytes>) {
        let payload = payload.into();
        call.link().begin_write(payload.len());
        self.tell(call, Command::Message { payload: payload.into(), may_compress: true });
    }
}

/// A message with its prefix.
fn framed(payload: &[u8]) -> Bytes {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], &length[..], payload].concat().into()
}

fn code(call: &ClientCall) -> Code {
    call.status().expect("the call is over").code
}

fn message(call: &ClientCall) -> &str {
    &call.status().expect("the call is over").message
}

#[tokio::test]
async fn a_unary_call_is_one_event() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let mut new = ping();
    new.metadata.insert("x-key", HeaderValue::from_static("v"));
    new.timeout = Some(Duration::from_secs(5));
    let call = fixture.start(new);
    let mut incoming = server.next().await;
    let headers = &incoming.head.headers;
    assert_eq!(PATH, incoming.head.uri.path());
    assert_eq!(server.address, incoming.head.uri.authority().unwrap().as_str());
    for (name, value) in [("x-key", "v"), ("te", "trailers"), ("user-agent", "test/1")] {
        assert_eq!(value, headers[name]);
    }
    assert!(headers.contains_key("grpc-timeout"));
    assert_eq!(framed(b"ping"), incoming.read_all().await);
    let mut response = grpc_response();
    response.headers_mut().insert("x-initial", HeaderValue::from_static("i"));
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    stream.send_data(framed(b"pong"), false).unwrap();
    let mut trailers = ok_trailers();
    trailers.insert("x-final", HeaderValue::from_static("f"));
    stream.send_trailers(trailers).unwrap();

    assert_eq!(Some("pong".into()), fixture.sink.done().await);
    assert_eq!(Code::Ok, code(&call));
    assert_eq!("i", call.initial_metadata().unwrap()["x-initial"]);
    assert_eq!("f", call.trailing_metadata().unwrap()["x-final"]);
    assert_eq!(format!("ipv4:{}", server.address), call.peer());
    assert_eq!(Connectivity::Ready, fixture.channel.state(false));
}

#[tokio::test]
async fn streams_carry_messages_both_ways_and_wait_for_credit() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(NewCall { message: None, is_response_streaming: true, ..ping() });
    fixture.write(&call, "one");
    let mut incoming = server.next().await;
    let piece = within("a message", incoming.body.data()).await.unwrap().unwrap();
    assert_eq!(framed(b"one"), piece);
    let large = vec![1; 40_000];
    fixture.write(&call, large.clone());
    fixture.tell(&call, Command::HalfClose);
    assert_eq!(framed(&large), incoming.read_all().await);
    until("all is accepted", || call.link().is_writable()).await;

    let mut stream = incoming.begin();
    let payload = vec![2; 10_000];
    for _ in 0..10 {
        stream.send_data(framed(&payload), false).unwrap();
    }
    stream.send_trailers(ok_trailers()).unwrap();
    assert!(matches!(fixture.sink.next().await.1, Event::InitialMetadata));
    let mut received = 0;
    loop {
        match fixture.sink.next().await.1 {
            Event::Message(message) => {
                assert_eq!(payload, message.into_bytes());
                received += 1;
                // Credit is 64 KiB: the sixth message may be there, the tenth may not.
                if call.link().take(payload.len()) {
                    fixture.tell(&call, Command::Resume);
                }
            }
            Event::Done(None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(10, received);
    assert_eq!(Code::Ok, code(&call));
}

#[tokio::test]
async fn a_user_who_takes_nothing_stops_the_stream() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(NewCall { is_response_streaming: true, ..ping() });
    let mut stream = server.next().await.begin();
    let mut written = 0;
    while let Some(room) = support::room(&mut stream, Duration::from_millis(200)).await {
        let payload = vec![0; room.min(16_000) - 5];
        written += payload.len();
        stream.send_data(framed(&payload), false).unwrap();
        assert!(written < 2 << 20, "{written} bytes went into a stalled call");
    }
    let mut taken = 0;
    while let Some((_, event)) = fixture.sink.take() {
        if let Event::Message(message) = event {
            taken += message.len();
        }
    }
    assert!(taken <= 2 * 64 * 1024, "{taken} bytes wait in the ring");
    fixture.tell(&call, Command::Cancel);
    let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
    assert_eq!(h2::Reason::CANCEL, within("the reset", reset).await.unwrap());
}

#[tokio::test]
async fn a_cancelled_call_resets_its_stream_and_says_nothing() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(ping());
    let mut incoming = server.next().await;
    fixture.tell(&call, Command::Cancel);
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    until("the call is over", || call.link().is_ended()).await;
    assert!(fixture.sink.take().is_none());
}

#[tokio::test]
async fn the_deadline_ends_a_call_at_its_server_too() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(NewCall { timeout: Some(Duration::from_millis(500)), ..ping() });
    let mut incoming = server.next().await;
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::DeadlineExceeded, code(&call));
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
}

/// Lets a server answer and returns how the call ended.
async fn end_of(answer: impl FnOnce(support::Incoming)) -> (Code, String, Option<Bytes>) {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(ping());
    answer(server.next().await);
    let payload = fixture.sink.done().await;
    (code(&call), message(&call).to_owned(), payload)
}

#[tokio::test]
async fn answers_that_are_not_grpc_are_mapped() {
    for (status, expected) in
        [(404, Code::Unimplemented), (503, Code::Unavailable), (200, Code::Unknown)]
    {
        let (code, message, _) = end_of(|mut incoming| {
            let response = http::Response::builder().status(status).body(()).unwrap();
            incoming.respond.send_response(response, true).unwrap();
        })
        .await;
        assert_eq!(expected, code, "HTTP {status}: {message}");
    }
    for (reason, expected) in [
        (h2::Reason::CANCEL, Code::Cancelled),
        (h2::Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (h2::Reason::INTERNAL_ERROR, Code::Internal),
    ] {
        let (code, message, _) = end_of(|mut incoming| incoming.respond.send_reset(reason)).await;
        assert_eq!(expected, code, "{reason}: {message}");
    }
    for (name, value, expected) in
        [("content-type", "text/html", Code::Unknown), ("grpc-encoding", "br", Code::Internal)]
    {
        let (code, message, _) = end_of(|mut incoming| {
            let mut response = grpc_response();
            response.headers_mut().insert(name, HeaderValue::from_static(value));
            incoming.respond.send_response(response, false).unwrap();
        })
        .await;
        assert_eq!((expected, true), (code, message.contains(value)), "{message}");
    }
}

#[tokio::test]
async fn answers_that_break_the_rules_end_with_a_reason() {
    fn answer(mut incoming: support::Incoming, data: &[Bytes]) {
        let mut stream = incoming.begin();
        for piece in data {
            stream.send_data(piece.clone(), false).unwrap();
        }
        stream.send_trailers(ok_trailers()).unwrap();
    }
    let half = framed(b"pong").slice(..7);
    let huge = Bytes::from([&[0], &(2_u32 << 20).to_be_bytes()[..]].concat());
    let cases = [
        (vec![], Code::Unimplemented, "without a message"),
        (vec![framed(b"1"), framed(b"2")], Code::Unimplemented, "more than one message"),
        (vec![half], Code::Internal, "inside a message"),
        (vec![huge], Code::ResourceExhausted, "1048576"),
        (vec![Bytes::from_static(&[9, 0, 0, 0, 0])], Code::Internal, "compression flag"),
    ];
    for (data, expected, part) in cases {
        let (code, message, payload) = end_of(|incoming| answer(incoming, &data)).await;
        assert_eq!(expected, code, "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(None, payload);
    }
}

#[tokio::test]
async fn a_trailers_only_error_has_its_message_and_metadata() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(ping());
    let mut incoming = server.next().await;
    let mut response = grpc_response();
    response.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
    response.headers_mut().insert("grpc-message", HeaderValue::from_static("no%20such"));
    response.headers_mut().insert("x-why", HeaderValue::from_static("w"));
    incoming.respond.send_response(response, true).unwrap();
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!((Code::NotFound, "no such"), (code(&call), message(&call)));
    assert_eq!("w", call.trailing_metadata().unwrap()["x-why"]);
    assert_eq!(0, call.initial_metadata().unwrap().len());
}

#[tokio::test]
async fn compressed_messages_go_both_ways() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let message = Some(Bytes::from("ping".repeat(25)).into());
    fixture.start(NewCall { encoding: Some(Encoding::Gzip), message, ..ping() });
    let mut incoming = server.next().await;
    assert_eq!("gzip", incoming.head.headers["grpc-encoding"]);
    let body = incoming.read_all().await;
    assert_eq!(1, body[0]);
    let packed = Message { compressed: true, ..Message::from_bytes(body.slice(5..)) };
    let plain = compress::decompress(Encoding::Gzip, packed, 100).unwrap();
    assert_eq!("ping".repeat(25), plain.into_bytes());

    let mut response = grpc_response();
    response.headers_mut().insert("grpc-encoding", HeaderValue::from_static("deflate"));
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    let pong = Bytes::from("pong".repeat(25));
    let packed = compress::compress(Encoding::Deflate, pong.clone().into()).into_bytes();
    let mut data = framed(&packed).to_vec();
    data[0] = 1;
    stream.send_data(data.into(), false).unwrap();
    stream.send_trailers(ok_trailers()).unwrap();
    assert_eq!(Some(pong), fixture.sink.done().await);
}

#[tokio::test]
async fn a_message_over_the_send_limit_is_not_sent() {
    let server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let message_bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    let call =
        fixture.start(NewCall { message: Some(Bytes::from(message_bytes).into()), ..ping() });
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::ResourceExhausted, code(&call));
    let expected = "sent message of 1048577 bytes is larger than the limit of 1048576 bytes; to \
                    allow more, raise grpc.max_send_message_length of the channel";
    assert_eq!(expected, message(&call));
}

#[tokio::test]
async fn an_unreachable_server_fails_calls_unless_they_wait() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let fixture = to_address(&address);
    let token = fixture.channel.watch_state(fixture.sink.clone(), Connectivity::Idle as u8);
    let call = fixture.start(ping());
    let (told, event) = fixture.sink.next().await;
    assert_eq!(token, told);
    assert!(matches!(event, Event::State(1)), "{event:?}");
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::Unavailable, code(&call));
    assert!(message(&call).contains(&address), "{}", message(&call));
    assert_eq!(Connectivity::TransientFailure, fixture.channel.state(false));

    let call = fixture.start(NewCall { wait_for_ready: true, ..ping() });
    let tokio_listener = tokio::net::TcpListener::bind(&address).await.unwrap();
    let mut server = Replica::on("s", tokio_listener);
    server.next().await.reply(framed(b"pong"));
    assert_eq!(Some("pong".into()), fixture.sink.done().await);
    assert_eq!(Code::Ok, code(&call));
    drop(server);
    until("the channel is idle", || fixture.channel.state(false) == Connectivity::Idle).await;
}

#[tokio::test]
async fn a_call_that_a_server_never_saw_is_sent_again() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(ping());
    server.next().await.respond.send_reset(h2::Reason::REFUSED_STREAM);
    let mut incoming = server.next().await;
    assert_eq!(framed(b"ping"), incoming.read_all().await);
    incoming.reply(framed(b"pong"));
    assert_eq!(Some("pong".into()), fixture.sink.done().await);
    assert_eq!(Code::Ok, code(&call));
}

#[tokio::test]
async fn closing_a_channel_cancels_its_calls() {
    let mut server = Replica::start("s").await;
    let fixture = to_address(&server.address);
    let call = fixture.start(ping());
    let mut incoming = server.next().await;
    fixture.channel.close();
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::Cancelled, code(&call));
    assert_eq!(h2::Reason::CANCEL, incoming.reset().await);
    let late = fixture.start(ping());
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::Cancelled, code(&late));
    assert_eq!(Connectivity::Shutdown, fixture.channel.state(true));
}

#[tokio::test]
async fn a_channel_to_a_deployment_shares_the_tables_routers() {
    let mut replica = Replica::start("r-1").await;
    let table = table(TOKEN);
    table.apply(vec![deployment(vec![replica.route(1)])]);
    let channel =
        Channel::to_deployment("app/Echo", Arc::clone(&table), config(), threads()).unwrap();
    let fixture = Fixture { sink: Sink::new(), channel };
    let first = fixture.start(ping());
    let incoming = replica.next().await;
    let second = fixture.start(ping());
    until("one call is parked", || table.stats()[0].router.parked == 1).await;
    incoming.reply(framed(b"1"));
    assert_eq!(Some("1".into()), fixture.sink.done().await);
    let incoming = replica.next().await;
    incoming.refuse();
    replica.next().await.reply(framed(b"2"));
    assert_eq!(Some("2".into()), fixture.sink.done().await);
    assert_eq!((Code::Ok, Code::Ok), (code(&first), code(&second)));
    assert_eq!(0, table.stats()[0].router.in_flight);

    table.apply(vec![]);
    let lost = fixture.start(ping());
    assert_eq!(None, fixture.sink.done().await);
    assert_eq!(Code::Unavailable, code(&lost));
}

#[tokio::test]
async fn parts_are_one_message_that_can_go_elsewhere_and_are_given_back() {
    let mut replica = Replica::start("r-1").await;
    let table = table(TOKEN);
    table.apply(vec![deployment(vec![replica.route(1)])]);
    let channel = Channel::to_deployment("app/Echo", table, config(), threads()).unwrap();
    let fixture = Fixture { sink: Sink::new(), channel };
    // The replica's frames are 16 KiB and its window 256 KiB.
    let parts = [3, 70_000, 10, 300_000, 16_384].map(|size| Arc::new(vec![size as u8; size]));
    let message =
        Message::from_parts(parts.iter().map(|part| Bytes::from_owner(Lent(part.clone()))));
    let expected = framed(&message.clone().into_bytes());
    let call = fixture.start(NewCall { message: Some(message), ..ping() });
    replica.next().await.refuse();
    let mut incoming = replica.next().await;
    assert_eq!(expected, incoming.read_all().await);
    incoming.reply(framed(b"pong"));
    assert_eq!(Some("pong".into()), fixture.sink.done().await);
    assert_eq!(Code::Ok, code(&call));
    until("all parts are back", || parts.iter().all(|part| Arc::strong_count(part) == 1)).await;
}

struct Lent(Arc<Vec<u8>>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
