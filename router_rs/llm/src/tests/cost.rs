//! The cost of a streamed token in this crate.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// The limit for a token, from the engine's message to the event in the output. Unoptimised builds
/// take about ten times as long, and the limit for them still catches gross mistakes.
const TOKEN_NS_MAX: f64 = if cfg!(debug_assertions) { 20_000.0 } else { 1_000.0 };

const COUNT: u32 = 50_000;

/// The processor time of this thread; other tests run at the same time.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("invariant: it is not negative")
}

/// In nanoseconds, the least of some tries.
fn token_cost(open: impl Fn() -> Opened) -> f64 {
    let message = Delta { token_ids: vec![1234], ..text(" token") }.encode_to_vec();
    let tried = |_| {
        let mut opened = open();
        let mut output = Output::default();
        opened.answer.message(&message, &mut output).expect("a delta that is right");
        let begun = processor_time();
        for _ in 0..COUNT {
            output.body.clear();
            opened.answer.message(&message, &mut output).expect("a delta that is right");
        }
        processor_time().saturating_sub(begun)
    };
    let least = (0..7).map(tried).min().expect("invariant: there are some");
    least.as_nanos() as f64 / f64::from(COUNT)
}

/// The limit for a byte of a request, most of which is a picture.
const BYTE_NS_MAX: f64 = if cfg!(debug_assertions) { 200.0 } else { 10.0 };

#[test]
#[allow(clippy::print_stdout, reason = "`cargo test --release cost -- --nocapture` shows it")]
fn a_picture_is_read_fast() {
    let url = format!("data:image/png;base64,{}", "A".repeat(4 << 20));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let messages = json!([{"role": "user", "content": [image]}]);
    let body = Bytes::from(json!({"messages": messages}).to_string());
    let tried = |_| {
        let begun = processor_time();
        let read = Door::ChatCompletions.read(&HeaderMap::new(), &body);
        let opened = read.expect("a request that is right").open(resolved());
        assert!(opened.message.len() > 4 << 20);
        processor_time().saturating_sub(begun)
    };
    let least: Duration = (0..5).map(tried).min().expect("invariant: there are some");
    let cost = least.as_nanos() as f64 / body.len() as f64;
    println!("a picture: {cost:.2} ns a byte");
    assert!(cost < BYTE_NS_MAX, "{cost:.2} ns a byte");
}

#[test]
#[allow(clippy::print_stdout, reason = "`cargo test --release cost -- --nocapture` shows it")]
fn a_token_costs_little() {
    let stop = json!(["END", "\n\n", "###", " tok-"]);
    for (name, open, fields) in [
        ("plain", chat as fn(&Value) -> Opened, json!({"stream": true})),
        ("four stop sequences", chat, json!({"stream": true, "stop": stop})),
        ("messages", dialects::messages, json!({"stream": true})),
        ("responses", dialects::responses, json!({"stream": true})),
    ] {
        let cost = token_cost(|| open(&fields));
        println!("{name}: {cost:.0} ns a token");
        assert!(cost < TOKEN_NS_MAX, "{name}: {cost:.0} ns a token");
    }
}
