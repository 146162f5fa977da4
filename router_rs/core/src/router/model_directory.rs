//! Tracks which replica has which model, as far as this router knows, and which calls wait for one.
//!
//! A *holder* of a model is a member that reported it, or one to which this router has just sent a
//! call of the model: that is a *promise*, so that a burst of calls for a cold model goes to one
//! replica. Reports override promises: a promise lives until a report confirms it, until it
//! expires, or until the calls that it was made for have ended without running.
//!
//! A model's number is reused when no holder and no call refers to it. So model ids invented by
//! clients take memory only while their calls are open, and in promises for a while.

mod loading;
mod loads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::queue::Turn;
use crate::time::Nanos;
pub(super) use loading::Answer;
use loading::{Loading, Mean};

/// A number for a model id.
pub(super) type Model = u32;

/// More promises than this end the oldest early. Arbitrary: some hundred cold models a second.
const PROMISES_MAX: usize = 1024;

/// Invariants: a holder is in `entries[model].holders` exactly if the model is in
/// `models_of[slot]`; `waited` lists the models whose `waiting` is not empty; such a model has a
/// holder.
#[derive(Debug, Default)]
pub(super) struct ModelDirectory {
    numbers: BTreeMap<Arc<str>, Model>,
    entries: Vec<Entry>,
    free: Vec<Model>,
    models_of: Vec<Vec<Model>>,
    /// In the order in which they end, which is the order in which they were made.
    promises: VecDeque<Promise>,
    promises_made: u64,
    waited: Vec<Model>,
    /// Ready calls that name a model.
    ready: usize,
    /// Of all models.
    load_time: Mean,
    /// Of calls that were sent to who had their model.
    run_time: Mean,
}

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    /// Open calls that name the model.
    calls: u32,
    holders: Vec<Holder>,
    /// Calls that wait for one of the holders.
    waiting: BTreeSet<(Turn, u32)>,
    /// Calls that take any replica with room, but no less one that has the model.
    ready: BTreeSet<(Turn, u32)>,
    load_time: Mean,
    wait_ns: f64,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) slot: u32,
    /// This router's open calls of the model there, since it is a holder.
    calls: u32,
    /// The promise's number; `None`: a report has named the model.
    promise: Option<u64>,
    loading: Option<Loading>,
}

#[derive(Debug)]
struct Promise {
    until: Nanos,
    model: Model,
    slot: u32,
    number: u64,
}

// === impl ModelDirectory: models and calls ===

impl ModelDirectory {
    /// The number of `id`, for a call that is opened; [`ModelDirectory::close_call`] must follow.
    pub(super) fn open_call(&mut self, id: &str) -> Model {
        let model = self.number(id);
        self.entries[model as usize].calls += 1;
        model
    }

    pub(super) fn close_call(&mut self, model: Model) {
        self.entries[model as usize].calls -= 1;
        self.forget_unused(model);
    }

    /// The number of `id`, if it has one.
    pub(super) fn find(&self, id: &str) -> Option<Model> {
        self.numbers.get(id).copied()
    }

    #[inline]
    pub(super) fn holders(&self, model: Model) -> &[Holder] {
        &self.entries[model as usize].holders
    }

    /// How many models the replica in `slot` has or is about to have.
    #[inline]
    pub(super) fn count(&self, slot: u32) -> usize {
        self.models_of.get(slot as usize).map_or(0, Vec::len)
    }

    /// The names of the models that the replica in `slot` has reported.
    pub(super) fn reported(&self, slot: u32) -> Vec<String> {
        let models = self.models_of.get(slot as usize).map_or(&[][..], Vec::as_slice);
        let is_reported =
            |model: &&Model| self.holder(**model, slot).is_some_and(|h| h.promise.is_none());
        let name = |model: &Model| self.entries[*model as usize].name.to_string();
        let mut names: Vec<String> = models.iter().filter(is_reported).map(name).collect();
        names.sort_unstable();
        names
    }

    /// A call of the model goes to `slot`, which promises to have it until `until`.
    pub(super) fn on_sent(&mut self, model: Model, slot: u32, until: Nanos, now: Nanos) {
        if self.holder(model, slot).is_none() {
            self.promises_made += 1;
            let number = self.promises_made;
            self.promises.push_back(Promise { until, model, slot, number });
            self.add_holder(model, slot, Some(number));
            self.begin_load(model, slot, now);
        }
        if let Some(holder) = self.holder_mut(model, slot) {
            holder.calls += 1;
        }
        if self.promises.len() > PROMISES_MAX {
            self.end_first_promise();
        }
    }

    /// A call of the model in `slot` is over, with an `answer` if it ran to its end. If the last one
    /// of a promise did not, nothing says that the model was loaded.
    pub(super) fn on_ended(&mut self, model: Model, slot: u32, answer: Option<Answer>) {
        if let Some(answer) = answer {
            self.on_answer(model, slot, answer);
        }
        let Some(holder) = self.holder_mut(model, slot) else { return };
        holder.calls = holder.calls.saturating_sub(1);
        if holder.promise.is_some() && holder.calls == 0 && answer.is_none() {
            self.remove_holder(model, slot);
        }
    }

    // === what replicas say ===

    /// The replica in `slot` has just these models. A promise that is not among them stays: the
    /// report may be older than the call.
    pub(super) fn report(&mut self, slot: u32, ids: &[String]) {
        let named: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        for model in self.models_of.get(slot as usize).cloned().unwrap_or_default() {
            let is_named = named.contains(&*self.entries[model as usize].name);
            let is_promise = self.holder(model, slot).is_some_and(|h| h.promise.is_some());
            if !is_named && !is_promise {
                self.remove_holder(model, slot);
            }
        }
        for id in named {
            let model = self.number(id);
            match self.holder_mut(model, slot) {
                Some(holder) => holder.promise = None,
                None => self.add_holder(model, slot, None),
            }
        }
    }

    /// Removes the replica in `slot`, which has left.
    pub(super) fn leave(&mut self, slot: u32) {
        for model in self.models_of.get(slot as usize).cloned().unwrap_or_default() {
            self.remove_holder(model, slot);
        }
    }

    /// When the first promise ends.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        self.promises.front().map(|promise| promise.until)
    }

    /// Ends the promises whose time is over.
    #[inline]
    pub(super) fn end_promises(&mut self, now: Nanos) {
        while self.next_end().is_some_and(|until| until <= now) {
            self.end_first_promise();
        }
    }

    // === who waits ===

    pub(super) fn wait(&mut self, model: Model, turn: Turn, call: u32) {
        let waiting = &mut self.entries[model as usize].waiting;
        if waiting.is_empty() {
            self.waited.push(model);
        }
        waiting.insert((turn, call));
    }

    pub(super) fn stop_waiting(&mut self, model: Model, turn: Turn, call: u32) {
        let Entry { waiting, ready, .. } = &mut self.entries[model as usize];
        self.ready -= usize::from(ready.remove(&(turn, call)));
        if waiting.remove(&(turn, call)) && waiting.is_empty() {
            self.waited.retain(|waited| *waited != model);
        }
    }

    /// A ready call names the model; [`ModelDirectory::stop_waiting`] must follow.
    pub(super) fn be_ready(&mut self, model: Model, turn: Turn, call: u32) {
        self.ready += usize::from(self.entries[model as usize].ready.insert((turn, call)));
    }

    /// Of the ready calls whose model one of `open` holds, the one whose turn it is.
    pub(super) fn first_hit(&self, open: &[u32]) -> Option<(Turn, u32)> {
        if self.ready == 0 {
            return None;
        }
        let models = open.iter().filter_map(|slot| self.models_of.get(*slot as usize)).flatten();
        models.filter_map(|model| self.entries[*model as usize].ready.first()).min().copied()
    }

    /// Of the calls that wait for a holder for which `is_open` holds, the one whose turn it is.
    pub(super) fn first_waiting(&self, is_open: impl Fn(u32) -> bool) -> Option<(Turn, u32)> {
        let first = |model: &Model| {
            let entry = &self.entries[*model as usize];
            let has_open = entry.holders.iter().any(|holder| is_open(holder.slot));
            entry.waiting.first().filter(|_| has_open).copied()
        };
        self.waited.iter().filter_map(first).min()
    }

    /// A call that waits for a model that nobody holds any more.
    pub(super) fn orphan(&self) -> Option<u32> {
        let orphaned = |model: &&Model| self.entries[**model as usize].holders.is_empty();
        let model = self.waited.iter().find(orphaned)?;
        self.entries[*model as usize].waiting.first().map(|(_, call)| *call)
    }
}

// === impl ModelDirectory: steps ===

impl ModelDirectory {
    fn number(&mut self, id: &str) -> Model {
        if let Some(model) = self.numbers.get(id) {
            return *model;
        }
        let name: Arc<str> = id.into();
        let entry = Entry {
            name: Arc::clone(&name),
            calls: 0,
            holders: Vec::new(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            load_time: Mean::default(),
            wait_ns: 0.0,
        };
        let model = if let Some(model) = self.free.pop() {
            self.entries[model as usize] = entry;
            model
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as Model
        };
        self.numbers.insert(name, model);
        model
    }

    fn forget_unused(&mut self, model: Model) {
        let entry = &self.entries[model as usize];
        if entry.calls == 0 && entry.holders.is_empty() {
            self.numbers.remove(&entry.name);
            self.free.push(model);
        }
    }

    fn holder(&self, model: Model, slot: u32) -> Option<&Holder> {
        self.entries[model as usize].holders.iter().find(|holder| holder.slot == slot)
    }

    fn holder_mut(&mut self, model: Model, slot: u32) -> Option<&mut Holder> {
        self.entries[model as usize].holders.iter_mut().find(|holder| holder.slot == slot)
    }

    fn add_holder(&mut self, model: Model, slot: u32, promise: Option<u64>) {
        self.entries[model as usize].holders.push(Holder {
            slot,
            calls: 0,
            promise,
            loading: None,
        });
        let slot = slot as usize;
        if self.models_of.len() <= slot {
            self.models_of.resize_with(slot + 1, Vec::new);
        }
        self.models_of[slot].push(model);
    }

    fn remove_holder(&mut self, model: Model, slot: u32) {
        self.entries[model as usize].holders.retain(|holder| holder.slot != slot);
        self.models_of[slot as usize].retain(|held| *held != model);
        self.forget_unused(model);
    }

    fn end_first_promise(&mut self) {
        let Some(Promise { model, slot, number, .. }) = self.promises.pop_front() else { return };
        // The model's number may have been given to another since; a promise's is never.
        let is_kept = self.holder(model, slot).is_some_and(|h| h.promise == Some(number));
        if is_kept {
            self.remove_holder(model, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Nanos = Nanos::from_secs(10);

    fn slots(directory: &ModelDirectory, model: Model) -> Vec<u32> {
        directory.holders(model).iter().map(|holder| holder.slot).collect()
    }

    #[test]
    fn numbers_are_given_again_when_nothing_refers_to_them() {
        let mut directory = ModelDirectory::default();
        for id in 0..1000 {
            let model = directory.open_call(&format!("m{id}"));
            directory.close_call(model);
        }
        assert_eq!((1, 0), (directory.entries.len(), directory.numbers.len()));
    }

    #[test]
    fn promises_are_bounded_and_the_oldest_ends_first() {
        let mut directory = ModelDirectory::default();
        let models: Vec<Model> = (0..=PROMISES_MAX)
            .map(|id| {
                let model = directory.open_call(&id.to_string());
                directory.on_sent(model, 3, UNTIL, Nanos::ZERO);
                model
            })
            .collect();
        assert_eq!(PROMISES_MAX, directory.count(3));
        assert_eq!(
            (0, 1),
            (slots(&directory, models[0]).len(), slots(&directory, models[1]).len())
        );
    }

    #[test]
    fn an_old_promise_does_not_end_a_newer_one() {
        let mut directory = ModelDirectory::default();
        let model = directory.open_call("m");
        directory.on_sent(model, 0, Nanos(10), Nanos::ZERO);
        directory.on_ended(model, 0, None);
        assert!(slots(&directory, model).is_empty());
        directory.on_sent(model, 0, Nanos(20), Nanos::ZERO);
        directory.end_promises(Nanos(10));
        assert_eq!(vec![0], slots(&directory, model));
        directory.end_promises(Nanos(20));
        assert!(slots(&directory, model).is_empty());
    }

    #[test]
    fn a_report_confirms_a_promise_and_takes_away_what_it_does_not_name() {
        let mut directory = ModelDirectory::default();
        let model = directory.open_call("m");
        directory.on_sent(model, 0, UNTIL, Nanos::ZERO);
        let (other, own) = (vec!["other".to_owned()], vec!["m".to_owned()]);
        directory.report(0, &other);
        assert_eq!((vec![0], other.clone()), (slots(&directory, model), directory.reported(0)));
        directory.report(0, &own);
        assert_eq!((1, own), (directory.count(0), directory.reported(0)));
        directory.end_promises(UNTIL);
        assert_eq!(vec![0], slots(&directory, model));
        directory.report(0, &[]);
        assert_eq!(0, directory.count(0));
    }
}
