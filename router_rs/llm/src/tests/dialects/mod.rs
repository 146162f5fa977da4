//! Messages, Responses and transcriptions, as their clients and an engine see them.

mod golden;
mod messages;
mod messages_requests;
mod properties;
mod requests;
mod responses;
mod responses_requests;
mod transcriptions;

use super::*;

/// An answer, as a client sees it: its status, and its events or its only object.
fn seen(answered: &Answered) -> Vec<Value> {
    if answered.headers["content-type"] == "application/json" {
        return vec![answered.json()];
    }
    assert_eq!("text/event-stream; charset=utf-8", answered.headers["content-type"]);
    named_events(&answered.body)
}

/// The data of all events, whose names are their types. Comments are left out.
fn named_events(body: &str) -> Vec<Value> {
    let events = body.split_inclusive("\n\n").filter(|event| !event.starts_with(':'));
    let event = events.map(|event| {
        let event = event.strip_suffix("\n\n").expect("an event has an end");
        let (name, data) = event.split_once('\n').expect("an event has two lines");
        let name = name.strip_prefix("event: ").expect("an event has a name");
        let data = data.strip_prefix("data: ").expect("an event has data");
        assert!(!data.contains(['\n', '\r']), "{data}");
        let data: Value = serde_json::from_str(data).expect("an event is JSON");
        assert_eq!(name, data["type"], "{data}");
        data
    });
    event.collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// A request of Messages with these fields.
pub(super) fn messages(fields: &Value) -> Opened {
    let content = json!([{"role": "user", "content": "hello"}]);
    let mut body = json!({"model": "alias", "max_tokens": 9, "messages": content});
    merge(&mut body, fields);
    open(Door::Messages, &body).expect("a request that is right")
}

/// A request of Responses with these fields.
pub(super) fn responses(fields: &Value) -> Opened {
    let mut body = json!({"model": "alias", "input": "hello"});
    merge(&mut body, fields);
    open(Door::Responses, &body).expect("a request that is right")
}

fn reasoning(text: &str) -> Delta {
    Delta { reasoning: text.into(), ..Delta::default() }
}

fn refusal(text: &str) -> Delta {
    Delta { refusal: text.into(), ..Delta::default() }
}

/// A turn with a bit of everything; the arguments of its calls interleave.
fn everything() -> Vec<Delta> {
    let mut first = usage(9, 0);
    first.usage.as_mut().expect("set above").cached_tokens = 4;
    let mut last = usage(9, 17);
    let counted = last.usage.as_mut().expect("set above");
    (counted.cached_tokens, counted.reasoning_tokens) = (4, 3);
    vec![
        first,
        reasoning("Let me "),
        reasoning("think."),
        text("It is \u{2603}"),
        text(" \"cold\"."),
        call(0, "call_1", "weather", ""),
        call(0, "", "", "{\"city\": \"Os"),
        call(1, "call_2", "time", "{"),
        call(0, "", "", "lo\"}"),
        call(1, "", "", "}"),
        end(FinishReason::ToolCalls),
        last,
    ]
}
