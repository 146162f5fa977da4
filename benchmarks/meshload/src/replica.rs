//! One replica as the controller sees it: it joins, answers, says what it is told to, and leaves.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::ledger::{Change, Ledger};
use crate::link::{LinkError, Receiver, Sender, Target};
use crate::messages::{
    Code, DeploymentSpec, Empty, Endpoints, External, Health, Hello, Ready, ReplicaCommand,
    ReplicaMessage, RoutingStats, Said, Told,
};

pub(crate) const APPLICATION: &str = "sim";
/// Of a replica that drains: what its calls still take.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// Nodes that the replicas stand on.
const NODES: usize = 100;
/// So that routers are told what replicas say of themselves; nobody imports it.
const OPTIONS: &str = r#"{"request_router_config": {"policy": "simulated.policies:Own"}}"#;

/// A command for a replica.
#[derive(Debug)]
pub(crate) enum Deed {
    /// Drain and end, as after SIGTERM.
    Leave,
    /// End without a word.
    Crash,
    /// Say this of itself.
    Say(String),
    /// Report a check that fails, and the next one, which does not.
    Falter,
}

/// Who it is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) number: usize,
    pub(crate) deployment: usize,
    pub(crate) pyserve_version: String,
}

/// A replica that serves.
#[derive(Debug)]
pub(crate) struct Replica {
    id: String,
    sender: Sender,
    receiver: Receiver,
    ledger: Rc<RefCell<Ledger>>,
}

// === impl Identity ===

impl Identity {
    pub(crate) fn id(&self) -> String {
        format!("{}#{:08x}", self.deployment_name(), self.number)
    }

    fn deployment_name(&self) -> String {
        format!("Simulated{}", self.deployment)
    }

    fn hello(&self) -> Hello {
        let name = self.deployment_name();
        let spec = DeploymentSpec {
            application: APPLICATION.to_owned(),
            name: name.clone(),
            code: Some(Code {
                import_path: "simulated.app:Model".to_owned(),
                fingerprint: b"simulated".to_vec(),
            }),
            options_json: OPTIONS.to_owned(),
            is_ingress: self.deployment == 0,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Hello {
            replica_id: self.id(),
            application: APPLICATION.to_owned(),
            deployment: name,
            version: self.pyserve_version.clone(),
            pid: self.number as i64 + 1,
            node: format!("node-{}", self.number % NODES),
            zone: "a".to_owned(),
            external: Some(External {
                spec: Some(spec),
                ingress_deployment: "Simulated0".to_owned(),
                started_at: now.as_secs_f64(),
            }),
        }
    }

    fn ready(&self, deployment_version: String) -> Ready {
        let (high, low) = (self.number / 250 % 250, self.number % 250);
        Ready {
            endpoints: Some(Endpoints {
                address: format!("10.1.{high}.{low}:40000"),
                unix_path: format!("/run/pyserve/{}.sock", self.id()),
            }),
            services: vec![format!("simulated.{}", self.deployment_name())],
            deployment_version,
        }
    }
}

// === impl Replica ===

impl Replica {
    /// Join and become ready.
    pub(crate) async fn join(
        target: &Target,
        identity: &Identity,
        ledger: Rc<RefCell<Ledger>>,
    ) -> Result<Self, LinkError> {
        let (mut sender, mut receiver) = target.open("/pyserve.wire.v1.Mesh/Join").await?;
        sender.send(&said(Said::Hello(Box::new(identity.hello())))).await?;
        let assign = loop {
            let command = receiver.next::<ReplicaCommand>().await?.message;
            if let Some(Told::Assign(assign)) = command.kind {
                break assign;
            }
        };
        ledger.borrow_mut().on_change(Change::Came(identity.id()), Instant::now());
        sender.send(&said(Said::Ready(identity.ready(assign.deployment_version)))).await?;
        Ok(Self { id: identity.id(), sender, receiver, ledger })
    }

    /// Answer the controller and do what is told until it leaves.
    pub(crate) async fn serve(
        mut self,
        mut deeds: mpsc::UnboundedReceiver<Deed>,
    ) -> Result<(), LinkError> {
        loop {
            tokio::select! {
                received = self.receiver.next::<ReplicaCommand>() => {
                    match received?.message.kind {
                        Some(Told::Ping(_)) => self.say(Said::Pong(Empty {})).await?,
                        Some(Told::Drain(_)) => return Err(LinkError::Ended),
                        _ => {}
                    }
                }
                deed = deeds.recv() => match deed {
                    None => return Ok(()),
                    Some(deed) => if self.act(deed).await? { return Ok(()) },
                },
            }
        }
    }

    /// Returns whether that was its end.
    async fn act(&mut self, deed: Deed) -> Result<bool, LinkError> {
        match deed {
            Deed::Leave => {
                self.note(Change::Went(self.id.clone()));
                self.say(Said::Draining(Empty {})).await?;
                sleep(DRAIN_TIME).await;
                self.sender.finish()?;
                while self.receiver.next::<ReplicaCommand>().await.is_ok() {}
                return Ok(true);
            }
            Deed::Crash => {
                self.note(Change::Went(self.id.clone()));
                return Ok(true);
            }
            Deed::Say(text) => {
                self.note(Change::Said(self.id.clone(), text.clone()));
                self.say(Said::RoutingStats(RoutingStats { json: text })).await?;
            }
            Deed::Falter => {
                let reason = "the model does not answer".to_owned();
                self.say(Said::Health(Health { healthy: false, reason })).await?;
                self.say(Said::Health(Health { healthy: true, reason: String::new() })).await?;
            }
        }
        Ok(false)
    }

    async fn say(&mut self, what: Said) -> Result<(), LinkError> {
        self.sender.send(&said(what)).await
    }

    fn note(&self, change: Change) {
        self.ledger.borrow_mut().on_change(change, Instant::now());
    }
}

fn said(kind: Said) -> ReplicaMessage {
    ReplicaMessage { kind: Some(kind) }
}
