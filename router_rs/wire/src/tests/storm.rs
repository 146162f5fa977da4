//! Connected sessions lose nothing, whatever is split, delayed or cancelled.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use proptest::prelude::*;

use super::*;

/// One step of a storm.
#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Upload(usize, usize, bool),
    Leave(usize),
    Answer(usize, usize),
    Reset(usize),
    TakeThere(usize),
    TakeHere(usize),
    Carry(bool, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0_usize..6;
    let bytes = prop_oneof![Just(0_usize), 1_usize..100, 10_000_usize..700_000];
    prop_oneof![
        (0_usize..40_000).prop_map(Step::Call),
        (which.clone(), bytes.clone(), any::<bool>())
            .prop_map(|(which, bytes, is_end)| Step::Upload(which, bytes, is_end)),
        which.clone().prop_map(Step::Leave),
        (which.clone(), bytes).prop_map(|(which, bytes)| Step::Answer(which, bytes)),
        which.clone().prop_map(Step::Reset),
        which.clone().prop_map(Step::TakeThere),
        which.prop_map(Step::TakeHere),
        (any::<bool>(), 1_usize..300_000).prop_map(|(way, bytes)| Step::Carry(way, bytes)),
    ]
}

/// The state of a storm at both ends.
struct Storm {
    pair: Pair,
    /// At the client, and at the server.
    here: Vec<CallId>,
    there: Vec<CallId>,
    /// Answered bytes that have not been taken, by call.
    due: BTreeMap<(u32, u32), usize>,
    /// The initial values.
    answered: BTreeMap<(u32, u32), usize>,
}

fn pick(ids: &[CallId], which: usize) -> Option<CallId> {
    ids.get(which % ids.len().max(1)).copied()
}

impl Storm {
    fn new(has_arena: bool) -> Self {
        let (here, there) = (Vec::new(), Vec::new());
        let (due, answered) = (BTreeMap::new(), BTreeMap::new());
        let pair = if has_arena { Pair::with_arena() } else { Pair::new() };
        Self { pair, here, there, due, answered }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call(bytes) => {
                let body = [Bytes::from(vec![3; bytes % (BODY_BYTES_MAX + 1)])];
                let body = (bytes % 2 == 0).then_some(&body[..]);
                self.here.push(begin(&mut self.pair, body));
            }
            Step::Carry(to_server, bytes) => self.pair.carry(to_server, bytes),
            Step::Upload(which, ..) | Step::Leave(which) | Step::TakeHere(which) => {
                if let Some(id) = pick(&self.here, which) {
                    self.step_here(id, step);
                }
            }
            Step::Answer(which, _) | Step::Reset(which) | Step::TakeThere(which) => {
                if let Some(id) = pick(&self.there, which) {
                    self.step_there(id, step);
                }
            }
        }
        self.there.extend(self.pair.called.drain(..).map(|called| called.id));
    }

    fn step_here(&mut self, id: CallId, step: &Step) {
        let client = &mut self.pair.client;
        match *step {
            Step::Upload(_, bytes, true) => client.send_last(id, [Bytes::from(vec![1; bytes])]),
            Step::Upload(_, bytes, false) => client.send(id, [Bytes::from(vec![1; bytes])]),
            Step::Leave(_) => {
                self.here.retain(|other| *other != id);
                client.leave(id);
            }
            _ => drop(self.take_here(id)),
        }
    }

    fn step_there(&mut self, id: CallId, step: &Step) {
        let server = &mut self.pair.server;
        match *step {
            Step::Answer(_, bytes) => {
                if server.poll_cancelled(id, &cx()).is_pending() {
                    self.due.insert((id.place, id.serial), bytes);
                    self.answered.insert((id.place, id.serial), bytes);
                }
                let body = [Bytes::from(vec![2; bytes])];
                let mut trailers = HeaderMap::new();
                if bytes % 2 == 0 {
                    trailers.insert("x", HeaderValue::from_static("1"));
                }
                server.send_whole(id, &Response::new(()), (body, bytes), trailers);
            }
            Step::Reset(_) => server.reset(id, code::CANCEL),
            _ => {
                while let Poll::Ready(Some(Ok(piece))) = server.poll_data(id, &cx()) {
                    server.release(id, piece.len());
                }
                return;
            }
        }
        self.there.retain(|other| *other != id);
    }

    /// Takes what has arrived; returns whether more is awaited.
    fn take_here(&mut self, id: CallId) -> Poll<bool> {
        loop {
            match self.pair.client.poll_data(id, &cx()) {
                Poll::Ready(Some(Ok(piece))) => {
                    *self.due.get_mut(&(id.place, id.serial)).expect("answered") -= piece.len();
                    self.pair.client.release(id, piece.len());
                }
                Poll::Ready(end) => return Poll::Ready(end.is_none()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// All answers arrive, however little is taken at once.
    fn take_all(&mut self) {
        self.pair.settle();
        self.there.extend(self.pair.called.drain(..).map(|called| called.id));
        for id in self.here.clone() {
            let mut before = usize::MAX;
            let due = |storm: &Self| storm.due.get(&(id.place, id.serial)).copied();
            let mut is_answered = self.take_here(id) == Poll::Ready(true);
            while let Some(left) = due(self).filter(|left| *left < before) {
                before = left;
                self.pair.settle();
                is_answered = self.take_here(id) == Poll::Ready(true);
            }
            assert_eq!(due(self).map(|_| 0), due(self), "all of {id:?} comes");
            assert_eq!(due(self).is_some(), is_answered, "{id:?}");
            if let Some(bytes) = self.answered.get(&(id.place, id.serial)) {
                let Poll::Ready(Ok(trailers)) = self.pair.client.poll_trailers(id, &cx()) else {
                    panic!("{id:?} has not ended");
                };
                assert_eq!(bytes % 2 == 0, trailers.is_some(), "{id:?}");
            }
        }
    }
}

proptest! {
    /// For any sequence of begins, splits and cancels: answers arrive completely, abandoned calls
    /// are gone at both ends, and both sessions end.
    #[test]
    fn a_storm_leaves_nothing(
        steps in prop::collection::vec(step(), 1..120),
        has_arena in any::<bool>(),
    ) {
        let mut storm = Storm::new(has_arena);
        for step in &steps {
            storm.step(step);
        }
        storm.take_all();
        let Storm { mut pair, here, there, .. } = storm;
        for id in here {
            pair.client.leave(id);
        }
        pair.settle();
        for id in there {
            prop_assert!(pair.server.poll_cancelled(id, &cx()).is_ready(), "{:?}", id);
        }
        pair.client.say_last();
        pair.settle();
        prop_assert!(pair.client.is_over() && pair.server.is_over());
    }
}
