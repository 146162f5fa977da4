//! Plain HTTP over HTTP/1.1 and HTTP/2: what reaches the replica, and what comes back.

mod front_support;
mod support;

use std::time::Duration;

use bytes::Bytes;
use front_support::{
    Http1, answer, answer_head, http_deployment, http_request, one_app, one_app_with,
};
use router_net::ingress::IngressConfig;
use support::{Front, Replica, deployment, open_service, request, within};

#[tokio::test]
async fn an_http1_request_reaches_the_replica_as_it_was_sent() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    let peer = client.stream.local_addr().unwrap();
    client
        .send(
            "POST /app/x%2Fy?q=%20a HTTP/1.1\r\nhost: example:80\r\nx-keep: 1\r\nx-drop: 2\r\n\
             connection: keep-alive, x-drop\r\ncontent-length: 4\r\ncontent-type: text/plain\r\n\
             pyserve-bypass: 1\r\nx-request-id: mine\r\n\r\nbody",
        )
        .await;
    let mut incoming = replica.next().await;
    assert_eq!("POST", incoming.head.method);
    assert_eq!("/app/x%2Fy?q=%20a", incoming.head.uri.path_and_query().unwrap().as_str());
    assert_eq!("example:80", incoming.head.uri.authority().unwrap().as_str());
    let headers = &incoming.head.headers;
    assert_eq!("example:80", headers["host"]);
    assert_eq!("1", headers["x-keep"]);
    assert_eq!("4", headers["content-length"]);
    assert_eq!("mine", headers["x-request-id"]);
    assert_eq!(format!("1.1 http {peer} /app"), headers["pyserve-http"].to_str().unwrap());
    for name in ["connection", "keep-alive", "x-drop", "pyserve-bypass", "grpc-timeout"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert_eq!("body", incoming.read_all().await);
    answer(incoming, "answer");
    let reply = client.reply().await;
    assert_eq!(200, reply.status);
    assert_eq!("answer", reply.text());
    assert_eq!("mine", reply.headers["x-request-id"]);
    assert!(!reply.headers.contains_key("pyserve-answered-by"));
    front.settle().await;
    assert_eq!((1, 1), (front.stat("forwarded"), front.stat("http_2xx")));
}

#[tokio::test]
async fn an_application_may_name_the_request_itself() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    for (set, apart) in [("ours", None), ("mine", Some("ours"))] {
        client.send("GET /app HTTP/1.1\r\nhost: a\r\nx-request-id: ours\r\n\r\n").await;
        answer_head(replica.next().await, 204, &[("x-request-id", set)]);
        let headers = client.reply().await.headers;
        assert_eq!(set, headers["x-request-id"]);
        assert_eq!(apart, headers.get("x-pyserve-request-id").map(String::as_str));
    }
    front.settle().await;
}

#[tokio::test]
async fn pages_of_other_origins_can_read_what_the_mesh_answers() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    let asked = |path, origin| format!("GET {path} HTTP/1.1\r\nhost: a\r\n{origin}\r\n");
    let origin = "origin: https://page.test\r\n";
    let allowed = "access-control-allow-origin";
    client.send(&asked("/nowhere", origin)).await;
    let headers = client.reply().await.headers;
    assert_eq!("*", headers[allowed]);
    assert!(headers["access-control-expose-headers"].contains("pyserve-answered-by"));
    client.send(&asked("/nowhere", "")).await;
    assert!(!client.reply().await.headers.contains_key(allowed));
    // What a replica answers in place of the application is the mesh's; the rest is not.
    for (said, found) in [("replica", Some("*")), ("impostor", None)] {
        client.send(&asked("/app", origin)).await;
        answer_head(replica.next().await, 503, &[("pyserve-answered-by", said)]);
        let headers = client.reply().await.headers;
        assert_eq!(found, headers.get(allowed).map(String::as_str));
    }
    front.settle().await;
}

#[tokio::test]
async fn answers_have_one_date_over_either_protocol() {
    let (mut replica, front) = one_app().await;
    let mut http1 = Http1::connect(&front).await;
    let http2 = front.client().await;
    let given = "Sun, 06 Nov 1994 08:49:37 GMT";
    for headers in [&[][..], &[("date", given)][..]] {
        http1.get("/app").await;
        answer_head(replica.next().await, 204, headers);
        let of_http1 = http1.reply().await.headers["date"].clone();
        let call = http2.start(http_request("GET", "/app", &[]), true);
        answer_head(replica.next().await, 204, headers);
        let of_http2 = call.reply().await.headers;
        assert_eq!(1, of_http2.get_all("date").iter().count());
        for date in [&*of_http1, of_http2["date"].to_str().unwrap()] {
            let age = httpdate::parse_http_date(date).unwrap().elapsed().unwrap();
            assert_eq!(headers.is_empty(), age < Duration::from_secs(60), "{date}");
        }
    }
    // Answers of our own, too.
    let health = http2.start(http_request("GET", "/-/healthz", &[]), true).reply().await;
    assert_eq!(1, health.headers.get_all("date").iter().count());
    front.settle().await;
}

#[tokio::test]
async fn an_http2_request_reaches_the_replica_as_it_was_sent() {
    let (mut replica, front) = one_app().await;
    let client = front.client().await;
    let headers = [("x-keep", "1"), ("te", "trailers"), ("cookie", "a=1"), ("cookie", "b=2")];
    let call = client.unary(http_request("PUT", "/app?x", &headers), "body");
    let mut incoming = replica.next().await;
    assert_eq!("PUT", incoming.head.method);
    assert_eq!("/app?x", incoming.head.uri.path_and_query().unwrap().as_str());
    let received = &incoming.head.headers;
    assert_eq!("test", received["host"]);
    assert_eq!("a=1; b=2", received["cookie"]);
    assert!(!received.contains_key("te"));
    let value = received["pyserve-http"].to_str().unwrap();
    assert!(value.starts_with("2 http 127.0.0.1:") && value.ends_with(" /app"), "{value}");
    let id = received["x-request-id"].clone();
    assert_eq!(36, id.len());
    assert_eq!("body", incoming.read_all().await);
    answer(incoming, "answer");
    let reply = call.reply().await;
    assert_eq!(200, reply.http);
    assert_eq!("answer", reply.body);
    assert_eq!(vec![&id], reply.headers.get_all("x-request-id").iter().collect::<Vec<_>>());
    front.settle().await;
}

#[tokio::test]
async fn the_longest_prefix_wins_and_the_root_path_goes_before_it() {
    let mut outer = Replica::start("r-1").await;
    let mut inner = Replica::start("r-2").await;
    let mut other = http_deployment(&inner, "/a/b");
    other.application = "inner".to_owned();
    let table = support::table(support::TOKEN);
    table.apply(vec![http_deployment(&outer, "/"), other]);
    let config = IngressConfig { root_path: "/front".to_owned(), ..IngressConfig::default() };
    let front = Front::configured(table, config);
    let mut client = Http1::connect(&front).await;
    for (path, is_inner, root_path) in [
        ("/a/b", true, "/front/a/b"),
        ("/a/b/c", true, "/front/a/b"),
        ("/a/bc", false, "/front"),
        ("/", false, "/front"),
    ] {
        client.get(path).await;
        let replica = if is_inner { &mut inner } else { &mut outer };
        let incoming = replica.next().await;
        let value = incoming.head.headers["pyserve-http"].to_str().unwrap().to_owned();
        assert_eq!(Some(root_path), value.splitn(4, ' ').nth(3), "{path}");
        assert_eq!(format!("/front{path}"), incoming.head.uri.path());
        answer(incoming, path);
        assert_eq!(path, client.reply().await.text());
    }
    front.settle().await;
}

#[tokio::test]
async fn an_unknown_route_is_answered_here_with_a_sentence() {
    let (_replica, front) = one_app().await;
    let reply = Http1::connect(&front).await.fetch("/elsewhere").await;
    assert_eq!(404, reply.status);
    let text = "Path '/elsewhere' not found. Ping http://.../-/routes for available routes.";
    assert_eq!(text, reply.text());
    assert_eq!("ingress", reply.headers["pyserve-answered-by"]);
    assert_eq!("text/plain; charset=utf-8", reply.headers["content-type"]);
    assert_eq!(36, reply.headers["x-request-id"].len());
    let client = front.client().await;
    let reply = client.start(http_request("GET", "/appx", &[]), true).reply().await;
    assert_eq!(404, reply.http);
    assert_eq!("none of 1 route prefixes leads to /appx", reply.headers["x-pyserve-error"]);
    assert_eq!((2, 2), (front.stat("answered_here"), front.stat("http_4xx")));
}

#[tokio::test]
async fn where_no_application_has_a_prefix_that_is_what_is_said() {
    let replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(100)])]);
    let client = front.client().await;
    let reply = client.start(http_request("GET", "/x", &[]), true).reply().await;
    let text = "no application has a route prefix: nothing leads to /x";
    assert_eq!(404, reply.http);
    assert_eq!(text, reply.headers["x-pyserve-error"]);
}

#[tokio::test]
async fn grpc_paths_come_before_prefixes_for_grpc_only() {
    let mut replica = Replica::start("r-1").await;
    let mut route = deployment(vec![replica.route(100)]);
    route.http_prefixes = vec!["/".to_owned()];
    route.services = vec![open_service("pkg.Echo")];
    let front = Front::start(vec![route]);
    let client = front.client().await;
    let call = client.unary(request("/pkg.Echo/Call"), "x");
    let incoming = replica.next().await;
    assert!(!incoming.head.headers.contains_key("pyserve-http"));
    incoming.reply("grpc");
    assert_eq!("grpc", call.reply().await.body);
    let call = client.unary(http_request("POST", "/pkg.Echo/Call", &[]), "x");
    let incoming = replica.next().await;
    assert!(incoming.head.headers.contains_key("pyserve-http"));
    answer(incoming, "http");
    assert_eq!("http", call.reply().await.body);
    let unknown = client.unary(request("/pkg.Other/Call"), "x").reply().await;
    assert_eq!(12, unknown.status());
    front.settle().await;
}

#[tokio::test]
async fn grpc_web_reaches_the_replica_as_grpc() {
    let mut replica = Replica::start("r-1").await;
    let front = Front::start(vec![deployment(vec![replica.route(100)])]);
    let mut client = Http1::connect(&front).await;
    client
        .send(
            "POST /pkg.Echo/Call HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\n\
             content-length: 6\r\npyserve-bypass: 1\r\n\r\n\0\0\0\0\x01x",
        )
        .await;
    let mut incoming = replica.next().await;
    assert_eq!("application/grpc", incoming.head.headers["content-type"]);
    assert!(!incoming.head.headers.contains_key("pyserve-bypass"));
    assert_eq!(36, incoming.head.headers["x-request-id"].len());
    assert_eq!("\0\0\0\0\x01x", incoming.read_all().await);
    incoming.reply("\0\0\0\0\x01y");
    let reply = client.reply().await;
    assert_eq!(
        (200, "application/grpc-web+proto"),
        (reply.status, &*reply.headers["content-type"])
    );
    let text = String::from_utf8_lossy(&reply.body);
    assert!(text.starts_with("\0\0\0\0\x01y"), "{text:?}");
    assert!(text.replace(' ', "").contains("grpc-status:0"), "{text:?}");
    // An unknown method is reported in the client's protocol.
    client
        .send(
            "POST /pkg.Other/Call HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\n\
             content-length: 0\r\n\r\n",
        )
        .await;
    let refused = client.reply().await;
    assert_eq!((200, "12"), (refused.status, &*refused.headers["grpc-status"]));
    front.settle().await;
}

#[tokio::test]
async fn health_and_routes_are_answered_without_a_replica() {
    let replica = Replica::start("r-1").await;
    let mut other = http_deployment(&replica, "/");
    other.application = "root".to_owned();
    let front = Front::start(vec![http_deployment(&replica, "/app"), other]);
    let mut client = Http1::connect(&front).await;
    let health = client.fetch("/-/healthz").await;
    assert_eq!((200, "success"), (health.status, health.text()));
    let routes = client.fetch("/-/routes").await;
    assert_eq!(r#"{"/":"root","/app":"app"}"#, routes.text());
    assert_eq!("application/json", routes.headers["content-type"]);
    assert_eq!(404, client.fetch("/-/other").await.status);
    client.send("POST /-/healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    let refused = client.reply().await;
    assert_eq!((405, "GET, HEAD"), (refused.status, refused.headers["allow"].as_str()));
    client.send("HEAD /-/healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (status, headers) = client.head().await;
    assert_eq!((200, "7"), (status, headers["content-length"].as_str()));
    // Nothing of a body came, or this would not be an answer.
    assert_eq!(200, client.fetch("/-/healthz").await.status);
    let client = front.client().await;
    let reply = client.start(http_request("GET", "/-/healthz", &[]), true).reply().await;
    assert_eq!("success", reply.body);
    let reply = client.start(http_request("HEAD", "/-/healthz", &[]), true).reply().await;
    assert_eq!(
        ("", "7"),
        (
            std::str::from_utf8(&reply.body).unwrap(),
            reply.headers["content-length"].to_str().unwrap()
        )
    );
}

#[tokio::test]
async fn head_and_options_reach_the_application() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    for method in ["HEAD", "OPTIONS"] {
        client.send(format!("{method} /app HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let incoming = replica.next().await;
        assert_eq!(method, incoming.head.method);
        let length = if method == "HEAD" { "5" } else { "0" };
        answer_head(incoming, 200, &[("content-length", length), ("x-from", "app")]);
        let (status, headers) = client.head().await;
        assert_eq!((200, "app"), (status, headers["x-from"].as_str()), "{method} {headers:?}");
        assert_eq!(length, headers["content-length"]);
    }
    front.settle().await;
    assert_eq!(0, front.stat("cancelled_by_client"));
}

#[tokio::test]
async fn a_connection_is_used_again_and_pipelined_requests_are_answered_in_order() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    for path in ["/app/1", "/app/2", "/app/3"] {
        client.get(path).await;
    }
    for path in ["/app/1", "/app/2", "/app/3"] {
        let incoming = replica.next().await;
        assert_eq!(path, incoming.head.uri.path());
        answer(incoming, path);
        assert_eq!(path, client.reply().await.text());
    }
    assert_eq!(1, front.stat("connections"));
    front.settle().await;
}

#[tokio::test]
async fn an_http10_client_gets_an_answer_that_ends_with_the_connection() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("GET /app HTTP/1.0\r\n\r\n").await;
    let mut incoming = replica.next().await;
    assert!(incoming.head.headers["pyserve-http"].to_str().unwrap().starts_with("1.0 http "));
    let mut stream = incoming.begin();
    for piece in ["some", "thing"] {
        stream.send_data(piece.into(), false).unwrap();
    }
    stream.send_data(Bytes::new(), true).unwrap();
    let reply = client.reply().await;
    assert_eq!((200, "something"), (reply.status, reply.text()));
    assert!(!reply.headers.contains_key("transfer-encoding"));
    front.settle().await;
}

#[tokio::test]
async fn chunked_bodies_go_both_ways_before_either_side_has_ended() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    client.send("POST /app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let mut incoming = replica.next().await;
    assert!(!incoming.head.headers.contains_key("transfer-encoding"));
    let mut stream = incoming.begin();
    let (status, headers) = client.head().await;
    assert_eq!((200, "chunked"), (status, headers["transfer-encoding"].as_str()));
    for piece in ["one", "two"] {
        client.send(format!("3\r\n{piece}\r\n")).await;
        let received = within("a piece", incoming.body.data()).await.unwrap().unwrap();
        assert_eq!(piece, received);
        incoming.body.flow_control().release_capacity(3).unwrap();
        stream.send_data(received, false).unwrap();
        assert_eq!(piece, client.chunk().await);
    }
    client.send("0\r\nx-trailer: ignored\r\n\r\n").await;
    assert_eq!("", incoming.read_all().await);
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!("", client.chunk().await);
    front.settle().await;
}

#[tokio::test]
async fn a_body_is_asked_for_only_when_somebody_takes_it() {
    let (mut replica, front) = one_app().await;
    let mut client = Http1::connect(&front).await;
    let head = "POST /app HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    client.send(head).await;
    assert_eq!("HTTP/1.1 100 Continue", client.line().await);
    assert_eq!("", client.line().await);
    client.send("body").await;
    let mut incoming = replica.next().await;
    assert_eq!("body", incoming.read_all().await);
    answer(incoming, "done");
    assert_eq!("done", client.reply().await.text());
    // No application is there: the answer comes without `100 Continue`.
    client.send(head.replace("/app", "/none")).await;
    assert_eq!(404, client.reply().await.status);
    front.settle().await;
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    let (_replica, front) = one_app_with(IngressConfig::default()).await;
    for (head, status, text) in [
        ("GET /app HTTP/1.1\r\n\r\n", 400, "the request has no host header"),
        ("GET /app HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "names two hosts"),
        ("GET /app HTTP/1.1\r\nhost: a b\r\n\r\n", 400, "may be a name or an address"),
        (
            "GET /app HTTP/1.1\r\nhost: a\r\nx-request-timeout-seconds: soon\r\n\r\n",
            400,
            "x-request-timeout-seconds=\"soon\" is not allowed; allowed: a finite number of seconds",
        ),
        ("CONNECT app:80 HTTP/1.1\r\nhost: app:80\r\n\r\n", 405, "WebSockets over HTTP/2 only"),
        (
            "POST /app HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\r\n",
            505,
            "gRPC needs HTTP/2",
        ),
        // A host where a path should be.
        (
            "POST app HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc-web\r\n\r\n",
            400,
            "the target's host (:authority) differ",
        ),
        // The rest could not be parsed at all.
        ("nonsense\r\n\r\n", 400, "the request's head is malformed: invalid HTTP"),
        ("GET / HTTP/9.9\r\n\r\n", 400, "malformed: invalid HTTP version"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n", 400, "malformed: invalid HTTP header"),
        ("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400, "may be one decimal number"),
        ("GET / HTTP/1.1\r\nhost: a\n\r\n", 400, "a line feed without a carriage return"),
    ] {
        let mut client = Http1::connect(&front).await;
        client.send(head).await;
        let reply = client.reply().await;
        assert_eq!(status, reply.status, "{head:?}");
        assert!(reply.text().contains(text), "{head:?}: {:?}", reply.text());
        assert_eq!("ingress", reply.headers["pyserve-answered-by"]);
        assert!(reply.headers.contains_key("x-request-id"));
    }
    front.settle().await;
}

#[tokio::test]
async fn a_body_in_two_codings_is_the_last_of_its_connection() {
    let (_replica, front) = one_app_with(IngressConfig::default()).await;
    for codings in ["chunked, chunked", "gzip, chunked"] {
        let mut client = Http1::connect(&front).await;
        let hidden = "GET /app/hidden HTTP/1.1\r\nhost: a\r\n\r\n";
        let head = format!("POST /app HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {codings}");
        client.send(format!("{head}\r\n\r\n0\r\n\r\n{hidden}")).await;
        let reply = client.reply().await;
        assert_eq!(501, reply.status, "{codings}");
        assert_eq!("close", reply.headers["connection"], "{codings}");
        client.closed().await;
    }
    front.settle().await;
}
