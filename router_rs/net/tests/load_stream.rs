//! Reports of a replica to routers, and when they are sent (design decision 7).

mod model_support;
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use model_support::{Replica, start};
use prost::Message as _;
use router_net::io::IoThreads;
use router_net::mesh::load::{LoadReport, ModelList};
use router_net::mesh::proof;
use router_net::names::{HELLO_PATH, LOAD_PATH, NONCE, PROOF, PROVE_PATH};
use support::{Client, Front, PATH, TOKEN, deployment, request, request_with, until, within};

#[tokio::test]
async fn what_replicas_report_reaches_the_router_at_once_and_counts_as_no_call() {
    let fixture = start(1, 1);
    let [first, second] = &*fixture.replicas;
    first.set_models(&["a", "b"]);
    let calls = [fixture.with_model("a")];
    fixture.held(1).await;
    until("the first reports", || fixture.models().concat() == ["a", "b"]).await;
    fixture.answer(&calls).await;
    // The streams are open; it does not matter whether the gate is full.
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
    let whole = LoadReport {
        sequence: 1,
        in_flight: 0,
        limit: 7,
        models: models(&["a"]),
        leases: 0,
        costs: None,
        cache: None,
    };
    assert_eq!(whole, report(&mut body).await);
    // Changes within one turn of the I/O thread make one report; events that change nothing make
    // none.
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
        let mut incoming = replica.next_load_stream().await;
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
    replica.next().await.reply("pong");
    assert_eq!(0, call.reply().await.status());
    // The streams do not count as calls.
    front.settle().await;
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
