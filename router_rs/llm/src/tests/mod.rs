//! Requests and answers through the doors, as a client and an engine see them.

mod chat;
mod chat_requests;
mod completions;
mod cost;
mod dialects;
mod others;
mod properties;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use prost::Message;
use router_protocol::grpc::{Code, Status};
use serde_json::{Value, json};

use crate::messages::{Delta, FinishReason, GenerateRequest, TokenLogprob, ToolCallDelta, Usage};
use crate::{ApiError, Door, Opened, Output, Resolved};

/// An answer, as a client receives it.
#[derive(Debug)]
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
    /// How many of the engine's messages it took.
    taken: usize,
}

/// The id of every answer here.
const ID: u128 = 0xabc;

fn resolved() -> Resolved {
    Resolved { asked: "alias".into(), model: "m:adapter".into(), id: ID, created: 7 }
}

fn open(door: Door, body: &Value) -> Result<Opened, ApiError> {
    let body = Bytes::from(body.to_string());
    Ok(door.read(&HeaderMap::new(), &body)?.open(resolved()))
}

/// A chat of one message with these fields.
fn chat(fields: &Value) -> Opened {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
    merge(&mut body, fields);
    open(Door::ChatCompletions, &body).expect("a request that is right")
}

fn merge(body: &mut Value, fields: &Value) {
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
}

fn generate(opened: &Opened) -> GenerateRequest {
    assert_eq!("/pyserve.llm.v1.Engine/Generate", opened.path);
    GenerateRequest::decode(&*opened.message).expect("the engine's message can be read")
}

/// The client's answer if the engine sends these messages, and then ends in this way.
fn answer<M: Message>(mut opened: Opened, messages: &[M], end: &Result<(), Status>) -> Answered {
    let (mut output, mut taken) = (Output::default(), 0);
    let mut result = Ok(());
    for message in messages {
        if output.is_ended || result.is_err() {
            break;
        }
        taken += 1;
        result = opened.answer.message(&message.encode_to_vec(), &mut output);
    }
    if !output.is_ended {
        match result.and(end.clone()) {
            Ok(()) => opened.answer.finish(&mut output),
            Err(status) => opened.answer.fail(&status, &HeaderMap::new(), &mut output),
        }
    }
    assert!(output.is_ended, "every answer has an end");
    let head = output.head.expect("every answer has a head");
    let body = String::from_utf8(output.body.to_vec()).expect("every answer is UTF-8");
    Answered { status: head.status, headers: head.headers, body, taken }
}

fn answered(opened: Opened, deltas: &[Delta]) -> Answered {
    answer(opened, deltas, &Ok(()))
}

impl Answered {
    fn json(&self) -> Value {
        assert_eq!(self.body.len().to_string(), self.headers["content-length"]);
        serde_json::from_str(&self.body).expect("the answer is JSON")
    }

    /// The data of all events; the last of them must have been `[DONE]`.
    fn events(&self) -> Vec<Value> {
        assert_eq!("text/event-stream; charset=utf-8", self.headers["content-type"]);
        let mut events = events(&self.body);
        assert_eq!(Some("[DONE]"), events.pop(), "{}", self.body);
        events.iter().map(|event| serde_json::from_str(event).expect("an event is JSON")).collect()
    }

    /// The error, with the answer's status.
    fn error(&self) -> (u16, Value) {
        (self.status.as_u16(), self.json()["error"].clone())
    }
}

fn events(body: &str) -> Vec<&str> {
    let events = body.split_inclusive("\n\n").map(|event| {
        let event = event.strip_suffix("\n\n").expect("an event has an end");
        let data = event.strip_prefix("data: ").expect("an event is one line of data");
        assert!(!data.contains('\n'), "{data}");
        data
    });
    events.collect()
}

fn text(text: &str) -> Delta {
    Delta { text: text.into(), ..Delta::default() }
}

fn end(reason: FinishReason) -> Delta {
    Delta { finish_reason: reason.into(), ..Delta::default() }
}

fn usage(prompt: u32, completion: u32) -> Delta {
    let usage = Usage { prompt_tokens: prompt, completion_tokens: completion, ..Usage::default() };
    Delta { usage: Some(usage), ..Delta::default() }
}

fn call(index: u32, id: &str, name: &str, arguments: &str) -> Delta {
    let (id, name, arguments) = (id.into(), name.into(), arguments.into());
    let call = ToolCallDelta { index, id, name, arguments };
    Delta { tool_calls: vec![call], ..Delta::default() }
}

fn token(text: &str, logprob: f32, top: &[(&str, f32)]) -> TokenLogprob {
    let other = |(text, logprob): &(&str, f32)| token(text, *logprob, &[]);
    let top = top.iter().map(other).collect();
    TokenLogprob { token: text.into(), logprob, top, ..TokenLogprob::default() }
}

fn broken() -> Result<(), Status> {
    Err(Status::new(Code::Unavailable, "the engine is gone"))
}
