//! The idle connections, in the order in which they became idle. Decides which must close when
//! together they use more memory than they may, or when others need their place.
//!
//! As in a web server that closes idle keep-alive connections when it runs short of them, the
//! connection that has been idle longest goes first. It is asked to close, and may take the time
//! that a graceful end needs. Of those that stay, the ones that were asked first are ended. Every
//! step takes constant time.

use std::task::Waker;

use slab::Slab;

/// The additional part of the budget for connections that were asked to close and have not.
const TOLD_PART: u64 = 4;

/// How many connections may stay that were asked to close for a new one. Arbitrary: as many as
/// arrive in one turn of a listener.
const TOLD_MAX: usize = 16;

/// Names a connection while it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// The request made to an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Close as soon as the client agrees.
    Go,
    /// The connection is over.
    End,
}

/// See the module's documentation. The line is a list through the slab, oldest first; those that
/// were given a word come first.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    line: Slab<Entry>,
    oldest: Option<usize>,
    newest: Option<usize>,
    bytes: u64,
    go: Mark,
    end: Mark,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    waker: Waker,
    word: Option<Word>,
    older: Option<usize>,
    newer: Option<usize>,
}

/// How far along the line a word has been given.
#[derive(Debug)]
struct Mark {
    word: Word,
    /// The limit for the bytes of connections that have not had this word.
    bytes_max: u64,
    /// The bytes of connections that have had it, and their number.
    heard_bytes: u64,
    heard: usize,
    /// The first one that has not had it.
    next: Option<usize>,
}

// === impl IdleConnections ===

impl IdleConnections {
    /// `budget_bytes`: for all idle connections that were not asked to close.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let hard_bytes = budget_bytes.saturating_add(budget_bytes / TOLD_PART);
        Self {
            line: Slab::new(),
            oldest: None,
            newest: None,
            bytes: 0,
            go: Mark::new(Word::Go, budget_bytes),
            end: Mark::new(Word::End, hard_bytes),
        }
    }

    /// A connection becomes idle, and keeps `bytes` of memory. `waker` is its task's.
    pub(crate) fn add(&mut self, bytes: u64, waker: Waker) -> Place {
        let entry = Entry { bytes, waker, word: None, older: self.newest, newer: None };
        let index = self.line.insert(entry);
        match self.newest {
            Some(newest) => self.line[newest].newer = Some(index),
            None => self.oldest = Some(index),
        }
        self.newest = Some(index);
        self.bytes += bytes;
        for mark in [&mut self.go, &mut self.end] {
            mark.next = mark.next.or(Some(index));
        }
        Place(index)
    }

    /// An idle connection keeps `bytes` more.
    pub(crate) fn grow(&mut self, place: Place, bytes: u64) {
        let entry = &mut self.line[place.0];
        entry.bytes += bytes;
        self.bytes += bytes;
        for mark in [&mut self.go, &mut self.end] {
            if entry.word >= Some(mark.word) {
                mark.heard_bytes += bytes;
            }
        }
    }

    /// It no longer rests.
    pub(crate) fn remove(&mut self, place: Place) {
        let entry = self.line.remove(place.0);
        match entry.older {
            Some(older) => self.line[older].newer = entry.newer,
            None => self.oldest = entry.newer,
        }
        match entry.newer {
            Some(newer) => self.line[newer].older = entry.older,
            None => self.newest = entry.older,
        }
        self.bytes -= entry.bytes;
        for mark in [&mut self.go, &mut self.end] {
            mark.forget(place.0, &entry);
        }
    }

    /// The last word that a connection was given.
    pub(crate) fn word(&self, place: Place) -> Option<Word> {
        self.line[place.0].word
    }

    /// Gives the next connection its word, if one is due; `None`: all may stay.
    ///
    /// The newest one always stays: a budget too small for one connection would let none stay idle,
    /// and a lone client would reconnect for every call.
    pub(crate) fn tell_next(&mut self) -> Option<(Word, Waker)> {
        for mark in [&mut self.go, &mut self.end] {
            let next = mark.next.filter(|_| self.bytes - mark.heard_bytes > mark.bytes_max);
            if next.is_some_and(|index| Some(index) != self.newest) {
                return mark.tell(&mut self.line);
            }
        }
        None
    }

    /// Makes room for a new connection: asks the one that has been idle longest to close. If those
    /// already asked are many, or no other is left, it ends the first of them. Returns nothing if
    /// none can go.
    pub(crate) fn make_room(&mut self) -> [Option<(Word, Waker)>; 2] {
        let goes = self.go.tell(&mut self.line);
        // A connection is asked to close before it is ended, so this cannot underflow.
        let staying = self.go.heard - self.end.heard;
        let is_patient = goes.is_some() && staying <= TOLD_MAX;
        [goes, if is_patient { None } else { self.end.tell(&mut self.line) }]
    }
}

// === impl Mark ===

impl Mark {
    fn new(word: Word, bytes_max: u64) -> Self {
        Self { word, bytes_max, heard_bytes: 0, heard: 0, next: None }
    }

    /// Gives the word to the next one.
    fn tell(&mut self, line: &mut Slab<Entry>) -> Option<(Word, Waker)> {
        let entry = &mut line[self.next?];
        entry.word = entry.word.max(Some(self.word));
        self.heard_bytes += entry.bytes;
        self.heard += 1;
        self.next = entry.newer;
        Some((self.word, entry.waker.clone()))
    }

    fn forget(&mut self, index: usize, entry: &Entry) {
        if self.next == Some(index) {
            self.next = entry.newer;
        } else if entry.word >= Some(self.word) {
            self.heard_bytes -= entry.bytes;
            self.heard -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EACH_BYTES: u64 = 10;

    /// Room for eight idle ones, and for two more that were asked to close.
    fn idle() -> IdleConnections {
        IdleConnections::new(8 * EACH_BYTES)
    }

    fn add(idle: &mut IdleConnections, count: usize) -> Vec<Place> {
        (0..count).map(|_| idle.add(EACH_BYTES, Waker::noop().clone())).collect()
    }

    fn told(idle: &mut IdleConnections) -> Vec<Word> {
        std::iter::from_fn(|| idle.tell_next().map(|(word, _)| word)).collect()
    }

    fn made(idle: &mut IdleConnections) -> Vec<Word> {
        idle.make_room().into_iter().flatten().map(|(word, _)| word).collect()
    }

    fn words(idle: &IdleConnections, places: &[Place]) -> Vec<Option<Word>> {
        places.iter().map(|place| idle.word(*place)).collect()
    }

    #[test]
    fn as_many_as_have_room_may_rest() {
        let mut idle = idle();
        add(&mut idle, 8);
        assert_eq!(None, idle.tell_next().map(|(word, _)| word));
    }

    #[test]
    fn whoever_has_rested_longest_goes_and_is_ended_when_it_stays() {
        let mut idle = idle();
        let places = add(&mut idle, 10);
        assert_eq!(vec![Word::Go; 2], told(&mut idle));
        assert_eq!([Some(Word::Go), Some(Word::Go), None], words(&idle, &places[..3])[..]);
        add(&mut idle, 1);
        assert_eq!(vec![Word::Go, Word::End], told(&mut idle));
        let expected = [Some(Word::End), Some(Word::Go), Some(Word::Go), None];
        assert_eq!(expected, words(&idle, &places[..4])[..]);
    }

    #[test]
    fn whoever_is_asked_for_something_rests_anew() {
        let mut idle = idle();
        let mut places = add(&mut idle, 8);
        idle.remove(places.remove(0));
        let anew = add(&mut idle, 2);
        assert_eq!(vec![Word::Go], told(&mut idle));
        assert_eq!([Some(Word::Go), None], words(&idle, &places[..2])[..]);
        assert_eq!([None, None], words(&idle, &anew)[..]);
    }

    #[test]
    fn one_that_was_told_and_is_gone_makes_room() {
        let mut idle = idle();
        let places = add(&mut idle, 10);
        told(&mut idle);
        places[..2].iter().for_each(|place| idle.remove(*place));
        assert_eq!(Vec::<Word>::new(), told(&mut idle));
        add(&mut idle, 1);
        assert_eq!(vec![Word::Go], told(&mut idle));
        assert_eq!(Some(Word::Go), idle.word(places[2]));
    }

    #[test]
    fn the_newest_stays_however_small_the_budget_is() {
        let mut idle = IdleConnections::new(1);
        let first = idle.add(EACH_BYTES, Waker::noop().clone());
        assert!(told(&mut idle).is_empty());
        let second = idle.add(EACH_BYTES, Waker::noop().clone());
        told(&mut idle);
        assert_eq!((Some(Word::End), None), (idle.word(first), idle.word(second)));
    }

    #[test]
    fn whoever_needs_a_place_gets_that_of_the_one_that_has_rested_longest() {
        let mut idle = idle();
        assert!(made(&mut idle).is_empty());
        let places = add(&mut idle, 2);
        assert_eq!(vec![Word::Go], made(&mut idle));
        assert_eq!([Some(Word::Go), None], words(&idle, &places)[..]);
        idle.remove(places[0]);
        assert_eq!(vec![Word::Go], made(&mut idle));
        assert_eq!(vec![Word::End], made(&mut idle), "nobody else is left");
        assert!(made(&mut idle).is_empty());
        idle.remove(places[1]);
        assert!(made(&mut idle).is_empty());
    }

    #[test]
    fn of_many_that_were_told_and_stay_the_first_are_ended() {
        let mut idle = IdleConnections::new(u64::MAX);
        let places = add(&mut idle, TOLD_MAX + 3);
        for _ in 0..TOLD_MAX {
            assert_eq!(vec![Word::Go], made(&mut idle));
        }
        assert_eq!(vec![Word::Go, Word::End], made(&mut idle));
        assert_eq!([Some(Word::End), Some(Word::Go)], words(&idle, &places[..2])[..]);
        idle.remove(places[1]);
        assert_eq!(vec![Word::Go], made(&mut idle), "one of them has gone by itself");
    }

    proptest! {
        /// Compared with a list that is walked from its beginning each time.
        #[test]
        fn it_does_what_a_plain_list_does(
            steps in prop::collection::vec((0..3, 1..30_u64, any::<prop::sample::Index>()), 1..200),
        ) {
            let budget_bytes = 100;
            let mut idle = IdleConnections::new(budget_bytes);
            let mut list: Vec<(Place, u64, Option<Word>)> = Vec::new();
            for (step, bytes, index) in steps {
                if step == 0 || list.is_empty() {
                    list.push((idle.add(bytes, Waker::noop().clone()), bytes, None));
                } else if step == 1 {
                    idle.remove(list.remove(index.index(list.len())).0);
                } else {
                    let grown = index.index(list.len());
                    idle.grow(list[grown].0, bytes);
                    list[grown].1 += bytes;
                }
                told(&mut idle);
                for (word, bytes_max) in [(Word::Go, 100), (Word::End, 125)] {
                    let unheard = |list: &[(Place, u64, Option<Word>)]| -> u64 {
                        list.iter().filter(|each| each.2 < Some(word)).map(|each| each.1).sum()
                    };
                    while unheard(&list) > bytes_max {
                        let last = list.len() - 1;
                        let next = list[..last].iter_mut().find(|each| each.2 < Some(word));
                        let Some(next) = next else { break };
                        next.2 = Some(word);
                    }
                }
                for (place, _, word) in &list {
                    prop_assert_eq!(*word, idle.word(*place));
                }
            }
        }
    }
}
