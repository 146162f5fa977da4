use super::*;
use crate::call_json::{closed, object_of};
use crate::messages::TokenizeResponse;

/// The message that a client puts together from events, whose order is checked.
pub(super) fn put_together(events: &[Value]) -> Value {
    let events: Vec<&Value> = events.iter().filter(|event| event["type"] != "ping").collect();
    let (start, others) = events.split_first().expect("a stream has events");
    assert_eq!("message_start", start["type"]);
    let mut message = start["message"].clone();
    let mut open = None;
    let mut inputs = Vec::new();
    for event in others {
        let content = message["content"].as_array_mut().expect("an array");
        let index = event["index"].as_u64().map(|index| index as usize);
        match event["type"].as_str().expect("a type") {
            "content_block_start" => {
                assert_eq!((None, Some(content.len())), (open, index), "{event}");
                content.push(event["content_block"].clone());
                inputs.push(String::new());
                open = index;
            }
            "content_block_delta" => {
                assert_eq!(open, index, "{event}");
                let block = content.last_mut().expect("a block is open");
                add(block, &event["delta"], inputs.last_mut().expect("a block is open"));
            }
            "content_block_stop" => {
                assert_eq!(open, index, "{event}");
                open = None;
            }
            "message_delta" => {
                assert_eq!(None, open);
                merge(&mut message, &event["delta"]);
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => assert!(std::ptr::eq(*event, *others.last().expect("not empty"))),
            other => panic!("{other}"),
        }
    }
    assert_eq!("message_stop", others.last().expect("a message stops")["type"]);
    for (block, input) in message["content"].as_array_mut().into_iter().flatten().zip(inputs) {
        if !input.is_empty() {
            let input = closed(&input);
            let object = object_of(&input).expect("pieces are an object");
            block["input"] = serde_json::from_str(object.get()).expect("an object is JSON");
        }
    }
    message
}

fn add(block: &mut Value, delta: &Value, input: &mut String) {
    let (kind, field, of) = match delta["type"].as_str().expect("a type") {
        "text_delta" => ("text", "text", "text"),
        "thinking_delta" => ("thinking", "thinking", "thinking"),
        "signature_delta" => ("thinking", "signature", "signature"),
        "input_json_delta" => {
            assert_eq!("tool_use", block["type"]);
            input.push_str(delta["partial_json"].as_str().expect("a text"));
            return;
        }
        other => panic!("{other}"),
    };
    assert_eq!(kind, block["type"]);
    let text = block[field].as_str().expect("a text").to_owned();
    block[field] = json!(text + delta[of].as_str().expect("a text"));
}

/// The message, which is the same whether it is streamed or not.
fn message(fields: &Value, deltas: &[Delta]) -> Value {
    let whole = answered(messages(fields), deltas).json();
    let mut stream = fields.clone();
    merge(&mut stream, &json!({"stream": true}));
    let events = seen(&answered(messages(&stream), deltas));
    assert_eq!(whole, put_together(&events));
    whole
}

#[test]
fn a_message_has_its_blocks_one_after_the_other() {
    let message = message(&json!({"thinking": {"type": "adaptive"}}), &everything());
    let expected = json!({
        "id": "msg_00000000000000000000000000000abc",
        "type": "message",
        "role": "assistant",
        "model": "alias",
        "content": [
            {"type": "thinking", "thinking": "Let me think.", "signature": ""},
            {"type": "text", "text": "It is \u{2603} \"cold\"."},
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "call_2", "name": "time", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": null,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4,
            "output_tokens": 17,
        },
    });
    assert_eq!(expected, message);
}

#[test]
fn the_start_has_the_tokens_of_the_prompt() {
    let events = seen(&answered(messages(&json!({"stream": true})), &everything()));
    let usage = &events[0]["message"]["usage"];
    assert_eq!(
        json!([5, 4, 0]),
        json!([usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"],])
    );
    assert_eq!("ping", events[1]["type"]);
}

#[test]
fn thinking_is_shown_as_it_was_asked_for() {
    for (thinking, expected) in [
        (json!(null), None),
        (json!({"type": "disabled"}), None),
        (json!({"type": "enabled", "budget_tokens": 1024}), Some("Let me think.")),
        (json!({"type": "adaptive", "display": "omitted"}), Some("")),
    ] {
        let fields = json!({"thinking": thinking});
        let content = message(&fields, &everything())["content"].clone();
        let thinking = content.as_array().unwrap().iter().find(|it| it["type"] == "thinking");
        assert_eq!(expected, thinking.map(|it| it["thinking"].as_str().unwrap()), "{fields}");
    }
}

#[test]
fn a_message_says_why_it_has_stopped() {
    let stop = json!({"stop_sequences": ["END", "***"]});
    let named = |name: &str| Delta { stop_sequence: name.into(), ..end(FinishReason::Stop) };
    let call = call(0, "", "f", "{\"a\": [1, {\"b\": \"c");
    let cut = json!([{"type": "tool_use", "id": "call_00000000000000000000000000000abd",
        "name": "f", "input": {"a": [1, {}]}}]);
    let said = |text: &str| json!([{"type": "text", "text": text}]);
    for (deltas, content, reason, sequence) in [
        (vec![text("a"), end(FinishReason::Stop)], said("a"), "end_turn", json!(null)),
        (vec![text("a"), end(FinishReason::Length)], said("a"), "max_tokens", json!(null)),
        (vec![text("a")], said("a"), "end_turn", json!(null)),
        (vec![], json!([]), "end_turn", json!(null)),
        (vec![text("a E"), text("ND b")], said("a "), "stop_sequence", json!("END")),
        (vec![text("a"), named("***")], said("a"), "stop_sequence", json!("***")),
        (vec![text("a"), named("<|end|>")], said("a"), "end_turn", json!(null)),
        (vec![text("a EN"), end(FinishReason::Stop)], said("a EN"), "end_turn", json!(null)),
        (vec![refusal("no"), end(FinishReason::Stop)], said("no"), "refusal", json!(null)),
        (vec![text("a"), end(FinishReason::ContentFilter)], said("a"), "refusal", json!(null)),
        (vec![text("a"), end(FinishReason::ToolCalls)], said("a"), "end_turn", json!(null)),
        (vec![call, end(FinishReason::Length)], cut, "max_tokens", json!(null)),
    ] {
        let message = message(&stop, &deltas);
        let actual = (&message["content"], &message["stop_reason"], &message["stop_sequence"]);
        assert_eq!((&content, &json!(reason), &sequence), actual, "{deltas:?}");
    }
}

#[test]
fn text_that_was_held_back_comes_before_what_is_no_text() {
    let deltas = [text("a EN"), call(0, "c", "f", "{}"), text("D"), end(FinishReason::Stop)];
    let content = message(&json!({"stop_sequences": ["END"]}), &deltas)["content"].clone();
    let expected = json!([
        {"type": "text", "text": "a EN"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        {"type": "text", "text": "D"},
    ]);
    assert_eq!(expected, content);
}

#[test]
fn the_engine_is_stopped_by_a_stop_sequence() {
    for is_stream in [false, true] {
        let fields = json!({"stop_sequences": ["END"], "stream": is_stream});
        let answered = answered(messages(&fields), &[text("a END"), text("b"), text("c")]);
        assert_eq!(1, answered.taken);
    }
}

#[test]
fn one_call_is_one_if_they_are_not_to_be_parallel() {
    let tools = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    let message = message(&json!({"tools": tools, "tool_choice": choice}), &everything());
    let names: Vec<&Value> =
        message["content"].as_array().unwrap().iter().map(|block| &block["name"]).collect();
    assert_eq!(vec![&json!(null), &json!("weather")], names);
}

#[test]
fn errors_are_in_anthropics_shape() {
    let expected = json!({
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the engine is gone"},
        "request_id": "req_00000000000000000000000000000abc",
    });
    for is_stream in [false, true] {
        let answered = answer::<Delta>(messages(&json!({"stream": is_stream})), &[], &broken());
        assert_eq!((503, expected.clone()), (answered.status.as_u16(), answered.json()));
    }
    let deltas = [usage(1, 0), text("a")];
    let answered = answer(messages(&json!({"stream": true})), &deltas, &broken());
    assert_eq!(Some(&expected), seen(&answered).last());
}

#[test]
fn arguments_that_are_no_object_are_an_error() {
    for arguments in ["{\"a\": ", "[]", "{'a': 1}", "7"] {
        let deltas = [call(0, "", "f", arguments), end(FinishReason::ToolCalls)];
        let whole = answered(messages(&json!({})), &deltas);
        assert_eq!(500, whole.status.as_u16(), "{arguments}");
        let events = seen(&answered(messages(&json!({"stream": true})), &deltas));
        assert_eq!("error", events.last().unwrap()["type"], "{arguments}");
        assert_eq!(whole.json()["error"], events.last().unwrap()["error"]);
    }
}

#[test]
fn a_stream_that_waits_says_so() {
    let mut opened = messages(&json!({"stream": true}));
    let mut output = Output::default();
    opened.answer.keep_alive(&mut output);
    assert_eq!(b": waiting\n\n", &*output.body);
    assert_eq!(200, output.head.as_ref().unwrap().status.as_u16());
    opened.answer.message(&text("a").encode_to_vec(), &mut output).unwrap();
    output.body.clear();
    opened.answer.keep_alive(&mut output);
    assert_eq!(b"event: ping\ndata: {\"type\":\"ping\"}\n\n", &*output.body);
    output.body.clear();
    opened.answer.fail(&broken().unwrap_err(), &HeaderMap::new(), &mut output);
    let body = String::from_utf8(output.body.to_vec()).unwrap();
    assert_eq!(vec!["error"], types(&named_events(&body)));

    let mut opened = messages(&json!({}));
    let mut output = Output::default();
    opened.answer.keep_alive(&mut output);
    assert!(output.head.is_none() && output.body.is_empty());
}

#[test]
fn tokens_are_counted() {
    let body = json!({"model": "alias", "messages": [{"role": "user", "content": "hello"}]});
    let opened = open(Door::CountTokens, &body).unwrap();
    assert_eq!("/pyserve.llm.v1.Engine/Tokenize", opened.path);
    let tokens = TokenizeResponse { token_ids: vec![5, 6, 7], ..TokenizeResponse::default() };
    assert_eq!(json!({"input_tokens": 3}), answer(opened, &[tokens], &Ok(())).json());

    let opened = open(Door::CountTokens, &body).unwrap();
    let error = answer::<Delta>(opened, &[], &broken()).json();
    assert_eq!("overloaded_error", error["error"]["type"]);
}

#[test]
fn every_answer_names_its_request() {
    let count = json!({"model": "alias", "messages": [{"role": "user", "content": "hello"}]});
    for (opened, messages) in [
        (messages(&json!({})), &[][..]),
        (messages(&json!({"stream": true})), &[]),
        (open(Door::CountTokens, &count).unwrap(), &[TokenizeResponse::default()]),
        // This one is an error.
        (open(Door::CountTokens, &count).unwrap(), &[]),
    ] {
        let answered = answer(opened, messages, &Ok(()));
        assert_eq!("req_00000000000000000000000000000abc", answered.headers["request-id"]);
    }
}
