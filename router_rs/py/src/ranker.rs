//! `Ranker`: a policy in Python, asked from a thread of its own so that no I/O thread needs the GIL.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use pyo3::prelude::*;
use router_net::dispatch::{self, Question};

/// Questions that may wait; calls beyond it go without. Arbitrary: at 20 µs each they would wait
/// about as long as a call waits for its answer.
const QUESTIONS_MAX: usize = 1024;

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct Ranker {
    questions: Arc<Questions>,
}

#[derive(Debug)]
struct Questions {
    sender: SyncSender<Question>,
}

impl dispatch::Ranker for Questions {
    fn ask(&self, question: Question) {
        // A question that is dropped is answered by its end: the router's own policy decides.
        let _full_or_over = self.sender.try_send(question);
    }
}

#[pymethods]
impl Ranker {
    #[new]
    fn new(choose: Py<PyAny>) -> PyResult<Self> {
        let (sender, questions) = sync_channel(QUESTIONS_MAX);
        // It ends with the last route that has this ranker.
        thread::Builder::new()
            .name("pyserve-policy".to_owned())
            .spawn(move || answer_all(&choose, &questions))?;
        Ok(Self { questions: Arc::new(Questions { sender }) })
    }
}

impl Ranker {
    pub(crate) fn share(&self) -> Arc<dyn dispatch::Ranker> {
        Arc::clone(&self.questions) as Arc<dyn dispatch::Ranker>
    }
}

fn answer_all(choose: &Py<PyAny>, questions: &Receiver<Question>) {
    while let Ok(question) = questions.recv() {
        if question.answer.is_closed() {
            continue;
        }
        // None: the interpreter ends, and with it the process.
        let Some(order) = Python::try_attach(|py| ask(py, choose, &question)) else { return };
        // Whoever asked may have given up.
        let _nobody_waits = question.answer.send(order);
    }
}

/// What Python says; nothing when it raises, which the callable itself does not (see the stub).
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
