//! The cost of JSON compared with the binary form of the same message.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// The limit per byte, relative to a compiled reader of the binary form. Without optimisation, as
/// tests are usually built, both prove little; the defect that this prevents took 35 times as much.
const RATIO_MAX: f64 = if cfg!(debug_assertions) { 12.0 } else { 4.0 };

const COUNT: usize = 20_000;

/// The fields of `things.v1.Thing` that are used here.
#[derive(Clone, PartialEq, Message)]
struct Thing {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "8")]
    tags: Vec<String>,
    #[prost(btree_map = "string, int32", tag = "9")]
    sizes: BTreeMap<String, i32>,
    #[prost(message, optional, boxed, tag = "10")]
    inner: Option<Box<Thing>>,
    #[prost(message, repeated, tag = "11")]
    parts: Vec<Thing>,
}

fn many(item: impl Fn(usize) -> String) -> String {
    (0..COUNT).map(item).collect::<Vec<_>>().join(",")
}

/// The processor time of this thread; other tests run at the same time.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("invariant: it is not negative")
}

/// In nanoseconds, for each byte.
fn cost(bytes: usize, work: impl Fn()) -> f64 {
    let timed = |_| {
        let begun = processor_time();
        work();
        processor_time().saturating_sub(begun)
    };
    // Other code has used the caches meanwhile.
    let least: Duration = (0..7).map(timed).min().expect("invariant: there are some");
    least.as_nanos() as f64 / bytes as f64
}

#[test]
fn json_costs_little_more_than_the_binary_form() {
    let thing = thing();
    for (name, json) in [
        ("map", format!(r#"{{"sizes":{{{}}}}}"#, many(|i| format!(r#""{i:06}":{}"#, i % 9)))),
        ("texts", format!(r#"{{"tags":[{}]}}"#, many(|i| format!(r#""{i:06}""#)))),
        ("messages", format!(r#"{{"parts":[{}]}}"#, many(|i| format!(r#"{{"name":"{i}"}}"#)))),
        ("nesting", {
            let nested = r#"{"inner":"#.repeat(50) + "{}" + &"}".repeat(50);
            format!(r#"{{"parts":[{}]}}"#, vec![nested; COUNT / 50].join(","))
        }),
    ] {
        let wire = thing.read(json.as_bytes()).unwrap();
        let decode = cost(wire.len(), || drop(Thing::decode(&wire[..]).unwrap()));
        let read = cost(json.len(), || drop(thing.read(json.as_bytes()).unwrap()));
        let write = cost(json.len(), || drop(thing.write(&wire).unwrap()));
        let told =
            format!("{name}: read {read:.1}, write {write:.1}, binary {decode:.1} ns a byte");
        assert!(read.max(write) < RATIO_MAX * decode, "{told}");
    }
}
