//! A policy of the user's: it is asked for an order of the replicas before the router is.
//!
//! The router takes the first of that order which has room. Without an answer in time, or with an
//! empty one, its own policy decides; see `router_core::Adviser` for how long one is asked that does
//! not answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request;
use router_core::{Adviser, Asked, Heard, ReplicaId};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::entry::DeploymentEntry;
use super::snapshot::Deployment;
use crate::BriefMutex;
use crate::names;

/// How long a call waits for an order. Arbitrary: far above what a few lines of Python take, and
/// short enough that a policy which hangs delays calls instead of losing them.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// Puts replicas in order, somewhere else.
pub trait Ranker: fmt::Debug + Send + Sync {
    /// Takes the question, unless too many wait. Must neither block nor take long.
    fn ask(&self, question: Question);

    /// Whether [`Ranker::tell`] does anything.
    fn listens(&self) -> bool {
        false
    }

    /// Takes note, as fast as [`Ranker::ask`]; false: too much waits. The end of a call is told once
    /// if its beginning was taken, and then always taken.
    fn tell(&self, _news: News) -> bool {
        false
    }
}

/// What became of a call after its replica was picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was sent to a replica.
    Routed { number: u64, replica_id: String, path: String, session: String, model: String },
    /// It is over there: answered, failed, given up, or sent elsewhere.
    Completed { number: u64, replica_id: String },
}

/// A call at its replica, of which a listener knows; its end is told when this is dropped.
#[derive(Debug)]
pub(super) struct Followed {
    ranker: Arc<dyn Ranker>,
    number: u64,
    replica_id: String,
}

/// What calls are called that listeners hear of.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Followed {
    /// `None`: the listener cannot hear more at the moment.
    pub(super) fn begin(
        ranker: &Arc<dyn Ranker>,
        replica_id: &str,
        parts: &request::Parts,
    ) -> Option<Self> {
        let (number, replica_id) = (NUMBERS.fetch_add(1, Ordering::Relaxed), replica_id.to_owned());
        let news = News::Routed {
            number,
            replica_id: replica_id.clone(),
            path: parts.uri.path().to_owned(),
            session: names::session_id(&parts.headers).to_owned(),
            model: model_of(parts).to_owned(),
        };
        let is_taken = ranker.tell(news);
        is_taken.then(|| Self { ranker: Arc::clone(ranker), number, replica_id })
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let replica_id = std::mem::take(&mut self.replica_id);
        self.ranker.tell(News::Completed { number: self.number, replica_id });
    }
}

fn model_of(parts: &request::Parts) -> &str {
    let model = names::model_id(&parts.headers);
    model.and_then(|model| model.to_str().ok()).unwrap_or_default()
}

/// A call that wants an order of replicas.
#[derive(Debug)]
pub struct Question {
    /// `/pkg.Service/Method`, or the path of a plain HTTP request.
    pub path: String,
    /// Empty: none.
    pub session: String,
    /// Empty: none.
    pub model: String,
    pub candidates: Vec<Candidate>,
    /// Takes the names of replicas, best first.
    pub answer: oneshot::Sender<Vec<String>>,
}

/// One replica that may get the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub replica_id: String,
    pub node: String,
    /// Calls of this router there, and how many it may have there.
    pub in_flight: u32,
    pub capacity: u32,
    pub models: Vec<String>,
}

/// The policy of one deployment, and whether its calls ask.
#[derive(Debug)]
pub(crate) struct Advice {
    ranker: Arc<dyn Ranker>,
    adviser: BriefMutex<Adviser>,
    unanswered: AtomicU64,
}

impl Advice {
    /// Goes on with what is known of `ranker`, if `before` is the same policy.
    pub(super) fn of(ranker: Arc<dyn Ranker>, before: Option<&Arc<Self>>) -> Arc<Self> {
        let same = before.filter(|before| Arc::ptr_eq(&before.ranker, &ranker));
        same.cloned().unwrap_or_else(|| {
            let (adviser, unanswered) = (BriefMutex::default(), AtomicU64::default());
            Arc::new(Self { ranker, adviser, unanswered })
        })
    }

    /// How often it did not answer in time.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }
}

/// A call that waits for an answer; what it has heard is told when this is dropped.
struct Asking<'a> {
    advice: &'a Advice,
    entry: &'a DeploymentEntry,
    asked: Asked,
    heard: Heard,
}

impl<'a> Asking<'a> {
    /// `None`: the call goes without.
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
    /// The order in which a policy of the user's wants the replicas tried; empty: it has none.
    pub(crate) async fn rank(&self, parts: &request::Parts) -> Vec<ReplicaId> {
        let Some(advice) = &self.advice else { return Vec::new() };
        let (session, model) = (names::session_id(&parts.headers), model_of(parts));
        // Boxed: the task of every call has room for this, and few ask.
        Box::pin(self.rank_by(advice, parts.uri.path(), session, model)).await
    }

    /// Who wants to know where calls go.
    pub(crate) fn listener(&self) -> Option<Arc<dyn Ranker>> {
        let ranker = self.advice.as_ref().map(|advice| &advice.ranker);
        ranker.filter(|ranker| ranker.listens()).cloned()
    }

    /// As [`Deployment::rank`], for a place that is taken before the call is known.
    pub(crate) async fn rank_place(&self, session: &str, model: &str) -> Vec<ReplicaId> {
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
