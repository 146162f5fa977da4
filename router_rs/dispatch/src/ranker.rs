//! A user's policy, which is asked to order the replicas before the router decides.
//!
//! The router takes the first replica of that order that has room. Without an answer in time, or
//! with an empty one, its own policy decides; see `router_core::Adviser` for how long an
//! unresponsive policy is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::request;
use router_core::Adviser;
use router_io::BriefMutex;
use router_protocol::names;
use tokio::sync::oneshot;

use crate::entry::Candidate;

/// Orders replicas, outside the I/O threads.
pub trait Ranker: fmt::Debug + Send + Sync {
    /// Takes the question, unless too many wait. Must neither block nor take long.
    fn ask(&self, question: Question);

    /// Whether [`Ranker::tell`] does anything.
    fn listens(&self) -> bool {
        false
    }

    /// Takes an event, as fast as [`Ranker::ask`]; false: too many wait. The end of a call is
    /// reported once if its beginning was taken, and is then always taken.
    fn tell(&self, _news: News) -> bool {
        false
    }
}

/// The fate of a call after its replica was picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was sent to a replica.
    Routed { number: u64, replica_id: String, path: String, session: String, model: String },
    /// It is over there: answered, failed, cancelled, or sent elsewhere.
    Completed { number: u64, replica_id: String },
}

/// A call at its replica that was reported to a listener; its end is reported when this is dropped.
#[derive(Debug)]
pub(super) struct Followed {
    ranker: Arc<dyn Ranker>,
    number: u64,
    replica_id: String,
}

/// Numbers for the calls that are reported to listeners.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Followed {
    /// `None`: the listener cannot take more at the moment.
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

pub(super) fn model_of(parts: &request::Parts) -> &str {
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

/// The policy of one deployment, and whether its calls ask.
#[derive(Debug)]
pub(crate) struct Advice {
    pub(super) ranker: Arc<dyn Ranker>,
    pub(super) adviser: BriefMutex<Adviser>,
    pub(super) unanswered: AtomicU64,
}

impl Advice {
    /// Continues with the state of `ranker`, if `before` is the same policy.
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
