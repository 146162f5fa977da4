//! The index against a plain model, and what a model cannot say: bounds, and who is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const BOUNDS: CacheBounds = CacheBounds { keys_max: 1_000, bytes_max: 1 << 20 };
const SLOTS: u32 = 4;

fn stored(key: u64, parent: u64) -> CacheChange {
    CacheChange::Stored { key, parent }
}

fn index() -> CacheIndex {
    CacheIndex::new(BOUNDS, 1)
}

fn found(index: &mut CacheIndex, keys: &[u64], now: Nanos) -> Vec<u32> {
    index.look_up(keys, now);
    (0..SLOTS).map(|slot| index.found(slot)).collect()
}

#[test]
fn of_a_chain_counts_what_is_there_from_its_beginning_on() {
    let mut index = index();
    for (slot, blocks) in [(0, 4), (1, 2)] {
        (1..=blocks).for_each(|key| index.apply(slot, stored(key, key - 1), Nanos::ZERO));
    }
    assert_eq!(vec![3, 2, 0, 0], found(&mut index, &[1, 2, 3], Nanos::ZERO));
    assert_eq!(vec![0; 4], found(&mut index, &[2, 3], Nanos::ZERO), "its beginning is not named");
    assert_eq!(vec![1, 1, 0, 0], found(&mut index, &[1, 9, 2, 3], Nanos::ZERO));
    index.apply(0, CacheChange::Removed { key: 2 }, Nanos::ZERO);
    assert_eq!(vec![1, 2, 0, 0], found(&mut index, &[1, 2, 3], Nanos::ZERO));
    index.apply(0, stored(2, 1), Nanos::ZERO);
    assert_eq!(
        3,
        found(&mut index, &[1, 2, 3], Nanos::ZERO)[0],
        "what follows was there all the time"
    );
}

#[test]
fn entries_that_stand_alone_count_wherever_they_are_named() {
    let mut index = index();
    for key in [5, 7] {
        index.apply(2, stored(key, 0), Nanos::ZERO);
    }
    assert_eq!(vec![0, 0, 2, 0], found(&mut index, &[7, 6, 5], Nanos::ZERO));
}

#[test]
fn a_promise_ends_and_a_report_confirms_it() {
    let mut index = index();
    let (until, later) = (Nanos(10), Nanos(11));
    index.promise(0, &[1, 2], until, Nanos::ZERO);
    assert_eq!(vec![2, 0, 0, 0], found(&mut index, &[1, 2], Nanos(9)));
    index.apply(0, stored(1, 0), Nanos(9));
    assert_eq!(vec![1, 0, 0, 0], found(&mut index, &[1, 2], later));
    // A promise takes nothing from what was reported, and a report may take a promise back.
    index.promise(0, &[1], until, Nanos(9));
    assert_eq!((1, 1), (found(&mut index, &[1], later)[0], index.reported(0)));
    // Nor does it end later because of another, but sooner when the call is over.
    index.promise(2, &[2], until, Nanos(9));
    index.promise(2, &[2], Nanos(99), Nanos(9));
    assert_eq!((1, 0), (found(&mut index, &[2], Nanos(9))[2], found(&mut index, &[2], later)[2]));
    index.promise(2, &[2], Nanos(99), later);
    index.shorten(2, &[2], Nanos(50));
    assert_eq!(
        (1, 0),
        (found(&mut index, &[2], Nanos(49))[2], found(&mut index, &[2], Nanos(50))[2])
    );
    index.promise(1, &[1], Nanos(99), later);
    index.apply(1, CacheChange::Removed { key: 1 }, later);
    assert_eq!(vec![1, 0, 0, 0], found(&mut index, &[1], later));
}

#[test]
fn the_keys_that_were_used_longest_ago_are_forgotten_first() {
    let mut index = CacheIndex::new(CacheBounds { keys_max: 3, ..BOUNDS }, 1);
    (1..=3).for_each(|key| index.apply(0, stored(key, 0), Nanos::ZERO));
    found(&mut index, &[1], Nanos::ZERO);
    index.apply(0, stored(4, 0), Nanos::ZERO);
    assert_eq!((3, 1), (index.len(), index.forgotten));
    assert_eq!((3, 0), (index.reported(0), found(&mut index, &[2], Nanos::ZERO)[0]));
    assert_eq!(3, found(&mut index, &[1, 3, 4], Nanos::ZERO)[0]);
}

#[test]
fn of_a_chain_the_last_block_is_forgotten_first() {
    let mut index = CacheIndex::new(CacheBounds { keys_max: 3, ..BOUNDS }, 1);
    (1..=3).for_each(|key| index.apply(0, stored(key, key - 1), Nanos::ZERO));
    found(&mut index, &[1, 2, 3], Nanos::ZERO);
    index.apply(0, stored(9, 0), Nanos::ZERO);
    assert_eq!(2, found(&mut index, &[1, 2, 3], Nanos::ZERO)[0]);
}

#[test]
fn its_memory_is_bounded_whatever_is_reported() {
    let bytes_max = 64 * 1024;
    let mut index = CacheIndex::new(CacheBounds { keys_max: usize::MAX, bytes_max }, 1);
    for key in 1..100_000 {
        index.apply((key % 7) as u32, stored(key, key - 1), Nanos::ZERO);
        assert!(index.bytes() <= bytes_max, "{} bytes after {key} keys", index.bytes());
    }
    assert!(index.len() > 100, "{} keys", index.len());
}

/// For how long removed keys were not used tells where entries stay longest.
#[test]
fn a_replica_that_removes_what_was_used_lately_says_so() {
    let mut index = index();
    for slot in 0..2 {
        index.apply(slot, stored(u64::from(slot) + 1, 0), Nanos::ZERO);
    }
    index.apply(0, CacheChange::Removed { key: 1 }, Nanos::from_millis(5));
    index.apply(1, CacheChange::Removed { key: 2 }, Nanos::from_millis(500));
    let idle_ms = |slot| index.idle_ns(slot).map(|ns| ns / 1e6);
    assert_eq!([Some(5.0), Some(500.0), None], [0, 1, 2].map(idle_ms));
    assert!((index.shortest_idle_ns() - 5e6).abs() < 1.0);
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u32, CacheChange),
    Clear(u32),
    Promise(u32, Vec<u64>, u64),
    Shorten(u32, Vec<u64>, u64),
    LookUp(Vec<u64>),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || prop::collection::vec(1..12_u64, 1..6);
    // The parent of a key is always the same, as where keys name what comes before them.
    let change = (1..12_u64).prop_map(|key| stored(key, if key % 4 == 1 { 0 } else { key - 1 }));
    prop_oneof![
        4 => (0..SLOTS, change).prop_map(|(slot, change)| Step::Apply(slot, change)),
        2 => (0..SLOTS, 1..12_u64)
            .prop_map(|(slot, key)| Step::Apply(slot, CacheChange::Removed { key })),
        1 => (0..SLOTS).prop_map(Step::Clear),
        2 => (0..SLOTS, keys(), 1..20_u64).prop_map(|(slot, keys, time)| Step::Promise(slot, keys, time)),
        2 => (0..SLOTS, keys(), 0..10_u64).prop_map(|(slot, keys, time)| Step::Shorten(slot, keys, time)),
        4 => keys().prop_map(Step::LookUp),
        1 => (1..10_u64).prop_map(Step::Pass),
    ]
}

/// What each slot has, until when; and the parent of each key that somebody knows of.
#[derive(Default)]
struct Model {
    now: u64,
    has: BTreeMap<(u32, u64), u64>,
    parents: BTreeMap<u64, u64>,
}

impl Model {
    fn put(&mut self, slot: u32, key: u64, until: u64) {
        let kept = self.has.get(&(slot, key)).is_some_and(|known| *known == u64::MAX);
        if !kept {
            self.has.insert((slot, key), until);
        }
    }

    fn promise(&mut self, slot: u32, key: u64, until: u64) {
        if self.has.get(&(slot, key)).is_none_or(|known| *known <= self.now) {
            self.has.insert((slot, key), until);
        }
    }

    fn shorten(&mut self, slot: u32, key: u64, until: u64) {
        if let Some(known) = self.has.get_mut(&(slot, key)).filter(|known| **known != u64::MAX) {
            *known = until.min(*known);
        }
    }

    fn found(&self, slot: u32, keys: &[u64]) -> u32 {
        let (mut count, mut before) = (0, None);
        for key in keys {
            let has = self.has.get(&(slot, *key)).is_some_and(|until| *until > self.now);
            let parent = self.parents.get(key).copied().unwrap_or(0);
            let is_hit = has && (parent == 0 || before == Some(parent));
            before = is_hit.then_some(*key);
            count += u32::from(is_hit);
        }
        count
    }
}

fn check(steps: &[Step]) {
    let (mut index, mut model) = (index(), Model::default());
    for step in steps {
        let now = Nanos(model.now);
        match step {
            Step::Apply(slot, change) => {
                index.apply(*slot, *change, now);
                match *change {
                    CacheChange::Stored { key, parent } => {
                        model.put(*slot, key, u64::MAX);
                        model.parents.insert(key, parent);
                    }
                    CacheChange::Removed { key } => drop(model.has.remove(&(*slot, key))),
                }
            }
            Step::Clear(slot) => {
                index.clear(*slot);
                model.has.retain(|(of, _), _| of != slot);
            }
            Step::Promise(slot, keys, time) => {
                index.promise(*slot, keys, Nanos(model.now + time), now);
                for key in keys {
                    model.promise(*slot, *key, model.now + time);
                }
            }
            Step::Shorten(slot, keys, time) => {
                index.shorten(*slot, keys, Nanos(model.now + time));
                for key in keys {
                    model.shorten(*slot, *key, model.now + time);
                }
            }
            Step::LookUp(keys) => {
                let expected: Vec<u32> = (0..SLOTS).map(|slot| model.found(slot, keys)).collect();
                assert_eq!(expected, found(&mut index, keys, now), "{keys:?}");
            }
            Step::Pass(time) => model.now += time,
        }
        // A parent is remembered as long as somebody had the key since.
        let known: BTreeSet<u64> = index.places.keys().copied().collect();
        model.parents.retain(|key, _| known.contains(key));
        for slot in 0..SLOTS {
            let reported =
                model.has.iter().filter(|((of, _), until)| *of == slot && **until == u64::MAX);
            assert_eq!(reported.count() as u32, index.reported(slot), "after {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn the_index_is_what_a_plain_model_says(steps in prop::collection::vec(step(), 1..120)) {
        check(&steps);
    }
}
