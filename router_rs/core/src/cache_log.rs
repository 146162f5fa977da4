//! A replica's own record of its cache, and the changes in it that each router does not know yet.
//!
//! The record is of states, not of events: for each key only its last change counts, which has a number
//! of its own. A reader has a place in that order and takes what has changed since, in pieces of
//! bounded length; what changes ten times while a router does not read is reported once.
//!
//! Both what is stored and what was removed is bounded. Beyond `keys_max` the keys that were stored
//! longest ago are taken for removed: no router learns of them any more. Of the removals the oldest are
//! forgotten; a reader that has not heard of those starts again with the whole state.

use std::collections::BTreeMap;

use crate::router::CacheChange;

/// Removals that are remembered for readers. Arbitrary: more than leave between two reports.
const GONE_MAX: usize = 1 << 14;

/// The cache of one replica; see the module.
///
/// Invariants: `places` has exactly the keys of `stored`, with their numbers; no key is both in
/// `stored` and in `gone`; `stored.len() ≤ keys_max`, `gone.len() ≤ GONE_MAX`; every number in both is
/// at most `last`, and those in `gone` are above `floor`.
#[derive(Debug)]
pub struct CacheLog {
    keys_max: usize,
    places: BTreeMap<u64, u64>,
    /// By number of the change: the key and its parent.
    stored: BTreeMap<u64, (u64, u64)>,
    /// By number of the change: the key.
    gone: BTreeMap<u64, u64>,
    /// Where `gone` has a key.
    gone_at: BTreeMap<u64, u64>,
    last: u64,
    /// A reader whose place is below has missed something.
    floor: u64,
    dropped: u64,
}

/// A router's place in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReader {
    /// All changes up to this number have been read.
    place: u64,
    /// Where the log was when the reader began with the whole state: what was removed by then it has
    /// never heard of.
    began: u64,
    /// It has been told something.
    has_begun: bool,
    batches: u64,
}

/// The next news for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheBatch {
    /// Counts the batches of one reader from 1.
    pub number: u64,
    /// The reader's earlier knowledge does not hold any more.
    pub is_whole: bool,
    /// In any order: each key is there at most once.
    pub changes: Vec<CacheChange>,
}

// === impl CacheLog ===

impl CacheLog {
    /// An empty one, which reports at most `keys_max` keys.
    pub fn new(keys_max: usize) -> Self {
        Self {
            keys_max,
            places: BTreeMap::new(),
            stored: BTreeMap::new(),
            gone: BTreeMap::new(),
            gone_at: BTreeMap::new(),
            last: 0,
            floor: 0,
            dropped: 0,
        }
    }

    /// The entry `key` is there, after `parent` in its chain; 0: it stands alone.
    pub fn store(&mut self, key: u64, parent: u64) {
        let number = self.next();
        if let Some(before) = self.places.insert(key, number) {
            self.stored.remove(&before);
        }
        self.stored.insert(number, (key, parent));
        if let Some(before) = self.gone_at.remove(&key) {
            self.gone.remove(&before);
        }
        self.drop_oldest();
    }

    /// From now on at most so many keys are reported.
    pub fn set_keys_max(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.stored.len() > self.keys_max {
            let Some((_, (oldest, _))) = self.stored.first_key_value() else { return };
            let oldest = *oldest;
            self.remove(oldest);
            self.dropped += 1;
        }
    }

    /// The entry is not there any more; of an unknown one nothing is to be told.
    pub fn remove(&mut self, key: u64) {
        let Some(before) = self.places.remove(&key) else { return };
        self.stored.remove(&before);
        let number = self.next();
        self.gone.insert(number, key);
        self.gone_at.insert(key, number);
        if self.gone.len() > GONE_MAX
            && let Some((number, key)) = self.gone.pop_first()
        {
            self.gone_at.remove(&key);
            self.floor = number;
        }
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        self.places.clear();
        self.stored.clear();
        self.gone.clear();
        self.gone_at.clear();
        self.floor = self.next();
    }

    /// Keys that are reported.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Keys that were stored beyond the bound, and are not reported any more.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether there is anything to tell the reader.
    pub fn has_news(&self, reader: CacheReader) -> bool {
        !reader.has_begun || reader.place < self.last
    }

    /// What the reader is told next: at most `changes_max` changes, which must be at least 1. `None`: it
    /// knows all. Ask again until then.
    pub fn read(&self, reader: &mut CacheReader, changes_max: usize) -> Option<CacheBatch> {
        if !self.has_news(*reader) {
            return None;
        }
        let has_missed = reader.place.max(reader.began) < self.floor;
        let is_whole = !reader.has_begun || has_missed;
        if is_whole {
            let batches = reader.batches;
            *reader = CacheReader { place: 0, began: self.last, has_begun: true, batches };
        }
        // One more of each than is told shows whether this is all.
        let stored = self.stored.range(reader.place + 1..).take(changes_max + 1);
        let stored = stored.map(|(number, (key, parent))| {
            (*number, CacheChange::Stored { key: *key, parent: *parent })
        });
        let heard = reader.place.max(reader.began);
        let gone = self.gone.range(heard + 1..).take(changes_max + 1);
        let gone = gone.map(|(number, key)| (*number, CacheChange::Removed { key: *key }));
        let mut news: Vec<(u64, CacheChange)> = stored.chain(gone).collect();
        news.sort_unstable_by_key(|(number, _)| *number);
        let is_all = news.len() <= changes_max;
        news.truncate(changes_max);
        reader.place = match news.last() {
            Some((number, _)) if !is_all => *number,
            _ => self.last,
        };
        reader.batches += 1;
        let changes = news.into_iter().map(|(_, change)| change).collect();
        Some(CacheBatch { number: reader.batches, is_whole, changes })
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PIECE: usize = 3;

    /// A router's knowledge from batches.
    #[derive(Clone, Debug, Default)]
    struct Heard {
        reader: CacheReader,
        keys: BTreeMap<u64, u64>,
        number: u64,
    }

    impl Heard {
        /// Reads one piece; returns whether there was one.
        fn read(&mut self, log: &CacheLog) -> bool {
            let Some(batch) = log.read(&mut self.reader, PIECE) else { return false };
            assert_eq!(self.number + 1, batch.number);
            assert!(batch.changes.len() <= PIECE);
            self.number = batch.number;
            if batch.is_whole {
                self.keys.clear();
            }
            for change in batch.changes {
                match change {
                    CacheChange::Stored { key, parent } => drop(self.keys.insert(key, parent)),
                    CacheChange::Removed { key } => drop(self.keys.remove(&key)),
                }
            }
            true
        }

        fn read_all(&mut self, log: &CacheLog) {
            while self.read(log) {}
        }
    }

    fn keys(log: &CacheLog) -> BTreeMap<u64, u64> {
        log.stored.values().copied().collect()
    }

    #[test]
    fn what_changes_often_is_told_once() {
        let mut log = CacheLog::new(10);
        let mut reader = CacheReader::default();
        log.read(&mut reader, PIECE);
        for _ in 0..100 {
            log.store(1, 0);
            log.remove(1);
            log.store(2, 1);
        }
        let batch = log.read(&mut reader, PIECE).unwrap();
        let changes =
            vec![CacheChange::Removed { key: 1 }, CacheChange::Stored { key: 2, parent: 1 }];
        assert_eq!(CacheBatch { number: 2, is_whole: false, changes }, batch);
        assert_eq!(None, log.read(&mut reader, PIECE));
    }

    #[test]
    fn the_first_batch_is_whole_even_if_nothing_is_there() {
        let (log, mut reader) = (CacheLog::new(10), CacheReader::default());
        let batch = log.read(&mut reader, PIECE);
        assert_eq!(Some(CacheBatch { number: 1, is_whole: true, changes: Vec::new() }), batch);
        assert_eq!(None, log.read(&mut reader, PIECE));
    }

    #[test]
    fn beyond_the_bound_the_oldest_are_dropped_and_counted() {
        let mut log = CacheLog::new(3);
        let mut heard = Heard::default();
        for key in 1..=5 {
            log.store(key, 0);
            heard.read_all(&log);
        }
        assert_eq!((3, 2), (log.len(), log.dropped()));
        assert_eq!(vec![3, 4, 5], heard.keys.keys().copied().collect::<Vec<_>>());
        log.set_keys_max(1);
        heard.read_all(&log);
        assert_eq!((vec![5], 4), (heard.keys.into_keys().collect::<Vec<_>>(), log.dropped()));
    }

    #[test]
    fn a_reader_that_missed_removals_starts_again() {
        let mut log = CacheLog::new(usize::MAX);
        let mut heard = Heard::default();
        let many = GONE_MAX as u64 + 10;
        (1..=many).for_each(|key| log.store(key, 0));
        heard.read_all(&log);
        (1..many).for_each(|key| log.remove(key));
        assert!(log.read(&mut heard.reader.clone(), PIECE).unwrap().is_whole);
        heard.read_all(&log);
        assert_eq!(keys(&log), heard.keys);
        assert_eq!(GONE_MAX, log.gone.len());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Store(u64),
        Remove(u64),
        Clear,
        Read(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (1..30_u64).prop_map(Step::Store),
            4 => (1..30_u64).prop_map(Step::Remove),
            1 => Just(Step::Clear),
            4 => (0..2_usize).prop_map(Step::Read),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(500)
        })]

        #[test]
        fn whoever_reads_to_the_end_knows_what_is_there(
            steps in prop::collection::vec(step(), 1..200),
            keys_max in 1..20_usize,
        ) {
            let mut log = CacheLog::new(keys_max);
            let mut heard = [Heard::default(), Heard::default()];
            for step in steps {
                match step {
                    Step::Store(key) => log.store(key, key - 1),
                    Step::Remove(key) => log.remove(key),
                    Step::Clear => log.clear(),
                    // One piece, so that the state changes while a reader is in the middle of it.
                    Step::Read(who) => drop(heard[who].read(&log)),
                }
                prop_assert!(log.len() <= keys_max);
            }
            for mut heard in heard {
                heard.read_all(&log);
                prop_assert_eq!(keys(&log), heard.keys);
            }
        }
    }
}
