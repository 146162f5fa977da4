//! The load that replicas report: the trailer of every answer, and the messages of
//! `proto/pyserve/wire/v1/load.proto`, where their fields are explained.
//!
//! The messages are written by hand with prost's derive macros: a few small messages are not worth
//! a code generator that needs protoc. A test compares them with the bytes of another
//! implementation.

use std::fmt::Write as _;

use http::HeaderValue;
use prost::Message;
use router_core::{BatchLoad, CacheBatch, CacheChange, Cost, CostLoad, Load, Nanos};

/// The trailer of an answer, see `names::LOAD`.
///
/// It differs in nearly every answer, so it is marked as one that HPACK must not index: it would
/// displace useful entries from the table.
pub fn trailer(load: &Load) -> HeaderValue {
    let mut text = String::with_capacity(24);
    let written = write_load(&mut text, load);
    debug_assert!(written.is_ok(), "a string takes everything");
    let mut value =
        HeaderValue::try_from(text).expect("invariant: digits and semicolons are ASCII");
    value.set_sensitive(true);
    value
}

fn write_load(text: &mut String, load: &Load) -> std::fmt::Result {
    write!(text, "{};{}", load.in_flight, load.limit)?;
    let has_more = load.batch.is_some() || load.alone.is_some() || load.cost.is_some();
    if load.processing.is_some() || has_more {
        write!(text, ";{}", micros(load.processing.unwrap_or(Nanos::ZERO)))?;
    }
    if let Some(batch) = load.batch {
        write!(text, ";{};{}", batch.size_max, batch.waiting)?;
        for time in [batch.busy, batch.window, batch.step_fixed, batch.step_per_call] {
            write!(text, ";{}", micros(time))?;
        }
    }
    load.alone.map_or(Ok(()), |alone| write!(text, ";{ALONE}{}", micros(alone)))?;
    load.cost.map_or(Ok(()), |cost| write_cost(text, &cost))
}

fn write_cost(text: &mut String, cost: &CostLoad) -> std::fmt::Result {
    write!(text, ";{COST}{}", cost.number)?;
    for amount in [cost.budget, cost.running, cost.waiting, cost.own] {
        write!(text, ",{}", amount.amount())?;
    }
    write!(text, ",{},{},{},{}", cost.calls, cost.places, micros(cost.step), micros(cost.wait))
}

fn micros(time: Nanos) -> u64 {
    time.0 / 1000
}

/// The prefix of the field with the time that the replica worked exclusively on the call. The other
/// fields are identified by position; an earlier version stops parsing there.
const ALONE: char = 'a';

/// The prefix of the field with what the replica's requests cost, which has numbers with commas
/// between: see `write_cost`.
const COST: char = 'k';

/// Parses the output of [`trailer`]; further fields belong to later versions.
pub fn parse_trailer(value: &[u8]) -> Option<Load> {
    let text = std::str::from_utf8(value).ok()?;
    let alone = text.split(';').find_map(|field| field.strip_prefix(ALONE));
    let alone = alone.and_then(|micros| Some(Nanos::from_micros(micros.parse().ok()?)));
    let cost = text.split(';').find_map(|field| field.strip_prefix(COST)).and_then(parse_cost);
    let mut fields = text.split(';');
    let (in_flight, limit) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let Some(processing) = fields.next() else {
        return Some(Load {
            in_flight,
            limit,
            processing: None,
            alone: None,
            batch: None,
            cost: None,
        });
    };
    let processing = Some(Nanos::from_micros(processing.parse().ok()?));
    Some(Load { in_flight, limit, processing, alone, batch: parse_batch(fields), cost })
}

fn parse_cost(text: &str) -> Option<CostLoad> {
    let mut fields = text.split(',');
    let number = fields.next()?.parse().ok()?;
    let mut amount = || Cost::parse(fields.next()?);
    let (budget, running, waiting, own) = (amount()?, amount()?, amount()?, amount()?);
    let (calls, places) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mut time = || Some(Nanos::from_micros(fields.next()?.parse().ok()?));
    let (step, wait) = (time()?, time()?);
    Some(CostLoad { number, budget, running, waiting, calls, places, step, wait, own })
}

fn parse_batch<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<BatchLoad> {
    let (size_max, waiting) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mut time = || Some(Nanos::from_micros(fields.next()?.parse().ok()?));
    Some(BatchLoad {
        size_max,
        waiting,
        busy: time()?,
        window: time()?,
        step_fixed: time()?,
        step_per_call: time()?,
    })
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadRequest {
    #[prost(bool, tag = "1")]
    pub ask: bool,
    #[prost(bool, tag = "2")]
    pub when_idle: bool,
    #[prost(bool, tag = "3")]
    pub caches: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadReport {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint32, tag = "2")]
    pub in_flight: u32,
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    #[prost(message, optional, tag = "4")]
    pub models: Option<ModelList>,
    #[prost(uint32, tag = "5")]
    pub leases: u32,
    #[prost(message, optional, tag = "6")]
    pub costs: Option<CostReport>,
    #[prost(message, optional, tag = "8")]
    pub cache: Option<CacheReport>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CostReport {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(double, tag = "2")]
    pub budget: f64,
    #[prost(double, tag = "3")]
    pub running: f64,
    #[prost(double, tag = "4")]
    pub waiting: f64,
    #[prost(uint64, tag = "5")]
    pub step_us: u64,
    #[prost(uint64, tag = "6")]
    pub wait_us: u64,
    #[prost(uint32, tag = "7")]
    pub calls: u32,
    #[prost(uint32, tag = "8")]
    pub places: u32,
}

// === impl CostReport ===

impl CostReport {
    pub fn of(load: &CostLoad) -> Self {
        Self {
            number: load.number,
            budget: load.budget.amount(),
            running: load.running.amount(),
            waiting: load.waiting.amount(),
            step_us: micros(load.step),
            wait_us: micros(load.wait),
            calls: load.calls,
            places: load.places,
        }
    }

    /// `None` if an amount is none.
    pub fn load(&self) -> Option<CostLoad> {
        Some(CostLoad {
            number: self.number,
            budget: Cost::new(self.budget)?,
            running: Cost::new(self.running)?,
            waiting: Cost::new(self.waiting)?,
            calls: self.calls,
            places: self.places,
            step: Nanos::from_micros(self.step_us),
            wait: Nanos::from_micros(self.wait_us),
            own: Cost::ZERO,
        })
    }
}

/// A batch of changes of a replica's cache.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CacheReport {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bool, tag = "2")]
    pub is_whole: bool,
    #[prost(fixed64, repeated, tag = "3")]
    pub stored: Vec<u64>,
    #[prost(fixed64, repeated, tag = "4")]
    pub parents: Vec<u64>,
    #[prost(fixed64, repeated, tag = "5")]
    pub removed: Vec<u64>,
}

// === impl CacheReport ===

impl CacheReport {
    /// The message for a batch.
    pub fn of(batch: &CacheBatch) -> Self {
        let mut report = Self { number: batch.number, is_whole: batch.is_whole, ..Self::default() };
        for change in &batch.changes {
            match *change {
                CacheChange::Stored { key, parent } => {
                    report.stored.push(key);
                    report.parents.push(parent);
                }
                CacheChange::Removed { key } => report.removed.push(key),
            }
        }
        if report.parents.iter().all(|parent| *parent == 0) {
            report.parents.clear();
        }
        report
    }

    /// The changes in it; keys of 0, which are none, are left out.
    pub fn changes(&self) -> Vec<CacheChange> {
        let parent = |index: usize| self.parents.get(index).copied().unwrap_or(0);
        let stored = self.stored.iter().enumerate();
        let stored =
            stored.map(|(index, key)| CacheChange::Stored { key: *key, parent: parent(index) });
        let removed = self.removed.iter().map(|key| CacheChange::Removed { key: *key });
        let is_key = |change: &CacheChange| match change {
            CacheChange::Stored { key, .. } | CacheChange::Removed { key } => *key > 0,
        };
        removed.chain(stored).filter(is_key).collect()
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelList {
    #[prost(string, repeated, tag = "1")]
    pub model_ids: Vec<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BATCH: BatchLoad = BatchLoad {
        size_max: 32,
        waiting: 3,
        busy: Nanos::from_micros(1500),
        window: Nanos::from_micros(0),
        step_fixed: Nanos::from_micros(10_000),
        step_per_call: Nanos::from_micros(500),
    };

    fn costs() -> CostLoad {
        let amount = |amount| Cost::new(amount).expect("an amount");
        CostLoad {
            number: 7,
            budget: amount(80_000.0),
            running: amount(1_500.0),
            waiting: amount(20.5),
            calls: 12,
            places: 32,
            step: Nanos::from_micros(5_600),
            wait: Nanos::from_micros(12_000),
            own: amount(300.0),
        }
    }

    #[test]
    fn trailers_are_read_as_they_were_written() {
        let plain = Load {
            in_flight: 3,
            limit: 128,
            processing: None,
            alone: None,
            batch: None,
            cost: None,
        };
        let timed = Load { processing: Some(Nanos::from_micros(250)), ..plain };
        let batched = Load { batch: Some(BATCH), ..timed };
        let alone = Load { alone: Some(Nanos::from_micros(240)), ..timed };
        let both = Load { alone: alone.alone, ..batched };
        let costs = Load { cost: Some(costs()), ..plain };
        let all = Load { cost: Some(costs.cost.unwrap()), ..both };
        for (text, load) in [
            ("3;128", plain),
            ("3;128;250", timed),
            ("3;128;250;a240", alone),
            ("3;128;250;32;3;1500;0;10000;500", batched),
            ("3;128;250;32;3;1500;0;10000;500;a240", both),
            (
                "3;128;0;k7,80000,1500,20.5,300,12,32,5600,12000",
                Load { processing: Some(Nanos::ZERO), ..costs },
            ),
            ("3;128;250;32;3;1500;0;10000;500;a240;k7,80000,1500,20.5,300,12,32,5600,12000", all),
        ] {
            assert_eq!(text, trailer(&load));
            assert_eq!(Some(load), parse_trailer(text.as_bytes()), "{text}");
        }
        assert_eq!(Some(batched), parse_trailer(b"3;128;250;32;3;1500;0;10000;500;later"));
    }

    #[test]
    fn what_is_no_trailer_says_nothing() {
        for text in ["", "3", "3;", ";3", "-1;3", "3;128;x", "4294967296;1"] {
            assert_eq!(None, parse_trailer(text.as_bytes()), "{text}");
        }
        let half = parse_trailer(b"3;128;250;32;3;1500").expect("what is there");
        assert_eq!((3, None), (half.in_flight, half.batch));
        for costs in ["k", "k1", "k1,2,3,4,5,6,7,8", "k1,-2,3,4,5,6,7,8,9", "k1,2,3,4,nan,6,7,8,9"]
        {
            let text = format!("3;128;250;{costs}");
            assert_eq!(
                None,
                parse_trailer(text.as_bytes()).expect("what is there").cost,
                "{costs}"
            );
        }
    }

    #[test]
    fn a_report_says_what_its_batch_does() {
        let changes = vec![
            CacheChange::Removed { key: 4 },
            CacheChange::Stored { key: 1, parent: 0 },
            CacheChange::Stored { key: 2, parent: 1 },
        ];
        let mut batch = CacheBatch { number: 7, is_whole: true, changes };
        assert_eq!(batch.changes, CacheReport::of(&batch).changes());
        batch.changes.pop();
        assert_eq!(batch.changes, CacheReport::of(&batch).changes(), "none has a parent");
        let odd = CacheReport { stored: vec![0, 5], parents: vec![8], ..CacheReport::default() };
        assert_eq!(vec![CacheChange::Stored { key: 5, parent: 0 }], odd.changes());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_report_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(LoadReport { cache: Some(cache), .. }) = LoadReport::decode(&bytes[..]) {
                let (changes, named) = (cache.changes(), cache.stored.len() + cache.removed.len());
                prop_assert!(changes.len() <= named);
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_proto_file() {
        let model_ids = vec!["a".to_owned(), "bc".to_owned()];
        let models = Some(ModelList { model_ids });
        let report = LoadReport {
            sequence: 1,
            in_flight: 2,
            limit: 300,
            models,
            leases: 1,
            ..LoadReport::default()
        };
        // `LoadReport(...).SerializeToString()` of protobuf's Python.
        let expected = b"\x08\x01\x10\x02\x18\xac\x02\"\x07\n\x01a\n\x02bc(\x01";
        assert_eq!(&expected[..], report.encode_to_vec());
        assert_eq!(report, LoadReport::decode(&expected[..]).unwrap());
        let costs = CostLoad { own: Cost::ZERO, ..costs() };
        let report = CostReport::of(&costs);
        assert_eq!(Some(costs), report.load());
        let told = LoadReport { sequence: 1, costs: Some(report), ..LoadReport::default() };
        let expected = b"\x08\x012\x27\x08\x07\x11\0\0\0\0\0\x88\xf3@\x19\0\0\0\0\0p\x97@!\0\0\0\0\0\x804@(\xe0+0\xe0]8\x0c@ ";
        assert_eq!(&expected[..], told.encode_to_vec());
        assert_eq!(told, LoadReport::decode(&expected[..]).unwrap());
        let cache = CacheReport {
            number: 3,
            is_whole: true,
            stored: vec![1, 2],
            parents: vec![0, 1],
            removed: vec![9],
        };
        let report = LoadReport { cache: Some(cache), ..LoadReport::default() };
        let [one, two, nine, none] = [1, 2, 9, 0].map(u64::to_le_bytes).map(|bytes| bytes.to_vec());
        let mut expected = b"B2\x08\x03\x10\x01\x1a\x10".to_vec();
        expected.extend([one.clone(), two, b"\"\x10".to_vec(), none, one].concat());
        expected.extend([b"*\x08".to_vec(), nine].concat());
        assert_eq!(expected, report.encode_to_vec());
        assert_eq!(report, LoadReport::decode(&expected[..]).unwrap());
        // An empty list is not the same as none.
        let empty = LoadReport { models: Some(ModelList::default()), ..LoadReport::default() };
        assert_eq!(b"\"\x00", &empty.encode_to_vec()[..]);
    }
}
