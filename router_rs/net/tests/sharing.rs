//! Outside calls shared by several deployments, and replicas in an order from outside.

mod front_support;
mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use front_support::{answer, http_deployment, http_request};
use prost::Message;
use router_net::dispatch::{DeploymentRoute, News, Question, Ranker, Share};
use support::{Front, Replica, deployment, open_service, request_with, within};

const PATH: &str = "/pkg.Echo/Say";
const THINGS: &[u8] = include_bytes!("../../testdata/things.binpb");

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

/// The same deployment in another application.
fn of_application(name: &str, route: DeploymentRoute) -> DeploymentRoute {
    DeploymentRoute { application: name.to_owned(), ..route }
}

fn share(application: &str, weight: f64) -> Vec<Share> {
    let (application, deployment) = (application.to_owned(), "Echo".to_owned());
    vec![Share { application, deployment, weight }]
}

/// Two applications with one service; the first one gives all its calls away.
async fn canary() -> (Replica, Replica, Front) {
    let (old, new) = (Replica::start("r-old").await, Replica::start("r-new").await);
    let front = Front::start(vec![
        DeploymentRoute { traffic: share("new", 1.0), ..deployment(vec![old.route(9)]) },
        of_application("new", deployment(vec![new.route(9)])),
    ]);
    (old, new, front)
}

#[tokio::test]
async fn a_share_of_the_calls_goes_to_another_deployment() {
    let (_old, mut new, front) = canary().await;
    let client = front.client().await;
    // Both serve the path, but it belongs to the one that shares.
    let call = client.unary(request_with(PATH, &[]), "ping");
    within("the canary", new.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn a_client_that_names_an_application_gets_that_one() {
    let (mut old, _new, front) = canary().await;
    let client = front.client().await;
    let call = client.unary(request_with(PATH, &[("application", "app")]), "ping");
    within("the named one", old.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn the_share_of_a_deployment_without_replicas_stays() {
    let mut old = Replica::start("r-old").await;
    let front = Front::start(vec![
        DeploymentRoute { traffic: share("new", 1.0), ..deployment(vec![old.route(9)]) },
        of_application("new", deployment(Vec::new())),
    ]);
    let call = front.client().await.unary(request_with(PATH, &[]), "ping");
    within("the only one", old.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn plain_http_is_shared_below_the_prefix_of_its_owner() {
    let (old, mut new) = (Replica::start("r-old").await, Replica::start("r-new").await);
    let front = Front::start(vec![
        DeploymentRoute { traffic: share("new", 1.0), ..http_deployment(&old, "/app") },
        of_application("new", deployment(vec![new.route(9)])),
    ]);
    let call = front.client().await.start(http_request("GET", "/app/x", &[]), true);
    let incoming = within("the canary", new.next()).await;
    assert_eq!("/app/x", incoming.head.uri.path());
    answer(incoming, "pong");
    assert_eq!("pong", call.reply().await.body);
}

#[tokio::test]
async fn a_mirror_gets_the_whole_request_and_its_answer_is_dropped() {
    let (mut real, mut shadow) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let things = |replica: &Replica| DeploymentRoute {
        services: vec![open_service("things.v1.Things")],
        file_descriptors: Files::decode(THINGS).unwrap().files,
        ..deployment(vec![replica.route(9)])
    };
    let front = Front::start(vec![
        DeploymentRoute { mirror: share("shadow", 1.0), ..things(&real) },
        of_application("shadow", things(&shadow)),
    ]);
    let client = front.client().await;
    let call = client.unary(request_with("/things.v1.Things/Get", &[]), "ping");
    let mut copied = within("the mirror", shadow.next()).await;
    let mut incoming = within("the call itself", real.next()).await;
    assert_eq!(None, incoming.head.headers.get("x-pyserve-mirror"));
    assert_eq!("1", copied.head.headers["x-pyserve-mirror"]);
    assert_eq!(incoming.read_all().await, copied.read_all().await);
    // The mirror answers first, and then not at all: neither is waited for.
    copied.reply("shadow");
    incoming.reply("pong");
    assert!(call.reply().await.body.ends_with(b"pong"));
    let call = client.unary(request_with("/things.v1.Things/Get", &[]), "ping");
    let _unanswered = within("the mirror again", shadow.next()).await;
    within("the call itself again", real.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn a_stream_has_no_mirror() {
    let (mut real, mut shadow) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let front = Front::start(vec![
        // It is not known whether its methods are unary.
        DeploymentRoute { mirror: share("shadow", 1.0), ..deployment(vec![real.route(9)]) },
        of_application("shadow", deployment(vec![shadow.route(9)])),
    ]);
    let call = front.client().await.unary(request_with(PATH, &[]), "ping");
    within("the call itself", real.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
    let copied = tokio::time::timeout(Duration::from_millis(100), shadow.next()).await;
    assert!(copied.is_err(), "it was mirrored");
}

/// Prefers the replica that the session names; gives no order for calls without a session.
#[derive(Debug)]
struct BySession;

impl Ranker for BySession {
    fn ask(&self, question: Question) {
        let Question { session, candidates, answer, .. } = question;
        if session.is_empty() {
            return;
        }
        let mut names: Vec<String> = candidates.into_iter().map(|each| each.replica_id).collect();
        names.sort_by_key(|name| *name != session);
        answer.send(names).unwrap();
    }
}

#[tokio::test]
async fn replicas_are_tried_in_the_order_of_a_ranker() {
    let mut replicas = Vec::new();
    for id in ["r-1", "r-2", "r-3"] {
        replicas.push(Replica::start(id).await);
    }
    let routes = replicas.iter().map(|replica| replica.route(1)).collect();
    let ranker: Arc<dyn Ranker> = Arc::new(BySession);
    let front = Front::start(vec![DeploymentRoute { ranker: Some(ranker), ..deployment(routes) }]);
    let client = front.client().await;
    for (index, session) in [(2, "r-3"), (0, "r-1"), (2, "r-3")] {
        let call = client.unary(request_with(PATH, &[("x_session_id", session)]), "ping");
        within(session, replicas[index].next()).await.reply("pong");
        assert_eq!(0, call.reply().await.status());
    }
    // The first one in order has no room: the next one has.
    let held = client.unary(request_with(PATH, &[("x-session-id", "r-1")]), "ping");
    let waiting = within("the first", replicas[0].next()).await;
    let call = client.unary(request_with(PATH, &[("x-session-id", "r-1")]), "ping");
    within("the second", replicas[1].next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
    waiting.reply("pong");
    assert_eq!(0, held.reply().await.status());
}

/// Puts a replica first according to the session, and records the events that it gets.
#[derive(Debug, Default)]
struct Following {
    told: Mutex<Vec<News>>,
}

impl Following {
    /// Waits for this many events and returns them all, with the calls numbered from 1.
    async fn told(&self, count: usize) -> Vec<String> {
        support::until("it to be told", || self.told.lock().unwrap().len() >= count).await;
        let told = self.told.lock().unwrap();
        let numbers = told
            .iter()
            .map(|(News::Routed { number, .. } | News::Completed { number, .. })| number);
        let first = *numbers.min().unwrap();
        let line = |news: &News| match news {
            News::Routed { number, replica_id, path, session, .. } => {
                format!("{} to {replica_id}: {path} of {session}", number - first)
            }
            News::Completed { number, replica_id } => {
                format!("{} over at {replica_id}", number - first)
            }
        };
        told.iter().map(line).collect()
    }
}

impl Ranker for Following {
    fn ask(&self, question: Question) {
        BySession.ask(question);
    }

    fn listens(&self) -> bool {
        true
    }

    fn tell(&self, news: News) -> bool {
        self.told.lock().unwrap().push(news);
        true
    }
}

#[tokio::test]
async fn a_ranker_that_listens_is_told_where_calls_go_and_when_they_are_over() {
    let (mut first, mut second) = (Replica::start("r-1").await, Replica::start("r-2").await);
    let following = Arc::new(Following::default());
    let ranker: Arc<dyn Ranker> = Arc::clone(&following) as _;
    let routes = vec![first.route(1), second.route(1)];
    let front = Front::start(vec![DeploymentRoute { ranker: Some(ranker), ..deployment(routes) }]);
    let client = front.client().await;
    let ask = || client.unary(request_with(PATH, &[("x-session-id", "r-1")]), "ping");

    let call = ask();
    let incoming = within("the first", first.next()).await;
    assert_eq!(vec!["0 to r-1: /pkg.Echo/Say of r-1"], following.told(1).await);
    incoming.reply("pong");
    assert_eq!(0, call.reply().await.status());
    // A call that is refused there is over there, and goes elsewhere under another number.
    let call = ask();
    within("the first", first.next()).await.refuse();
    let incoming = within("the second", second.next()).await;
    let expected = [
        "0 over at r-1",
        "1 to r-1: /pkg.Echo/Say of r-1",
        "1 over at r-1",
        "2 to r-2: /pkg.Echo/Say of r-1",
    ];
    assert_eq!(expected, following.told(5).await[1..]);
    incoming.reply("pong");
    assert_eq!(0, call.reply().await.status());
    // And so is one whose caller has left.
    let call = client.unary(request_with(PATH, &[("x-session-id", "r-2")]), "ping");
    let mut incoming = within("the second", second.next()).await;
    drop(call);
    incoming.reset().await;
    let told = following.told(8).await;
    assert_eq!(["2 over at r-2", "3 to r-2: /pkg.Echo/Say of r-2", "3 over at r-2"], told[5..]);
    front.settle().await;
}

#[tokio::test]
async fn without_an_answer_of_the_ranker_the_policy_decides() {
    let mut replica = Replica::start("r-1").await;
    let ranker: Arc<dyn Ranker> = Arc::new(BySession);
    let route = DeploymentRoute { ranker: Some(ranker), ..deployment(vec![replica.route(1)]) };
    let front = Front::start(vec![route]);
    let call = front.client().await.unary(request_with(PATH, &[]), "ping");
    within("the replica", replica.next()).await.reply("pong");
    assert_eq!(0, call.reply().await.status());
}

#[tokio::test]
async fn a_call_that_asks_is_told_whose_share_it_is() {
    let (mut old, mut new) = (Replica::start("r-old").await, Replica::start("r-new").await);
    let front = Front::start(vec![
        DeploymentRoute { traffic: share("new", 0.5), ..deployment(vec![old.route(9)]) },
        of_application("new", deployment(vec![new.route(9)])),
    ]);
    let client = front.client().await;
    let mut seen = BTreeSet::new();
    for session in 0..20 {
        for application in [None, Some("app")] {
            let session = session.to_string();
            let mut headers = vec![("x-pyserve-explain", "1"), ("x-session-id", session.as_str())];
            headers.extend(application.map(|application| ("application", application)));
            let call = client.unary(request_with(PATH, &headers), "ping");
            let incoming = within("a replica", async {
                tokio::select! { it = old.next() => it, it = new.next() => it }
            });
            incoming.await.reply("pong");
            let reply = call.reply().await;
            let line: serde_json::Value =
                serde_json::from_slice(reply.trailers["x-pyserve-explain"].as_bytes()).unwrap();
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            seen.insert((text("deployment"), text("chosen"), line["share"].to_string()));
        }
    }
    let expected =
        [("app/Echo", "r-old", "0.5"), ("app/Echo", "r-old", "null"), ("new/Echo", "r-new", "0.5")];
    let owned = |(deployment, chosen, share): (&str, &str, &str)| {
        (deployment.to_owned(), chosen.to_owned(), share.to_owned())
    };
    assert_eq!(BTreeSet::from(expected.map(owned)), seen);
}

/// Keeps questions, and answers none until the test says so.
#[derive(Debug, Default)]
struct Hanging {
    kept: Mutex<Vec<Question>>,
    is_over: AtomicBool,
    answered: AtomicUsize,
}

impl Ranker for Hanging {
    fn ask(&self, question: Question) {
        if self.is_over.load(Ordering::Relaxed) {
            question.answer.send(vec!["r-1".to_owned()]).unwrap();
            self.answered.fetch_add(1, Ordering::Relaxed);
        } else {
            self.kept.lock().unwrap().push(question);
        }
    }
}

#[tokio::test]
async fn a_ranker_that_hangs_is_left_alone_until_it_answers() {
    let mut replica = Replica::start("r-1").await;
    let hanging = Arc::new(Hanging::default());
    let ranker: Arc<dyn Ranker> = Arc::clone(&hanging) as _;
    let route = DeploymentRoute { ranker: Some(ranker), ..deployment(vec![replica.route(9)]) };
    let front = Front::start(vec![route.clone()]);
    let client = front.client().await;
    let mut call = async || {
        let call = client.unary(request_with(PATH, &[]), "ping");
        within("the replica", replica.next()).await.reply("pong");
        assert_eq!(0, call.reply().await.status());
    };
    for _ in 0..8 {
        call().await;
    }
    // A change of the table does not affect it.
    front.table.apply(vec![route]);
    for _ in 0..8 {
        call().await;
    }
    // The three in a row, and a probe where this was slow.
    let kept = hanging.kept.lock().unwrap().len();
    assert!((3..=4).contains(&kept), "{kept} of 16 asked");
    let unanswered = vec![("app".to_owned(), "Echo".to_owned(), kept as u64)];
    assert_eq!(unanswered, front.table.unanswered());

    hanging.is_over.store(true, Ordering::Relaxed);
    let answers = async {
        while hanging.answered.load(Ordering::Relaxed) < 3 {
            call().await;
        }
    };
    within("the probe, and calls that ask as before", answers).await;
    assert_eq!(unanswered, front.table.unanswered());
}

#[tokio::test]
async fn a_change_of_settings_keeps_calls_that_wait() {
    let mut replica = Replica::start("r-1").await;
    let route = deployment(vec![replica.route(1)]);
    let front = Front::start(vec![route.clone()]);
    let client = front.client().await;
    let first = client.unary(request_with(PATH, &[]), "ping");
    let running = within("the first call", replica.next()).await;
    let second = client.unary(request_with(PATH, &[]), "ping");
    support::until("the second call waits", || front.parked() == 1).await;
    let mut changed = route;
    changed.max_queued_requests = 7;
    changed.router.config.policy = router_core::PolicyKind::RoundRobin;
    front.table.apply(vec![changed]);
    assert_eq!(1, front.parked());
    running.reply("pong");
    within("the second call", replica.next()).await.reply("pong");
    assert_eq!((0, 0), (first.reply().await.status(), second.reply().await.status()));
}
