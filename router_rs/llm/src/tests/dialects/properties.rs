//! Properties of all answers of engines, sane or not.

use proptest::prelude::*;

use super::*;

/// A turn of an engine that keeps to the contract: its text may be cut anywhere, and calls may
/// interleave.
fn sane() -> impl Strategy<Value = Vec<Delta>> {
    let text = "[aEND\u{e9}\u{1f608}\"\n]{0,9}".prop_map(|piece| vec![text(&piece)]);
    let thoughts = "[a-c]{0,3}".prop_map(|piece| vec![reasoning(&piece)]);
    let calls = (0_u32..9, 1_usize..5, any::<bool>()).prop_map(|(number, size, interleaves)| {
        let arguments = format!("{{\"a\": [{number}, \"{{\\\"\"]}}");
        let pieces: Vec<&str> = [&arguments[..size], &arguments[size..]].to_vec();
        let index = number * 2;
        let mut calls = vec![call(index, "", "f", pieces[0]), call(index, "", "", pieces[1])];
        if interleaves {
            calls.insert(1, call(index + 1, "", "g", "{\"b\""));
            calls.push(call(index + 1, "", "", ": 1}"));
        }
        calls
    });
    let group = prop_oneof![3 => text, 1 => thoughts, 1 => calls];
    prop::collection::vec(group, 0..6).prop_map(|groups| distinct_calls(groups.concat()))
}

/// Calls of one number would be one: each beginning gets the next number.
fn distinct_calls(mut deltas: Vec<Delta>) -> Vec<Delta> {
    let mut numbers = std::collections::HashMap::new();
    let mut next = 0;
    for call in deltas.iter_mut().flat_map(|delta| &mut delta.tool_calls) {
        if !call.name.is_empty() {
            numbers.insert(call.index, next);
            next += 1;
        }
        call.index = numbers[&call.index];
    }
    deltas
}

/// The same turn with its text in other pieces, as bytes.
fn cut(deltas: &[Delta], size: usize) -> Vec<Delta> {
    let cut = |delta: &Delta| -> Vec<Delta> {
        if delta.text.is_empty() {
            return vec![delta.clone()];
        }
        let pieces = delta.text.as_bytes().chunks(size);
        let pieces = pieces.map(Bytes::copy_from_slice);
        pieces.map(|text_bytes| Delta { text_bytes, ..Delta::default() }).collect()
    };
    deltas.iter().flat_map(cut).collect()
}

/// Anything that can be written as a delta.
fn garbage() -> impl Strategy<Value = Delta> {
    let bytes = prop::collection::vec(any::<u8>(), 0..6);
    let call = (0_u32..3, "[ab]{0,2}", "[fg]{0,1}", "[{}\"1]{0,3}");
    let calls = prop::collection::vec(call, 0..3);
    let fields = (0_u32..40, "[aEND]{0,3}", bytes, calls, "[r]{0,1}", -1_i32..40, any::<f32>());
    fields.prop_map(|(index, text, bytes, calls, refusal, reason, logprob)| {
        let call = |(index, id, name, arguments)| ToolCallDelta { index, id, name, arguments };
        Delta {
            // Mostly the only choice that there is.
            index: index.saturating_sub(38),
            logprobs: vec![token(&text, logprob, &[("b", logprob)])],
            text,
            text_bytes: bytes.into(),
            reasoning: refusal.clone(),
            refusal,
            tool_calls: calls.into_iter().map(call).collect(),
            finish_reason: if reason > 6 { 0 } else { reason },
            usage: usage(logprob.to_bits(), u32::MAX).usage,
            ..Delta::default()
        }
    })
}

type Door = (fn(&Value) -> Opened, fn(&[Value]) -> Value);

const DOORS: [Door; 2] =
    [(messages, super::messages::put_together), (responses, super::responses::put_together)];

fn fields(index: usize, is_stopped: bool) -> Value {
    match index {
        0 if is_stopped => {
            json!({"stop_sequences": ["END", "aa"], "thinking": {"type": "adaptive"}})
        }
        0 => json!({"thinking": {"type": "adaptive"}}),
        _ => json!({"include": ["message.output_text.logprobs"]}),
    }
}

proptest! {
    #[test]
    fn a_stream_and_an_object_say_the_same_however_deltas_are_cut(
        deltas in sane(),
        size in 1_usize..4,
        is_stopped in any::<bool>(),
        is_cut in any::<bool>(),
        door in 0_usize..2,
    ) {
        let (open, put_together) = DOORS[door];
        let reason = if is_cut { FinishReason::Length } else { FinishReason::Stop };
        let complete = |deltas: Vec<Delta>| [deltas, vec![end(reason)]].concat();
        let recut = complete(cut(&deltas, size));
        let deltas = complete(deltas);
        let mut stream = fields(door, is_stopped);
        merge(&mut stream, &json!({"stream": true}));
        let expected = answered(open(&fields(door, is_stopped)), &deltas).json();
        prop_assert_eq!(&expected, &put_together(&seen(&answered(open(&stream), &deltas))));
        prop_assert_eq!(&expected, &put_together(&seen(&answered(open(&stream), &recut))));
        for block in expected["content"].as_array().into_iter().flatten().filter(|_| is_stopped) {
            let text = block["text"].as_str().unwrap_or_default();
            prop_assert!(!text.contains("END") && !text.contains("aa"), "{}", text);
        }
    }

    #[test]
    fn garbage_is_an_error_or_a_sane_answer(
        deltas in prop::collection::vec(garbage(), 0..8),
        is_stream in any::<bool>(),
        is_broken in any::<bool>(),
        door in 0_usize..2,
    ) {
        let (open, put_together) = DOORS[door];
        let mut fields = fields(door, true);
        merge(&mut fields, &json!({"stream": is_stream}));
        let ended = if is_broken { broken() } else { Ok(()) };
        let answered = answer(open(&fields), &deltas, &ended);
        let events = seen(&answered);
        let is_error = events.iter().any(|event| event["type"] == "error")
            || events[0]["error"].is_object();
        if is_error {
            let last = events.last().expect("there is one")["type"].clone();
            prop_assert!(answered.status != 200 || last == "error" || last == "response.failed");
            for (number, event) in events.iter().enumerate().filter(|_| door == 1 && is_stream) {
                let of_stream = answered.status == 200;
                prop_assert!(!of_stream || event["sequence_number"] == json!(number));
            }
        } else if is_stream {
            put_together(&events);
        }
    }

    #[test]
    fn no_bytes_of_an_engine_panic(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
        is_stream in any::<bool>(),
        door in 0_usize..2,
    ) {
        let mut opened = DOORS[door].0(&json!({"stream": is_stream}));
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
    fn no_body_of_a_client_panics(
        body in "(\\{|\\}|\\[|\\]|\"|:|,|messages|input|type|content|role|user|text|1| ){0,40}",
        door in 0_usize..4,
    ) {
        use crate::Door::{CountTokens, Messages, Responses, Transcriptions};
        let doors = [CountTokens, Messages, Responses, Transcriptions];
        let _read = doors[door].read(&HeaderMap::new(), &Bytes::from(body));
    }
}
