//! Calls through the ingress, and the answers that it gives itself.

mod support;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use support::{
    Client, Front, PATH, Replica, deployment, grpc_response, ok_trailers, open_service, request,
    request_with, within,
};

type Headers = &'static [(&'static str, &'static str)];

async fn one_replica() -> (Replica, Front, Client) {
    let replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(100)])]);
    let client = front.client().await;
    (replica, front, client)
}

#[tokio::test]
async fn a_unary_call_comes_through_with_its_metadata_untouched() {
    let (mut replica, front, client) = one_replica().await;
    let headers = [("x-text", "value"), ("x-data-bin", "AAEC"), ("user-agent", "test/1")];
    let call = client.unary(request_with(PATH, &headers), "ping");

    let mut incoming = replica.next().await;
    assert_eq!(PATH, incoming.head.uri.path());
    assert_eq!("test", incoming.head.uri.authority().unwrap());
    for (name, value) in headers {
        assert_eq!(value, incoming.head.headers[name]);
    }
    assert_eq!("trailers", incoming.head.headers["te"]);
    assert_eq!("ping", incoming.read_all().await);
    let mut response = grpc_response();
    response.headers_mut().insert("x-initial", HeaderValue::from_static("i"));
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    stream.send_data(Bytes::from_static(b"pong"), false).unwrap();
    let mut trailers = ok_trailers();
    trailers.insert("x-final-bin", HeaderValue::from_static("BAU"));
    stream.send_trailers(trailers).unwrap();

    let reply = call.reply().await;
    assert_eq!(0, reply.status());
    assert_eq!("pong", reply.body);
    assert_eq!("i", reply.headers["x-initial"]);
    assert_eq!("BAU", reply.trailers["x-final-bin"]);
    assert_eq!(None, reply.answered_by());
    front.settle().await;
    assert_eq!(1, front.stat("forwarded"));
}

#[tokio::test]
async fn streams_go_both_ways_before_either_side_has_ended() {
    let (mut replica, front, client) = one_replica().await;
    let mut call = client.start(request(PATH), false);
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    let head = within("the head", &mut call.response).await.unwrap();
    let mut answer = head.into_body();
    for round in 0..20_u8 {
        call.body.send_data(vec![round; 10].into(), false).unwrap();
        let up = within("a request piece", incoming.body.data()).await.unwrap().unwrap();
        assert_eq!(vec![round; 10], up);
        incoming.body.flow_control().release_capacity(up.len()).unwrap();
        stream.send_data(up, false).unwrap();
        let down = within("an answer piece", answer.data()).await.unwrap().unwrap();
        assert_eq!(vec![round; 10], down);
    }
    call.body.send_data(Bytes::new(), true).unwrap();
    assert!(
        within("the request's end", incoming.body.data())
            .await
            .is_none_or(|piece| { piece.unwrap().is_empty() })
    );
    stream.send_trailers(ok_trailers()).unwrap();
    let trailers = within("trailers", answer.trailers()).await.unwrap().unwrap();
    assert_eq!("0", trailers["grpc-status"]);
    front.settle().await;
}

#[tokio::test]
async fn a_client_stream_and_a_server_stream_come_through_whole() {
    let (mut replica, front, client) = one_replica().await;
    let mut call = client.start(request(PATH), false);
    for piece in ["a", "b", "c"] {
        call.body.send_data(piece.into(), false).unwrap();
    }
    call.body.send_data(Bytes::new(), true).unwrap();
    let mut incoming = replica.next().await;
    assert_eq!("abc", incoming.read_all().await);
    let mut stream = incoming.begin();
    for piece in ["x", "y", "z"] {
        stream.send_data(piece.into(), false).unwrap();
    }
    stream.send_trailers(ok_trailers()).unwrap();
    assert_eq!("xyz", call.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn a_trailers_only_answer_stays_one() {
    let (mut replica, front, client) = one_replica().await;
    let call = client.unary(request(PATH), "ping");
    let mut incoming = replica.next().await;
    let mut response = grpc_response();
    response.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
    incoming.respond.send_response(response, true).unwrap();
    let reply = call.reply().await;
    assert_eq!("5", reply.headers["grpc-status"]);
    assert_eq!(HeaderMap::new(), reply.trailers);
    assert_eq!(None, reply.answered_by());
    front.settle().await;
}

#[tokio::test]
async fn mesh_metadata_is_stripped_both_ways() {
    let (mut replica, front, client) = one_replica().await;
    let call = client.unary(request_with(PATH, &[("pyserve-model", "m"), ("x-keep", "1")]), "a");
    let mut incoming = replica.next().await;
    assert!(!incoming.head.headers.contains_key("pyserve-model"));
    assert_eq!("1", incoming.head.headers["x-keep"]);
    let mut response = grpc_response();
    response.headers_mut().insert("pyserve-secret", HeaderValue::from_static("s"));
    let mut stream = incoming.respond.send_response(response, false).unwrap();
    let mut trailers = ok_trailers();
    trailers.insert("pyserve-load", HeaderValue::from_static("3;10"));
    trailers.insert("pyserve-answered-by", HeaderValue::from_static("impostor"));
    stream.send_trailers(trailers).unwrap();
    let reply = call.reply().await;
    let names = reply.headers.keys().chain(reply.trailers.keys());
    assert_eq!(0, names.filter(|name| name.as_str().starts_with("pyserve-")).count());
    front.settle().await;
    let reported = front.table.stats()[0].router.replicas[0].reported.unwrap();
    assert_eq!((3, 10), (reported.in_flight, reported.limit));
}

#[tokio::test]
async fn a_request_that_is_not_grpc_gets_415() {
    let (_replica, front, client) = one_replica().await;
    let mut http_request = request(PATH);
    http_request.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
    assert_eq!(415, client.start(http_request, true).reply().await.http);
    front.settle().await;
}

#[tokio::test]
async fn bad_requests_are_answered_by_the_ingress_with_a_reason() {
    let (_replica, front, client) = one_replica().await;
    let cases: [(&str, Headers, u32, &str); 6] = [
        ("/pkg.Other/Call", &[], 12, "/pkg.Other/Call"),
        ("/nonsense", &[], 12, "/nonsense"),
        (PATH, &[("grpc-timeout", "soon")], 13, "grpc-timeout"),
        (PATH, &[("grpc-timeout", "0n")], 4, "deadline"),
        (PATH, &[("content-type", "application/grpc+pickle")], 12, "pickle"),
        (PATH, &[("content-type", "application/grpc+CloudPickle")], 12, "pickle"),
    ];
    for (path, headers, status, part) in cases {
        let mut bad = request_with(path, &[]);
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            bad.headers_mut().insert(name, value.parse().unwrap());
        }
        let reply = client.unary(bad, "ping").reply().await;
        assert_eq!(status, reply.status(), "{path} {headers:?}");
        assert!(reply.message().contains(part), "{}", reply.message());
        assert_eq!(Some("ingress"), reply.answered_by());
    }
    front.settle().await;
}

#[tokio::test]
async fn two_applications_with_one_service_need_to_be_told_apart() {
    let mut first = Replica::start("r-1").await;
    let mut second = Replica::start("r-2").await;
    let mut other = deployment(vec![second.route(1)]);
    other.application = "other".to_owned();
    let front = Front::start(vec![deployment(vec![first.route(1)]), other]);
    let client = front.client().await;

    let reply = client.call("ping").await;
    assert_eq!(3, reply.status());
    assert!(reply.message().contains("app and other"), "{}", reply.message());

    for (application, replica) in [("app", &mut first), ("other", &mut second)] {
        let call = client.unary(request_with(PATH, &[("application", application)]), "ping");
        replica.next().await.reply(application);
        assert_eq!(application, call.reply().await.body);
    }
    let unknown = client.unary(request_with(PATH, &[("application", "third")]), "ping");
    assert_eq!(12, unknown.reply().await.status());
    front.settle().await;
}

#[tokio::test]
async fn plain_calls_that_are_named_as_a_service_are_reached_by_their_application() {
    let mut of_proto = Replica::start("r-1").await;
    let mut plain = Replica::start("r-2").await;
    let mut described = deployment(vec![of_proto.route(1)]);
    described.services[0].methods = Some(vec!["Unary".to_owned()]);
    let mut named_alike = deployment(vec![plain.route(1)]);
    (named_alike.application, named_alike.deployment) = ("pkg".to_owned(), "Echo".to_owned());
    named_alike.services[0].methods = None;
    let front = Front::start(vec![described, named_alike]);
    let client = front.client().await;
    let call = |path, headers: &[(&str, &str)]| client.unary(request_with(path, headers), "ping");

    for headers in [&[][..], &[("application", "app")], &[("application", "third")]] {
        let call = call("/pkg.Echo/Unary", headers);
        of_proto.next().await.reply("service");
        assert_eq!("service", call.reply().await.body, "{headers:?}");
    }
    for (path, headers) in [
        ("/pkg.Echo/Unary", &[("application", "pkg")][..]),
        ("/pkg.Echo/other", &[("application", "pkg")]),
        ("/pkg.Echo/other", &[]),
    ] {
        let call = call(path, headers);
        plain.next().await.reply("plain");
        assert_eq!("plain", call.reply().await.body, "{path} {headers:?}");
    }
    front.settle().await;
}

#[tokio::test]
async fn an_unknown_method_of_a_known_service_is_answered_here() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(1)]);
    route.services[0].methods = Some(vec!["Unary".to_owned()]);
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let reply = client.unary(request("/pkg.Echo/Unari"), "?").reply().await;
    assert_eq!(12, reply.status());
    assert_eq!("ingress", reply.headers["pyserve-answered-by"]);
    let call = client.unary(request("/pkg.Echo/Unary"), "?");
    replica.next().await.reply("!");
    assert_eq!("!", call.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn health_is_the_meshs_own_whoever_else_serves_it() {
    let users = Replica::start("r-1").await;
    let mut meshs = Replica::start("r-2").await;
    let mut user = deployment(vec![users.route(1)]);
    user.services = vec![open_service("grpc.health.v1.Health")];
    let mut mesh = deployment(vec![meshs.route(1)]);
    mesh.services.clone_from(&user.services);
    mesh.application = "pyserve".to_owned();
    let front = Front::start(vec![user, mesh]);
    let client = front.client().await;
    let call = client.unary(request("/grpc.health.v1.Health/Check"), "?");
    meshs.next().await.reply("healthy");
    assert_eq!("healthy", call.reply().await.body);
    front.settle().await;
}

#[tokio::test]
async fn the_deadline_that_is_left_is_passed_on_and_bounded_by_the_deployment() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(100)]);
    route.request_timeout = Some(std::time::Duration::from_secs(5));
    let front = Front::start(vec![route]);
    let client = front.client().await;
    for (timeout, at_most) in [(Some("2S"), 2.0), (Some("1H"), 5.0), (None, 5.0)] {
        let headers: Vec<_> = timeout.iter().map(|timeout| ("grpc-timeout", *timeout)).collect();
        let call = client.unary(request_with(PATH, &headers), "ping");
        let incoming = replica.next().await;
        let left = incoming.head.headers["grpc-timeout"].as_bytes();
        let left = router_net::grpc::parse_timeout(left).unwrap().as_secs_f64();
        assert!(left <= at_most && left > at_most - 1.5, "{timeout:?}: {left} s left");
        incoming.reply("pong");
        assert_eq!(0, call.reply().await.status());
    }
    front.settle().await;
}

#[tokio::test]
async fn small_frames_are_joined_only_as_far_as_they_have_come() {
    let (mut replica, front, client) = one_replica().await;
    let call = client.unary(request(PATH), "go");
    let mut incoming = replica.next().await;
    let mut stream = incoming.begin();
    let expected: Vec<u8> = (0..5000_u32).map(|index| index as u8).collect();
    for piece in expected.chunks(10) {
        stream.send_data(piece.to_vec().into(), false).unwrap();
    }
    let mut body = within("the head", call.response).await.unwrap().into_body();
    let (mut received, mut frames) = (Vec::new(), 0);
    while received.len() < expected.len() {
        let piece = within("a piece", body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        received.extend_from_slice(&piece);
        frames += 1;
    }
    assert_eq!(expected, received);
    assert!(frames < 250, "{frames} frames of 500");
    // One more small piece comes through without waiting for another.
    stream.send_data("last".into(), false).unwrap();
    assert_eq!("last", within("a piece", body.data()).await.unwrap().unwrap());
    stream.send_trailers(ok_trailers()).unwrap();
    within("trailers", body.trailers()).await.unwrap();
    front.settle().await;
}

#[tokio::test]
async fn many_calls_at_once_open_a_few_connections_to_a_replica() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(1000)])]);
    let client = front.client().await;
    let first = client.unary(request(PATH), "ping");
    let mut held = vec![replica.next().await];
    assert_eq!(1, replica.connections());
    let mut calls = vec![first];
    // In two steps, because a further connection takes calls only once it is open.
    for wanted in [200, 600] {
        while calls.len() < wanted {
            calls.push(client.unary(request(PATH), "ping"));
            held.push(replica.next().await);
        }
    }
    let connections = replica.connections();
    assert!((2..=4).contains(&connections), "{connections} connections for 600 calls");
    for incoming in held {
        incoming.reply("pong");
    }
    for call in calls {
        assert_eq!("pong", call.reply().await.body);
    }
    front.settle().await;
    let client = front.client().await;
    let call = client.unary(request(PATH), "again");
    replica.next().await.reply("pong");
    assert_eq!("pong", call.reply().await.body);
}
