//! Properties of all answers of engines, sane or not.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PIECES: &str = "[aEND\u{e9}\u{1f608}\"\n]{0,6}";

/// The message that a client of chat assembles from the events of one choice.
#[derive(Debug, Default, PartialEq)]
struct Joined {
    text: String,
    reasoning: String,
    calls: BTreeMap<u64, (String, String, String)>,
    reason: String,
    roles: usize,
    reasons: usize,
}

fn joined(events: &[Value]) -> BTreeMap<u64, Joined> {
    let mut all: BTreeMap<u64, Joined> = BTreeMap::new();
    for event in events {
        for choice in event["choices"].as_array().expect("choices") {
            let it = all.entry(choice["index"].as_u64().expect("an index")).or_default();
            let delta = &choice["delta"];
            it.roles += usize::from(delta["role"] == "assistant");
            it.text.push_str(delta["content"].as_str().unwrap_or_default());
            it.reasoning.push_str(delta["reasoning"].as_str().unwrap_or_default());
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let call_of =
                    it.calls.entry(call["index"].as_u64().expect("an index")).or_default();
                call_of.0.push_str(call["id"].as_str().unwrap_or_default());
                call_of.1.push_str(call["function"]["name"].as_str().unwrap_or_default());
                call_of.2.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
            }
            if let Some(reason) = choice["finish_reason"].as_str() {
                it.reason = reason.into();
                it.reasons += 1;
            }
        }
    }
    all
}

/// The same of an answer in one object.
fn whole(answer: &Value) -> BTreeMap<u64, Joined> {
    let choices = answer["choices"].as_array().expect("choices").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let choice = choices.map(|choice| {
        let message = &choice["message"];
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let function = &call["function"];
            (text(&call["id"]), text(&function["name"]), text(&function["arguments"]))
        });
        let joined = Joined {
            text: text(&message["content"]),
            reasoning: text(&message["reasoning"]),
            calls: (0..).zip(calls).collect(),
            reason: text(&choice["finish_reason"]),
            roles: 1,
            reasons: 1,
        };
        (choice["index"].as_u64().expect("an index"), joined)
    });
    choice.collect()
}

/// A delta of an engine that keeps to the contract, except for deviations that are tolerated.
fn sane() -> impl Strategy<Value = Delta> {
    let delta = (0_u32..2, PIECES, "[a-c]{0,3}", prop::option::weighted(0.2, 0_u32..3));
    let delta = delta.prop_map(|(index, text, reasoning, call)| {
        let call = call.map(|index| ToolCallDelta {
            index,
            name: "f".into(),
            arguments: "1".into(),
            ..ToolCallDelta::default()
        });
        let tool_calls = call.into_iter().collect();
        Delta { index, text, reasoning, tool_calls, ..Delta::default() }
    });
    // Some pieces come as bytes, cut anywhere.
    (delta, any::<bool>()).prop_map(|(delta, is_bytes)| {
        if is_bytes {
            Delta { text_bytes: delta.text.into(), text: String::new(), ..delta }
        } else {
            delta
        }
    })
}

/// Anything that can be written as a delta.
fn garbage() -> impl Strategy<Value = Delta> {
    let bytes = prop::collection::vec(any::<u8>(), 0..6);
    let call = (0_u32..4, "[ab]{0,2}", "[fg]{0,1}", "[{}1]{0,3}");
    let calls = prop::collection::vec(call, 0..3);
    let logprobs = prop::collection::vec(("[aE]{0,2}", any::<f32>()), 0..3);
    let fields = (0_u32..4, PIECES, bytes, calls, logprobs, -1_i32..7, any::<u32>());
    fields.prop_map(|(index, text, bytes, calls, logprobs, finish_reason, tokens)| {
        let call = |(index, id, name, arguments)| ToolCallDelta { index, id, name, arguments };
        let logprob = |(text, logprob): (String, f32)| token(&text, logprob, &[("b", logprob)]);
        Delta {
            index,
            text,
            text_bytes: bytes.into(),
            tool_calls: calls.into_iter().map(call).collect(),
            logprobs: logprobs.into_iter().map(logprob).collect(),
            finish_reason,
            usage: usage(tokens, tokens).usage,
            ..Delta::default()
        }
    })
}

/// The same text in other pieces, as bytes.
fn cut(delta: &Delta, size: usize) -> Vec<Delta> {
    let bytes = if delta.text.is_empty() { &delta.text_bytes } else { delta.text.as_bytes() };
    let pieces = bytes.chunks(size).map(|piece| Delta {
        index: delta.index,
        text_bytes: Bytes::copy_from_slice(piece),
        ..Delta::default()
    });
    let first = Delta { text: String::new(), text_bytes: Bytes::new(), ..delta.clone() };
    std::iter::once(first).chain(pieces).collect()
}

proptest! {
    #[test]
    fn a_stream_and_an_object_say_the_same_however_deltas_are_cut(
        deltas in prop::collection::vec(sane(), 0..12),
        size in 1_usize..4,
        is_stopped in any::<bool>(),
    ) {
        let stop = if is_stopped { json!(["END", "aa"]) } else { json!(null) };
        let fields = json!({"n": 2, "stop": stop});
        let mut stream = fields.clone();
        merge(&mut stream, &json!({"stream": true}));
        let complete = |deltas: &[Delta]| {
            let ends = [0, 1].map(|index| Delta { index, ..end(FinishReason::Stop) });
            [deltas, &ends].concat()
        };
        let pieces: Vec<Delta> = deltas.iter().flat_map(|delta| cut(delta, size)).collect();
        let expected = whole(&answered(chat(&fields), &complete(&deltas)).json());
        let streamed = joined(&answered(chat(&stream), &complete(&deltas)).events());
        prop_assert_eq!(&expected, &streamed);
        for choice in expected.values().filter(|_| is_stopped) {
            prop_assert!(!choice.text.contains("END") && !choice.text.contains("aa"));
        }
        // Of what comes after a stop sequence, only the text is cut off at the same place.
        let texts = |all: BTreeMap<u64, Joined>| {
            all.into_iter().map(|(index, choice)| (index, choice.text)).collect::<Vec<_>>()
        };
        let recut = joined(&answered(chat(&stream), &complete(&pieces)).events());
        prop_assert_eq!(texts(expected), texts(recut));
    }

    #[test]
    fn garbage_is_an_error_or_a_sane_answer(
        deltas in prop::collection::vec(garbage(), 0..10),
        fields in prop::sample::select(vec![
            json!({}),
            json!({"n": 2, "stop": "a"}),
            json!({"n": 2, "logprobs": true, "top_logprobs": 1, "stop": ["END", "\n"]}),
            json!({"parallel_tool_calls": false, "logprobs": true}),
        ]),
        is_stream in any::<bool>(),
        is_broken in any::<bool>(),
    ) {
        let mut fields = fields;
        let options = json!({"stream": true, "stream_options": {"include_usage": true}});
        if is_stream {
            merge(&mut fields, &options);
        }
        let ended = if is_broken { broken() } else { Ok(()) };
        let answered = answer(chat(&fields), &deltas, &ended);
        if answered.status != 200 || !is_stream {
            let json = answered.json();
            prop_assert_eq!(answered.status != 200, json.get("error").is_some());
            return Ok(());
        }
        let events = answered.events();
        let (last, others) = events.split_last().expect("a stream has events");
        prop_assert!(last.get("error").is_some() || last["usage"].is_object(), "{}", last);
        for choice in joined(others).values() {
            prop_assert_eq!(1, choice.roles);
            prop_assert!(choice.reasons <= 1);
        }
    }

    #[test]
    fn no_bytes_of_an_engine_panic(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
    ) {
        let body = json!({"prompt": "a", "stream": true, "logprobs": 2, "stop": "b"});
        let mut opened = open(Door::Completions, &body).expect("a request that is right");
        let mut output = Output::default();
        for message in messages {
            if output.is_ended || opened.answer.message(&message, &mut output).is_err() {
                break;
            }
        }
        if !output.is_ended {
            opened.answer.finish(&mut output);
        }
        prop_assert!(output.is_ended);
    }

    #[test]
    fn no_body_of_a_client_panics(body in "\\PC{0,60}", door in 0_usize..7) {
        let doors = [
            Door::ChatCompletions, Door::Completions, Door::Embeddings, Door::Rerank,
            Door::Score, Door::Tokenize, Door::Detokenize,
        ];
        let _read = doors[door].read(&HeaderMap::new(), &Bytes::from(body));
    }
}
