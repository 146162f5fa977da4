//! Functions with which a fuzzer can call every reader of untrusted bytes: bodies of clients, and
//! messages of engines.
//!
//! None of them may panic, and every answer must have the format that its head declares.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use router_protocol::grpc::{Code, Status};
use serde_json::Value;

use crate::messages::{
    DetokenizeRequest, EmbedRequest, GenerateRequest, ScoreRequest, TokenizeRequest,
    TranscribeRequest,
};
use crate::{DETOKENIZE, EMBED, GENERATE, SCORE, TOKENIZE, TRANSCRIBE};
use crate::{Door, Opened, Output, Resolved};

const DOORS: [Door; 11] = [
    Door::ChatCompletions,
    Door::Completions,
    Door::Embeddings,
    Door::Responses,
    Door::Messages,
    Door::CountTokens,
    Door::Rerank,
    Door::Score,
    Door::Transcriptions,
    Door::Tokenize,
    Door::Detokenize,
];

/// Requests whose answers take different paths through the code.
const REQUESTS: [(Door, &str); 12] = [
    (Door::ChatCompletions, r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#),
    (
        Door::ChatCompletions,
        r#"{"messages":[{"role":"user","content":"a"}],"stream":true,"n":2,"stop":["ab","b"],
            "logprobs":true,"top_logprobs":1,"stream_options":{"include_usage":true}}"#,
    ),
    (
        Door::ChatCompletions,
        r#"{"messages":[{"role":"user","content":"a"}],"parallel_tool_calls":false}"#,
    ),
    (Door::Completions, r#"{"prompt":"a","stream":true,"logprobs":1,"stop":"ab"}"#),
    (Door::Completions, r#"{"prompt":["a","b"],"n":2,"echo":true}"#),
    (Door::Messages, r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":9}"#),
    (
        Door::Messages,
        r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":9,"stream":true,
            "stop_sequences":["ab"]}"#,
    ),
    (Door::Responses, r#"{"input":"a"}"#),
    (Door::Responses, r#"{"input":"a","stream":true}"#),
    (Door::Embeddings, r#"{"input":"a"}"#),
    (Door::Rerank, r#"{"query":"q","documents":["a","b"],"top_n":1}"#),
    (Door::Tokenize, r#"{"prompt":"a","return_token_strs":true}"#),
];

/// The body of a request; the first byte says of which API.
pub fn request(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let door = DOORS[usize::from(*first) % DOORS.len()];
    if let Some(opened) = open(door, body) {
        assert!(is_readable(&opened), "{door:?}");
    }
}

/// The messages of an engine, each after its length in a byte; the first byte says which request they
/// answer, and how they end.
pub fn answer(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let (door, body) = REQUESTS[usize::from(*first) % REQUESTS.len()];
    let mut answer = open(door, body.as_bytes()).expect("invariant: it is right").answer;
    let mut output = Output::default();
    let mut result = Ok(());
    while let (Some((length, others)), Ok(()), false) =
        (rest.split_first(), &result, output.is_ended)
    {
        let (message, others) = others.split_at(usize::from(*length).min(others.len()));
        result = answer.message(message, &mut output);
        rest = others;
    }
    if first % 2 == 1 {
        result = result.and(Err(Status::new(Code::Unavailable, "gone")));
    }
    if !output.is_ended {
        match result {
            Ok(()) => answer.finish(&mut output),
            Err(status) => answer.fail(&status, &HeaderMap::new(), &mut output),
        }
    }
    check(&output);
}

fn open(door: Door, body: &[u8]) -> Option<Opened> {
    let mut headers = HeaderMap::new();
    let content_type = match door {
        Door::Transcriptions => "multipart/form-data; boundary=x",
        _ => "application/json",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let request = door.read(&headers, &Bytes::copy_from_slice(body)).ok()?;
    let (asked, model) = ("alias".into(), "m".into());
    Some(request.open(Resolved { asked, model, id: 1, created: 1 }))
}

fn is_readable(opened: &Opened) -> bool {
    let message = &*opened.message;
    match opened.path {
        GENERATE => GenerateRequest::decode(message).is_ok(),
        EMBED => EmbedRequest::decode(message).is_ok(),
        SCORE => ScoreRequest::decode(message).is_ok(),
        TOKENIZE => TokenizeRequest::decode(message).is_ok(),
        DETOKENIZE => DetokenizeRequest::decode(message).is_ok(),
        TRANSCRIBE => TranscribeRequest::decode(message).is_ok(),
        _ => false,
    }
}

/// The answer has an end, and is JSON or events of JSON.
fn check(output: &Output) {
    assert!(output.is_ended, "an answer has an end");
    let head = output.head.as_ref().expect("an answer has a head");
    let body = std::str::from_utf8(&output.body).expect("an answer is UTF-8");
    if head.headers[CONTENT_TYPE] == "application/json" {
        return check_json(body);
    }
    for event in body.split_inclusive("\n\n") {
        let event = event.strip_suffix("\n\n").expect("an event has an end");
        let data = event.split_once("data: ").expect("an event has data").1;
        if data != "[DONE]" {
            check_json(data);
        }
    }
}

fn check_json(text: &str) {
    let parsed: Result<Value, _> = serde_json::from_str(text);
    assert!(parsed.is_ok(), "{text}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::messages::{Delta, TokenLogprob, ToolCallDelta};

    fn delta() -> impl Strategy<Value = Delta> {
        let call = (0_u32..3, "[ab]{0,1}", "[fg]{0,1}", "[{}1]{0,3}");
        let calls = prop::collection::vec(call, 0..2);
        let texts = ("[abé]{0,4}", "[r]{0,2}", "[n]{0,1}");
        (0_u32..4, texts, calls, 0_i32..6, prop::collection::vec("[ab]{1,2}", 0..2)).prop_map(
            |(index, (text, reasoning, refusal), calls, finish_reason, tokens)| {
                let call =
                    |(index, id, name, arguments)| ToolCallDelta { index, id, name, arguments };
                let token = |token| TokenLogprob { token, ..TokenLogprob::default() };
                Delta {
                    index,
                    text,
                    reasoning,
                    refusal,
                    tool_calls: calls.into_iter().map(call).collect(),
                    logprobs: tokens.into_iter().map(token).collect(),
                    finish_reason: finish_reason / 2,
                    ..Delta::default()
                }
            },
        )
    }

    proptest! {
        #[test]
        fn no_bytes_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
            request(&data);
            answer(&data);
        }

        #[test]
        fn no_deltas_panic(
            first in any::<u8>(),
            deltas in prop::collection::vec(delta(), 0..8),
        ) {
            let framed = |delta: &Delta| {
                let message = delta.encode_to_vec();
                let length = u8::try_from(message.len()).expect("they are short");
                [&[length][..], &message].concat()
            };
            let messages: Vec<Vec<u8>> = deltas.iter().map(framed).collect();
            answer(&[&[first][..], &messages.concat()].concat());
        }
    }

    #[test]
    fn requests_are_requests() {
        for (door, body) in REQUESTS {
            let index = DOORS.iter().position(|other| *other == door).expect("a door of these");
            assert!(open(door, body.as_bytes()).is_some(), "{body}");
            request(&[&[index as u8][..], body.as_bytes()].concat());
        }
    }
}
