//! Two replica servers whose calls the test answers, and a channel to them.
#![allow(dead_code, unreachable_pub)] // each test file uses its own part

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use router_net::client::{
    Channel, ChannelConfig, ClientCall, NewCall, NewChoice, ReconnectBackoff,
};
use router_net::dispatch::{CallOptions, Placement, ReplicaRoute, Reservation, RoutingTable};
use router_net::grpc::{CONTENT_TYPE_GRPC, Code, Encoding, Encodings, Message};
use router_net::io::IoThreads;
use router_net::link::{Command, Event, EventSink, Mailbox};
use router_net::server::{CallSink, Method, ServedCall, Server, ServerConfig};

use crate::support::{PATH, TOKEN, deployment, table, until};

/// Keeps calls until the test answers them.
#[derive(Debug, Default)]
pub struct Held {
    pub calls: Mutex<Vec<Arc<ServedCall>>>,
}

impl CallSink for Held {
    fn begin(&self, served_call: Arc<ServedCall>, _message: Option<Message>) {
        self.calls.lock().push(served_call);
    }
}

impl EventSink for Held {
    fn push(&self, _token: u64, event: Event) {
        panic!("unexpected {event:?}");
    }
}

pub struct Replica {
    pub id: &'static str,
    pub held: Arc<Held>,
    pub server: Server,
    pub address: String,
}

impl Replica {
    pub fn start(id: &'static str, capacity: u32, threads: &Arc<IoThreads>) -> Self {
        let held = Arc::new(Held::default());
        let config = ServerConfig {
            receive_bytes_max: 1 << 20,
            send_bytes_max: 1 << 20,
            metadata_bytes_max: 16 * 1024,
            concurrent_calls_max: Some(capacity),
            idle_streams_max: 10,
            concurrent_streams_max: 4096,
            default_encoding: Encoding::Identity,
            encodings: Encodings::default(),
            keepalive: None,
            connection_age_max: None,
            connection_grace: None,
            connection_idle_max: None,
            idle_bytes_max: 0,
            descriptors_max: u64::MAX,
            proxies: Arc::default(),
            replica_id: id.to_owned(),
            token: TOKEN.to_vec(),
            call_token: Vec::new(),
            maps_arenas: true,
        };
        let server = Server::new(config, held.clone(), Arc::clone(threads));
        let method = Method {
            index: 0,
            is_request_streaming: false,
            is_response_streaming: false,
            weight: 1,
            subtypes: None,
            message_bytes_max: None,
            receive_bytes_max: None,
        };
        server.register(PATH, method);
        let address = server.listen_tcp("127.0.0.1:0", None, false).unwrap().name();
        server.start();
        Self { id, held, server, address }
    }

    pub fn route(&self, capacity: u32) -> ReplicaRoute {
        ReplicaRoute {
            replica_id: self.id.to_owned(),
            node: format!("node-of-{}", self.id),
            zone: String::new(),
            address: self.address.clone(),
            unix_path: String::new(),
            max_ongoing_requests: capacity,
            proves_itself: true,
        }
    }

    pub fn held(&self) -> usize {
        self.held.calls.lock().len()
    }

    pub fn set_models(&self, models: &[&str]) {
        self.server.set_models(models.iter().map(ToString::to_string).collect());
    }

    pub fn connections(&self) -> u64 {
        let stats = self.server.stats();
        stats.into_iter().find(|(name, _)| *name == "connections").unwrap().1
    }
}

/// Two replicas, a table with both, and a channel to them.
pub struct Fixture {
    pub replicas: Arc<[Replica; 2]>,
    pub table: Arc<RoutingTable>,
    pub channel: Channel,
    pub threads: Arc<IoThreads>,
    pub events: Arc<Events>,
}

#[derive(Debug, Default)]
pub struct Events(pub Mutex<Vec<(u64, Event)>>);

impl EventSink for Events {
    fn push(&self, token: u64, event: Event) {
        self.0.lock().push((token, event));
    }
}

impl Events {
    pub async fn next(&self, token: u64) -> Event {
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

/// Replicas with room for `capacity` calls, for which the router assumes `assumed`.
pub fn start(capacity: u32, assumed: u32) -> Fixture {
    let threads = IoThreads::start("test", 1).unwrap();
    let replicas = ["r-1", "r-2"].map(|id| Replica::start(id, capacity, &threads));
    Fixture::before(Arc::new(replicas), threads, assumed)
}

impl Fixture {
    fn before(replicas: Arc<[Replica; 2]>, threads: Arc<IoThreads>, assumed: u32) -> Self {
        let table = table(TOKEN);
        table.apply(vec![deployment(replicas.iter().map(|r| r.route(assumed)).collect())]);
        let config = ChannelConfig {
            authority: None,
            user_agent: "test/1".to_owned(),
            receive_bytes_max: 1 << 20,
            send_bytes_max: 1 << 20,
            default_encoding: Encoding::Identity,
            encodings: Encodings::default(),
            tls: None,
            keepalive: None,
            reconnect: ReconnectBackoff::default(),
        };
        let channel =
            Channel::to_deployment("app/Echo", Arc::clone(&table), config, Arc::clone(&threads));
        let events = Arc::default();
        Self { replicas, table, channel: channel.unwrap(), threads, events }
    }

    /// Another router in front of the same replicas.
    pub fn another(&self, assumed: u32) -> Self {
        Self::before(Arc::clone(&self.replicas), Arc::clone(&self.threads), assumed)
    }

    pub fn call(&self, model: &str, placement: Placement) -> Arc<ClientCall> {
        let mut metadata = HeaderMap::new();
        if !model.is_empty() {
            metadata.insert("multiplexed_model_id", HeaderValue::from_str(model).unwrap());
        }
        let new = NewCall {
            path: PATH.to_owned(),
            metadata,
            timeout: Some(Duration::from_secs(30)),
            message: Some(Bytes::from_static(b"ping").into()),
            content_type: CONTENT_TYPE_GRPC,
            encoding: None,
            wait_for_ready: false,
            placement,
            options: CallOptions::default(),
            is_response_streaming: false,
        };
        let call = self.channel.start(self.events.clone(), new);
        self.channel.thread().wake();
        call
    }

    pub fn with_model(&self, model: &str) -> Arc<ClientCall> {
        self.call(model, Placement::Any)
    }

    pub fn pinned(&self, replica_id: &str) -> Arc<ClientCall> {
        self.call("", Placement::Replica(replica_id.to_owned()))
    }

    pub async fn choose(&self, model: &str, timeout_ms: u64) -> Result<Arc<Reservation>, Code> {
        let timeout = Some(Duration::from_millis(timeout_ms));
        let new = NewChoice { timeout, model: model.to_owned(), ..NewChoice::default() };
        let token = self.channel.choose(self.events.clone(), new);
        self.channel.thread().wake();
        match self.events.next(token).await {
            Event::Chosen(chosen) => chosen.map_err(|status| status.code),
            other => panic!("expected Chosen, got {other:?}"),
        }
    }

    /// The number of calls that each replica holds, once there are `total`.
    pub async fn held(&self, total: usize) -> [usize; 2] {
        let held = || self.replicas.each_ref().map(Replica::held);
        until("the calls are at replicas", || held().iter().sum::<usize>() >= total).await;
        held()
    }

    /// Answers everything and waits for the ends.
    pub async fn answer(&self, calls: &[Arc<ClientCall>]) {
        for replica in self.replicas.iter() {
            for call in std::mem::take(&mut *replica.held.calls.lock()) {
                let reply = Command::Reply(Bytes::from_static(replica.id.as_bytes()).into());
                self.threads.all()[0].run(move || call.link().deliver(reply));
            }
        }
        for call in calls {
            assert!(matches!(self.events.next(call.link().token).await, Event::Done(_)));
        }
    }

    pub async fn done(&self, call: &ClientCall) -> Option<Bytes> {
        match self.events.next(call.link().token).await {
            Event::Done(message) => message.map(Message::into_bytes),
            other => panic!("expected Done, got {other:?}"),
        }
    }

    pub fn models(&self) -> Vec<Vec<String>> {
        let replicas = self.table.replicas("app", "Echo");
        replicas.into_iter().map(|replica| replica.models).collect()
    }

    pub fn in_flight(&self) -> u64 {
        self.table.stats()[0].router.in_flight
    }
}
