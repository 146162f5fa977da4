//! Calls that name a model, pinned calls and chosen places, against the replica server itself.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use prost::Message as _;
use router_net::client::{Channel, ChannelConfig, ClientCall, NewCall};
use router_net::dispatch::{Placement, ReplicaRoute, Reservation, RoutingTable};
use router_net::grpc::{CONTENT_TYPE_GRPC, Code, Encoding, Message};
use router_net::io::IoThreads;
use router_net::link::{Command, Event, EventSink, Mailbox};
use router_net::mesh::load::{LoadReport, ModelList};
use router_net::mesh::names::{HELLO_PATH, LOAD_PATH, NONCE, PROOF, PROVE_PATH};
use router_net::mesh::proof;
use router_net::server::{Exchange, Method, Server, ServerConfig};
use support::{
    Client, Front, PATH, TOKEN, deployment, request, request_with, table, until, within,
};

/// Keeps calls until the test answers them.
#[derive(Debug, Default)]
struct Held {
    calls: Mutex<Vec<Arc<Exchange>>>,
}

impl EventSink for Held {
    fn push(&self, _token: u64, event: Event) {
        match event {
            Event::Call { exchange, .. } => self.calls.lock().push(exchange),
            other => panic!("unexpected {other:?}"),
        }
    }
}

struct Replica {
    id: &'static str,
    held: Arc<Held>,
    server: Server,
    address: String,
}

impl Replica {
    fn start(id: &'static str, capacity: u32, threads: &Arc<IoThreads>) -> Self {
        let held = Arc::new(Held::default());
        let config = ServerConfig {
            receive_bytes_max: 1 << 20,
            send_bytes_max: 1 << 20,
            metadata_bytes_max: 16 * 1024,
            concurrent_calls_max: Some(capacity),
            idle_streams_max: 10,
            concurrent_streams_max: 4096,
            default_encoding: Encoding::Identity,
            keepalive: None,
            connection_age_max: None,
            replica_id: id.to_owned(),
            token: TOKEN.to_vec(),
        };
        let server = Server::new(config, held.clone(), Arc::clone(threads));
        let method = Method {
            index: 0,
            is_request_streaming: false,
            is_response_streaming: false,
            weight: 1,
            subtypes: None,
            message_bytes_max: None,
        };
        server.register(PATH, method);
        let address = server.listen_tcp("127.0.0.1:0", None, false).unwrap().name();
        server.start();
        Self { id, held, server, address }
    }

    fn route(&self, capacity: u32) -> ReplicaRoute {
        ReplicaRoute {
            replica_id: self.id.to_owned(),
            node: format!("node-of-{}", self.id),
            zone: String::new(),
            address: self.address.clone(),
            unix_path: String::new(),
            max_ongoing_requests: capacity,
        }
    }

    fn held(&self) -> usize {
        self.held.calls.lock().len()
    }

    fn set_models(&self, models: &[&str]) {
        self.server.set_models(models.iter().map(ToString::to_string).collect());
    }

    fn connections(&self) -> u64 {
        let stats = self.server.stats();
        stats.into_iter().find(|(name, _)| *name == "connections").unwrap().1
    }
}

/// Two replicas, a table with both, and a channel to them.
struct Fixture {
    replicas: [Replica; 2],
    table: Arc<RoutingTable>,
    channel: Channel,
    threads: Arc<IoThreads>,
    events: Arc<Events>,
}

#[derive(Debug, Default)]
struct Events(Mutex<Vec<(u64, Event)>>);

impl EventSink for Events {
    fn push(&self, token: u64, event: Event) {
        self.0.lock().push((token, event));
    }
}

impl Events {
    async fn next(&self, token: u64) -> Event {
        let mut found = None;
        until("an event", || {
            let mut events = self.0.lock();
            found = events.iter().position(|(of, _)| *of == token).map(|at| events.remove(at).1);
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

/// Replicas with room for `capacity` calls, of which the router thinks that they have `assumed`.
fn start(capacity: u32, assumed: u32) -> Fixture {
    let threads = IoThreads::start("test", 1).unwrap();
    let replicas = ["r-1", "r-2"].map(|id| Replica::start(id, capacity, &threads));
    let table = table(TOKEN);
    table.apply(vec![deployment(replicas.iter().map(|r| r.route(assumed)).collect())]);
    let config = ChannelConfig {
        authority: None,
        user_agent: "test/1".to_owned(),
        receive_bytes_max: 1 << 20,
        send_bytes_max: 1 << 20,
        default_encoding: Encoding::Identity,
        tls: None,
        keepalive: None,
    };
    let channel =
        Channel::to_deployment("app/Echo", Arc::clone(&table), config, Arc::clone(&threads));
    let events = Arc::default();
    Fixture { replicas, table, channel: channel.unwrap(), threads, events }
}

impl Fixture {
    fn call(&self, model: &str, placement: Placement) -> Arc<ClientCall> {
        let mut metadata = HeaderMap::new();
        if !model.is_empty() {
            metadata.insert("multiplexed_model_id", HeaderValue::from_str(model).unwrap());
        }
        let new = NewCall {
            path: PATH.to_owned(),
            metadata,
            timeout: Some(Duration::from_secs(10)),
            message: Some(Bytes::from_static(b"ping").into()),
            content_type: CONTENT_TYPE_GRPC,
            encoding: None,
            wait_for_ready: false,
            placement,
            is_response_streaming: false,
        };
        let call = self.channel.start(self.events.clone(), new);
        self.channel.thread().wake();
        call
    }

    fn with_model(&self, model: &str) -> Arc<ClientCall> {
        self.call(model, Placement::Any)
    }

    fn pinned(&self, replica_id: &str) -> Arc<ClientCall> {
        self.call("", Placement::Replica(replica_id.to_owned()))
    }

    async fn choose(&self, model: &str, timeout_ms: u64) -> Result<Arc<Reservation>, Code> {
        let timeout = Some(Duration::from_millis(timeout_ms));
        let token = self.channel.choose(self.events.clone(), timeout, model.to_owned());
        self.channel.thread().wake();
        match self.events.next(token).await {
            Event::Chosen(chosen) => chosen.map_err(|status| status.code),
            other => panic!("expected Chosen, got {other:?}"),
        }
    }

    /// Which replicas hold how many calls, once there are `total`.
    async fn held(&self, total: usize) -> [usize; 2] {
        let held = || self.replicas.each_ref().map(Replica::held);
        until("the calls are at replicas", || held().iter().sum::<usize>() >= total).await;
        held()
    }

    /// Answers everything and waits for the ends.
    async fn answer(&self, calls: &[Arc<ClientCall>]) {
        for replica in &self.replicas {
            for call in std::mem::take(&mut *replica.held.calls.lock()) {
                let reply = Command::Reply(Bytes::from_static(replica.id.as_bytes()).into());
                self.threads.all()[0].run(move || call.link().deliver(reply));
            }
        }
        for call in calls {
            assert!(matches!(self.events.next(call.link().token).await, Event::Done(_)));
        }
    }

    async fn done(&self, call: &ClientCall) -> Option<Bytes> {
        match self.events.next(call.link().token).await {
            Event::Done(message) => message.map(Message::into_bytes),
            other => panic!("expected Done, got {other:?}"),
        }
    }

    fn models(&self) -> Vec<Vec<String>> {
        let replicas = self.table.replicas("app", "Echo");
        replicas.into_iter().map(|replica| replica.models).collect()
    }

    fn in_flight(&self) -> u64 {
        self.table.stats()[0].router.in_flight
    }
}

fn status(call: &ClientCall) -> (Code, &str) {
    let status = call.status().expect("the call is over");
    (status.code, &status.message)
}

#[tokio::test]
async fn what_replicas_report_reaches_the_router_at_once_and_counts_as_no_call() {
    let fixture = start(1, 1);
    let [first, second] = &fixture.replicas;
    first.set_models(&["a", "b"]);
    let calls = [fixture.with_model("a")];
    fixture.held(1).await;
    until("the first reports", || fixture.models().concat() == ["a", "b"]).await;
    fixture.answer(&calls).await;
    // The streams are open; a gate that is full, or not, has no part in it.
    let mut fastest = Duration::MAX;
    for round in 0..5 {
        let model = format!("m{round}");
        let start = Instant::now();
        second.set_models(&[&model]);
        until("the report", || fixture.models()[1] == [model.as_str()]).await;
        fastest = fastest.min(start.elapsed());
    }
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
    assert_eq!((0, 0), (first.server.in_flight(), second.server.in_flight()));
    assert_eq!(0, fixture.in_flight());
    let nodes: Vec<String> =
        fixture.table.replicas("app", "Echo").into_iter().map(|replica| replica.node).collect();
    assert_eq!(vec!["node-of-r-1", "node-of-r-2"], nodes);
}

#[tokio::test]
async fn calls_without_a_model_open_no_load_stream() {
    let fixture = start(10, 10);
    fixture.replicas[0].set_models(&["a"]);
    let calls: Vec<_> = (0..10).map(|_| fixture.with_model("")).collect();
    fixture.held(10).await;
    fixture.answer(&calls).await;
    assert_eq!(Vec::<String>::new(), fixture.models().concat());
}

#[tokio::test]
async fn strangers_are_not_told_the_load() {
    let fixture = start(1, 1);
    let client = Client::connect(&fixture.replicas[0].address).await;
    let reply = client.start(request(LOAD_PATH), true).reply().await;
    assert_eq!(12, reply.status());
    assert!(reply.message().contains("routers of the mesh"), "{}", reply.message());
}

/// A client that has proven the token of the first replica.
async fn trusted(replica: &Replica) -> Client {
    let client = Client::connect(&replica.address).await;
    let hello = client.start(request(HELLO_PATH), true).reply().await;
    let nonce = proof::from_hex(hello.headers[NONCE].to_str().unwrap()).unwrap();
    let proof = proof::proof(TOKEN, &nonce, replica.id);
    let proving = request_with(PROVE_PATH, &[(PROOF.as_str(), &proof)]);
    assert_eq!(200, client.start(proving, true).reply().await.http);
    client
}

/// The next report of a load stream.
async fn report(body: &mut h2::RecvStream) -> LoadReport {
    let piece = within("a report", body.data()).await.unwrap().unwrap();
    body.flow_control().release_capacity(piece.len()).unwrap();
    let length = u32::from_be_bytes(piece[1..5].try_into().unwrap()) as usize;
    assert_eq!((0, 5 + length), (piece[0], piece.len()), "one message in a frame of its own");
    LoadReport::decode(piece.slice(5..)).unwrap()
}

#[tokio::test]
async fn a_load_stream_begins_with_the_whole_and_goes_on_with_changes_only() {
    let threads = IoThreads::start("test", 1).unwrap();
    let replica = Replica::start("r-1", 7, &threads);
    replica.set_models(&["a"]);
    let client = trusted(&replica).await;
    let call = client.start(request(LOAD_PATH), true);
    let mut body = within("the head", call.response).await.unwrap().into_body();
    let models =
        |ids: &[&str]| Some(ModelList { model_ids: ids.iter().map(ToString::to_string).collect() });
    let whole = LoadReport { sequence: 1, in_flight: 0, limit: 7, models: models(&["a"]) };
    assert_eq!(whole, report(&mut body).await);
    // What happens in one turn of the I/O thread is one report; what changes nothing is none.
    let server = Arc::new(replica.server);
    let same = Arc::clone(&server);
    threads.all()[0].run(move || same.set_models(vec!["a".to_owned()]));
    let changing = Arc::clone(&server);
    threads.all()[0].run(move || {
        for last in 0..100 {
            changing.set_models(vec![format!("m{last}"), "a".to_owned()]);
        }
    });
    let second = LoadReport { sequence: 2, models: models(&["m99", "a"]), ..whole };
    assert_eq!(second, report(&mut body).await);
    server.drain();
    let end = within("the end", body.trailers()).await.unwrap().unwrap();
    assert_eq!("0", end["grpc-status"]);
}

#[tokio::test]
async fn a_load_stream_that_breaks_is_opened_again() {
    let mut replica = support::Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(10)])]);
    let client = front.client().await;
    let named = request_with(PATH, &[("serve-multiplexed-model-id", "m")]);
    let call = client.unary(named, "ping");
    let mut streams = Vec::new();
    for round in ["first", "second"] {
        let mut incoming = replica.next().await;
        while incoming.head.uri.path() != LOAD_PATH {
            incoming.reply("pong");
            incoming = replica.next().await;
        }
        let models = Some(ModelList { model_ids: vec![round.to_owned()] });
        let report = LoadReport { sequence: 1, models, ..LoadReport::default() }.encode_to_vec();
        let prefix = [&[0], &u32::try_from(report.len()).unwrap().to_be_bytes()[..]].concat();
        let mut stream = incoming.begin();
        stream.send_data([prefix, report].concat().into(), false).unwrap();
        until("the report", || front.table.replicas("app", "Echo")[0].models == [round]).await;
        if round == "first" {
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        streams.push((stream, incoming));
    }
    assert_eq!(0, call.reply().await.status());
    // The streams are no calls.
    front.settle().await;
}

#[tokio::test]
async fn calls_go_to_the_replica_that_reported_their_model() {
    let fixture = start(100, 100);
    let [first, second] = &fixture.replicas;
    first.set_models(&["a"]);
    second.set_models(&["b"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the reports", || fixture.models() == [["a"], ["b"]]).await;
    fixture.answer(&opener).await;
    let calls: Vec<_> =
        (0..20).map(|index| fixture.with_model(if index % 4 == 0 { "a" } else { "b" })).collect();
    assert_eq!([5, 15], fixture.held(20).await);
    fixture.answer(&calls).await;
}

#[tokio::test]
async fn a_burst_for_a_cold_model_goes_to_one_replica() {
    let fixture = start(100, 100);
    let calls: Vec<_> = (0..20).map(|_| fixture.with_model("cold")).collect();
    let mut held = fixture.held(20).await;
    held.sort_unstable();
    assert_eq!([0, 20], held);
    fixture.answer(&calls).await;
}

/// The first replica has the model and is full; a call of the model waits, beside an idle replica.
async fn one_waits_for_the_first() -> (Fixture, Arc<ClientCall>, Arc<ClientCall>) {
    let fixture = start(1, 1);
    fixture.replicas[0].set_models(&["a"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the report", || fixture.models()[0] == ["a"]).await;
    fixture.answer(&opener).await;
    let running = fixture.pinned("r-1");
    fixture.held(1).await;
    let waiting = fixture.with_model("a");
    until("a call is parked", || fixture.table.stats()[0].router.faithful == 1).await;
    (fixture, running, waiting)
}

#[tokio::test]
async fn a_place_at_the_holder_ends_the_wait_for_it() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    fixture.answer(&[running]).await;
    assert_eq!([1, 0], fixture.held(1).await);
    fixture.answer(&[waiting]).await;
}

#[tokio::test]
async fn a_report_of_another_replica_ends_the_wait_for_the_holder() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    fixture.replicas[1].set_models(&["a"]);
    assert_eq!([1, 1], fixture.held(2).await);
    fixture.answer(&[running, waiting]).await;
}

#[tokio::test]
async fn the_wait_for_the_holder_ends_after_the_matching_timeout() {
    let (fixture, running, waiting) = one_waits_for_the_first().await;
    assert_eq!([1, 1], fixture.held(2).await);
    fixture.answer(&[running, waiting]).await;
}

#[tokio::test]
async fn a_drain_ends_the_load_stream_and_so_the_connection() {
    let fixture = start(10, 10);
    let calls = [fixture.with_model("a")];
    fixture.held(1).await;
    fixture.replicas[0].set_models(&["x"]);
    until("the report", || fixture.models()[0] == ["x"]).await;
    fixture.answer(&calls).await;
    fixture.replicas[0].server.drain();
    until("no connection is left", || fixture.replicas[0].connections() == 0).await;
    until("what it had is forgotten", || fixture.models()[0].is_empty()).await;
}

#[tokio::test]
async fn a_pinned_call_goes_to_its_replica_however_full() {
    let fixture = start(1, 1);
    let first: Vec<_> = (0..3).map(|_| fixture.pinned("r-1")).collect();
    let second = fixture.pinned("r-2");
    assert_eq!([3, 1], fixture.held(4).await);
    // They count at both ends.
    assert_eq!((3, 4), (fixture.replicas[0].server.in_flight(), fixture.in_flight()));
    fixture.answer(&first).await;
    assert!(matches!(fixture.events.next(second.link().token).await, Event::Done(_)));
    let nobody = fixture.pinned("r-9");
    assert_eq!(None, fixture.done(&nobody).await);
    assert_eq!((Code::Unavailable, "app/Echo has no replica \"r-9\""), status(&nobody));
    until("all places are free", || fixture.in_flight() == 0).await;
    assert_eq!(0, fixture.replicas[0].server.in_flight());
}

#[tokio::test]
async fn a_pinned_call_to_a_replica_that_does_not_answer_names_it() {
    let fixture = start(1, 1);
    fixture.replicas[1].server.stop();
    let call = fixture.pinned("r-2");
    assert_eq!(None, fixture.done(&call).await);
    let (code, text) = status(&call);
    assert_eq!(Code::Unavailable, code);
    assert!(text.starts_with("replica \"r-2\": "), "{text}");
}

#[tokio::test]
async fn a_chosen_place_counts_until_it_is_used_or_given_back() {
    let fixture = start(1, 1);
    let place = fixture.choose("", 1000).await.unwrap();
    let other = fixture.choose("", 1000).await.unwrap();
    let mut ids = [place.replica_id().to_owned(), other.replica_id().to_owned()];
    ids.sort_unstable();
    assert_eq!(["r-1", "r-2"].map(str::to_owned), ids);
    assert_eq!(format!("node-of-{}", place.replica_id()), place.node());
    assert_eq!(2, fixture.in_flight());
    assert_eq!(Err(Code::DeadlineExceeded), fixture.choose("", 30).await.map(|_| ()));
    other.release();
    other.release();
    drop(other);
    assert_eq!(1, fixture.in_flight());

    let call = fixture.call("", Placement::Reserved(Arc::clone(&place)));
    let held = fixture.held(1).await;
    assert_eq!(usize::from(place.replica_id() == "r-1"), held[0]);
    place.release();
    assert_eq!(1, fixture.in_flight());
    fixture.answer(&[call]).await;
    until("the place is free", || fixture.in_flight() == 0).await;

    let late = fixture.call("", Placement::Reserved(place));
    assert_eq!(None, fixture.done(&late).await);
    let (code, text) = status(&late);
    assert_eq!(Code::Unavailable, code);
    assert!(text.contains("released or used before"), "{text}");
}

#[tokio::test]
async fn a_place_for_a_model_is_where_the_model_is() {
    let fixture = start(10, 10);
    fixture.replicas[1].set_models(&["a"]);
    let opener = [fixture.with_model("z")];
    fixture.held(1).await;
    until("the report", || fixture.models()[1] == ["a"]).await;
    fixture.answer(&opener).await;
    for _ in 0..3 {
        assert_eq!("r-2", fixture.choose("a", 1000).await.unwrap().replica_id());
    }
    until("dropped places are free", || fixture.in_flight() == 0).await;
}
