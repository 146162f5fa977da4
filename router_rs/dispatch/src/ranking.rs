//! How a call asks a user's policy (`ranker`), and for how long it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request;
use router_core::{Asked, Heard, ReplicaId};
use router_protocol::names;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::entry::{Candidate, DeploymentEntry};
use crate::ranker::{Advice, Question, Ranker, model_of};
use crate::table::snapshot::Deployment;

/// How long a call waits for an order. Arbitrary: far above what a few lines of Python take, and
/// short enough that a policy that hangs delays calls instead of losing them.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// A call that waits for an answer; the outcome is reported when this is dropped.
struct Asking<'a> {
    advice: &'a Advice,
    entry: &'a DeploymentEntry,
    asked: Asked,
    heard: Heard,
}

impl<'a> Asking<'a> {
    /// `None`: the call is routed without an order.
    fn begin(advice: &'a Advice, entry: &'a DeploymentEntry) -> Option<Self> {
        let asked = advice.adviser.lock().ask(entry.now())?;
        Some(Self { advice, entry, asked, heard: Heard::Unknown })
    }

    async fn hear(&mut self, answered: oneshot::Receiver<Vec<String>>) -> Vec<String> {
        let (heard, order) = match timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Ok(order)) => (Heard::Answer, order),
            Ok(Err(_)) => (Heard::TurnedAway, Vec::new()),
            Err(_) => (Heard::Nothing, Vec::new()),
        };
        self.heard = heard;
        order
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.heard == Heard::Nothing {
            self.advice.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        self.advice.adviser.lock().on_heard(self.asked, self.heard, self.entry.now());
    }
}

impl Deployment {
    /// The order in which a user's policy wants the replicas tried; empty: it has none.
    pub async fn rank(&self, parts: &request::Parts) -> Vec<ReplicaId> {
        let Some(advice) = &self.advice else { return Vec::new() };
        let (session, model) = (names::session_id(&parts.headers), model_of(parts));
        // Boxed: every call's task has room for this, and few use it.
        Box::pin(self.rank_by(advice, parts.uri.path(), session, model)).await
    }

    /// Listens to where calls go.
    pub fn listener(&self) -> Option<Arc<dyn Ranker>> {
        let ranker = self.advice.as_ref().map(|advice| &advice.ranker);
        ranker.filter(|ranker| ranker.listens()).cloned()
    }

    /// Like [`Deployment::rank`], for a place that is reserved before the call is known.
    pub async fn rank_place(&self, session: &str, model: &str) -> Vec<ReplicaId> {
        let Some(advice) = &self.advice else { return Vec::new() };
        Box::pin(self.rank_by(advice, "", session, model)).await
    }

    async fn rank_by(
        &self,
        advice: &Advice,
        path: &str,
        session: &str,
        model: &str,
    ) -> Vec<ReplicaId> {
        let Some(mut asking) = Asking::begin(advice, &self.entry) else { return Vec::new() };
        let (ids, candidates): (Vec<_>, Vec<_>) = self.entry.candidates().into_iter().unzip();
        let known: Vec<String> =
            candidates.iter().map(|candidate: &Candidate| candidate.replica_id.clone()).collect();
        let (answer, answered) = oneshot::channel();
        advice.ranker.ask(Question {
            path: path.to_owned(),
            session: session.to_owned(),
            model: model.to_owned(),
            candidates,
            answer,
        });
        let order = asking.hear(answered).await;
        let place = |name: &String| known.iter().position(|known| known == name);
        order.iter().filter_map(place).map(|place| ids[place]).collect()
    }
}
