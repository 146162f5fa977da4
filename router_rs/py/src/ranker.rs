//! `Ranker`: a policy in Python, called on its own thread so that no I/O thread needs the GIL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use pyo3::prelude::*;
use router_net::dispatch::{self, News, Question};

/// How many questions and beginnings of calls may wait; calls beyond it are routed without an
/// order. Arbitrary: at 20 µs each they would wait about as long as a call waits for its answer.
/// Ends of calls come in addition: at most as many as calls are open.
const WAITING_MAX: usize = 1024;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Ranker {
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
struct Inbox {
    sender: Sender<Item>,
    waiting: Arc<AtomicUsize>,
    listens: bool,
}

#[derive(Debug)]
enum Item {
    Question(Question),
    News(News),
}

impl Item {
    /// Whether it counts against the bound.
    fn counts(&self) -> bool {
        !matches!(self, Self::News(News::Completed { .. }))
    }
}

impl Inbox {
    fn put(&self, item: Item) -> bool {
        if item.counts() && self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.sender.send(item).is_ok()
    }
}

impl dispatch::Ranker for Inbox {
    fn ask(&self, question: Question) {
        // A dropped question counts as answered without an order: the router's own policy decides.
        self.put(Item::Question(question));
    }

    fn listens(&self) -> bool {
        self.listens
    }

    fn tell(&self, news: News) -> bool {
        self.put(Item::News(news))
    }
}

/// The Python functions to call.
struct Callables {
    choose: Py<PyAny>,
    listener: Option<Py<PyAny>>,
}

#[pymethods]
impl Ranker {
    #[new]
    #[pyo3(signature = (choose, listener = None))]
    fn new(choose: Py<PyAny>, listener: Option<Py<PyAny>>) -> PyResult<Self> {
        let (sender, items) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let listens = listener.is_some();
        let (callables, counted) = (Callables { choose, listener }, Arc::clone(&waiting));
        // It ends with the last route that has this ranker.
        thread::Builder::new()
            .name("pyserve-policy".to_owned())
            .spawn(move || answer_all(&callables, &items, &counted))?;
        Ok(Self { inbox: Arc::new(Inbox { sender, waiting, listens }) })
    }
}

impl Ranker {
    pub(crate) fn share(&self) -> Arc<dyn dispatch::Ranker> {
        Arc::clone(&self.inbox) as Arc<dyn dispatch::Ranker>
    }
}

fn answer_all(callables: &Callables, items: &Receiver<Item>, waiting: &AtomicUsize) {
    while let Ok(item) = items.recv() {
        if item.counts() {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        // None: the interpreter ends, and with it the process.
        let done = match item {
            Item::Question(question) if question.answer.is_closed() => Some(()),
            Item::Question(question) => answer(&callables.choose, question),
            Item::News(news) => match &callables.listener {
                Some(listener) => Python::try_attach(|py| tell(py, listener, news)),
                None => Some(()),
            },
        };
        if done.is_none() {
            return;
        }
    }
}

fn answer(choose: &Py<PyAny>, question: Question) -> Option<()> {
    let order = Python::try_attach(|py| ask(py, choose, &question))?;
    // The call that asked may be gone.
    let _nobody_waits = question.answer.send(order);
    Some(())
}

/// The answer from Python; empty if it raises, which the callable itself does not (see the stub).
fn ask(py: Python<'_>, choose: &Py<PyAny>, question: &Question) -> Vec<String> {
    let candidates: Vec<_> = question
        .candidates
        .iter()
        .map(|each| (&each.replica_id, &each.node, each.in_flight, each.capacity, &each.models))
        .collect();
    let arguments = (candidates, &question.path, &question.session, &question.model);
    let answer = choose.bind(py).call1(arguments).and_then(|answer| answer.extract());
    answer.unwrap_or_else(|error| {
        error.write_unraisable(py, Some(choose.bind(py)));
        Vec::new()
    })
}

fn tell(py: Python<'_>, listener: &Py<PyAny>, news: News) {
    let told = match news {
        News::Routed { number, replica_id, path, session, model } => {
            listener.bind(py).call1((number, replica_id, Some((path, session, model))))
        }
        News::Completed { number, replica_id } => {
            let end: Option<(String, String, String)> = None;
            listener.bind(py).call1((number, replica_id, end))
        }
    };
    if let Err(error) = told {
        error.write_unraisable(py, Some(listener.bind(py)));
    }
}
