//! A server, the ingress in front of it, and a connection of the wire between them.
#![allow(dead_code)] // each test file uses its own part

use std::sync::Arc;

use router_net::dispatch::{DeploymentRoute, ReplicaRoute};
use router_net::ingress::IngressConfig;
use router_net::link::{Command, Mailbox};
use router_net::server::{ServedCall, Server, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::http_support::{Fixture, Told, send};
use crate::server_support;
use crate::support::{Front, deployment, table};

pub(crate) const TOKEN: &[u8] = b"secret";

pub(crate) fn config(replica_id: &str) -> ServerConfig {
    ServerConfig { replica_id: replica_id.to_owned(), ..server_support::config() }
}

pub(crate) fn replica(replica_id: &str, port: u16) -> ReplicaRoute {
    ReplicaRoute {
        replica_id: replica_id.to_owned(),
        node: "elsewhere".to_owned(),
        zone: String::new(),
        address: format!("127.0.0.1:{port}"),
        unix_path: String::new(),
        max_ongoing_requests: 1000,
        proves_itself: true,
    }
}

pub(crate) fn route(replicas: Vec<ReplicaRoute>) -> DeploymentRoute {
    DeploymentRoute {
        services: Vec::new(),
        http_prefixes: vec!["/app".to_owned()],
        ..deployment(replicas)
    }
}

/// One I/O thread, so that all calls to a replica share a connection.
pub(crate) fn front(replicas: Vec<ReplicaRoute>) -> Front {
    front_of(route(replicas))
}

pub(crate) fn front_of(route: DeploymentRoute) -> Front {
    let table = table(TOKEN);
    table.apply(vec![route]);
    Front::with_threads(table, IngressConfig::default(), 1)
}

pub(crate) fn one_app() -> (Fixture, Front) {
    one_app_with(config("replica-1"))
}

pub(crate) fn one_app_with(config: ServerConfig) -> (Fixture, Front) {
    let fixture = Fixture::start(config);
    let front = front(vec![replica("replica-1", fixture.port)]);
    (fixture, front)
}

pub(crate) fn stat(server: &Server, name: &str) -> u64 {
    server.stats().into_iter().find(|(key, _)| *key == name).expect("a known counter").1
}

pub(crate) fn post(body: &str, headers: &str) -> String {
    let length = body.len();
    format!(
        "POST /app/x?y=1 HTTP/1.1\r\nhost: h:1\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// Forwards bytes until it is aborted, which closes both sides at once.
pub(crate) async fn pass_on(to: u16) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
        let _broken = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    (port, task)
}

/// Takes the pieces of a request's body to their end; returns how many bytes it had.
pub(crate) async fn take_body(fixture: &mut Fixture, served_call: &Arc<ServedCall>) -> usize {
    let mut came = 0;
    loop {
        match fixture.next_of_call().await {
            Told::Piece(piece) => {
                came += piece.len();
                if served_call.link().take(piece.len()) {
                    send(served_call, Command::Resume);
                }
            }
            told => {
                assert_eq!(Told::HalfClose, told);
                return came;
            }
        }
    }
}
