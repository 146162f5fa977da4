//! Answers of chats.

use super::*;

fn stream(fields: &Value) -> Opened {
    let mut body = json!({"stream": true});
    merge(&mut body, fields);
    chat(&body)
}

/// The `choices` of an event with one.
fn choice(event: &Value) -> &Value {
    assert_eq!(Some(1), event["choices"].as_array().map(Vec::len), "{event}");
    &event["choices"][0]
}

/// Index, delta and reason of each event that has a choice.
fn chunks(events: &[Value]) -> Vec<Value> {
    let chunk = |event: &Value| {
        let choice = choice(event);
        json!([choice["index"], choice["delta"], choice["finish_reason"]])
    };
    events.iter().filter(|event| event["choices"] != json!([])).map(chunk).collect()
}

#[test]
fn a_stream_is_as_the_document_has_it() {
    let deltas = [usage(3, 0), text("Hel"), text("lo"), end(FinishReason::Stop), usage(3, 2)];
    let answered = answered(stream(&json!({})), &deltas);
    assert_eq!(200, answered.status.as_u16());
    assert_eq!("no-cache", answered.headers["cache-control"]);
    assert_eq!("no", answered.headers["x-accel-buffering"]);
    let event = |delta: Value, reason: Value| {
        json!({
            "id": "chatcmpl-00000000000000000000000000000abc", "object": "chat.completion.chunk",
            "created": 7, "model": "alias",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}],
        })
    };
    let expected = [
        event(json!({"role": "assistant", "content": ""}), json!(null)),
        event(json!({"content": "Hel"}), json!(null)),
        event(json!({"content": "lo"}), json!(null)),
        event(json!({}), json!("stop")),
    ];
    assert_eq!(expected.to_vec(), answered.events());
}

#[test]
fn an_answer_that_is_not_streamed_is_one_object() {
    let deltas = [text("Hel"), text("lo"), end(FinishReason::Length), usage(3, 2)];
    let expected = json!({
        "id": "chatcmpl-00000000000000000000000000000abc", "object": "chat.completion",
        "created": 7, "model": "alias",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": null},
            "logprobs": null, "finish_reason": "length",
        }],
        "usage": {
            "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    });
    assert_eq!(expected, answered(chat(&json!({})), &deltas).json());
}

#[test]
fn each_choice_has_one_role_and_one_reason() {
    let of = |index, delta: Delta| Delta { index, ..delta };
    let deltas = [
        of(1, text("b")),
        of(0, text("a")),
        of(1, end(FinishReason::Length)),
        // What an engine adds to a choice that has ended is not for the client.
        of(1, text("late")),
        of(1, end(FinishReason::Stop)),
        of(0, text("a")),
        of(0, end(FinishReason::Stop)),
    ];
    let events = answered(stream(&json!({"n": 2})), &deltas).events();
    let role = json!({"role": "assistant", "content": ""});
    let expected = [
        json!([1, role, null]),
        json!([1, {"content": "b"}, null]),
        json!([0, role, null]),
        json!([0, {"content": "a"}, null]),
        json!([1, {}, "length"]),
        json!([0, {"content": "a"}, null]),
        json!([0, {}, "stop"]),
    ];
    assert_eq!(expected.to_vec(), chunks(&events));
}

#[test]
fn usage_is_told_once_if_it_was_asked_for() {
    let deltas = [usage(3, 0), text("a"), usage(3, 1), end(FinishReason::Stop), usage(3, 2)];
    let asked = json!({"stream_options": {"include_usage": true}});
    let events = answered(stream(&asked), &deltas).events();
    let (last, others) = events.split_last().unwrap();
    assert_eq!((&json!([]), &json!(5)), (&last["choices"], &last["usage"]["total_tokens"]));
    assert!(others.iter().all(|event| event.get("usage") == Some(&Value::Null)), "{others:?}");
    let events = answered(stream(&json!({})), &deltas).events();
    assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");
    let asked = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let events = answered(stream(&asked), &deltas).events();
    let counts: Vec<&Value> = events.iter().map(|it| &it["usage"]["completion_tokens"]).collect();
    assert_eq!([0, 0, 1, 2].map(|count| json!(count)).iter().collect::<Vec<_>>(), counts);
}

#[test]
fn tokens_are_counted_if_the_engine_does_not() {
    let deltas = [
        Delta { token_ids: vec![5, 6], ..text("ab") },
        Delta { token_ids: vec![7], ..end(FinishReason::Stop) },
    ];
    let usage = &answered(chat(&json!({})), &deltas).json()["usage"];
    assert_eq!(json!(3), usage["completion_tokens"]);
}

#[test]
fn an_engine_that_gives_no_reason_has_stopped() {
    let reason = |deltas: &[Delta]| {
        let events = answered(stream(&json!({})), deltas).events();
        choice(events.last().unwrap())["finish_reason"].clone()
    };
    assert_eq!("stop", reason(&[text("a")]));
    assert_eq!("stop", reason(&[]));
    assert_eq!("tool_calls", reason(&[call(0, "c", "f", "{}")]));
    assert_eq!("stop", reason(&[end(FinishReason::ToolCalls)]));
    assert_eq!("stop", reason(&[Delta { finish_reason: 99, ..Delta::default() }]));
    assert_eq!("content_filter", reason(&[end(FinishReason::ContentFilter)]));
}

#[test]
fn a_tool_call_has_its_name_once_and_arguments_in_pieces() {
    let deltas = [
        call(3, "one", "f", "{\"a\""),
        call(3, "one", "f", ":1}"),
        call(5, "", "", "{\"b"),
        call(5, "", "g", "\":2}"),
        call(7, "", "h", ""),
        end(FinishReason::Stop),
    ];
    let events = answered(stream(&json!({})), &deltas).events();
    let begin = |index, id: &str, name: &str| {
        let function = json!({"name": name, "arguments": ""});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        json!([0, {"tool_calls": [call]}, null])
    };
    let piece = |index, arguments: &str| {
        let call = json!({"index": index, "function": {"arguments": arguments}});
        json!([0, {"tool_calls": [call]}, null])
    };
    let expected = [
        json!([0, {"role": "assistant", "content": null}, null]),
        begin(0, "one", "f"),
        piece(0, "{\"a\""),
        piece(0, ":1}"),
        begin(1, "call_00000000000000000000000000000abe", "g"),
        piece(1, "{\"b"),
        piece(1, "\":2}"),
        begin(2, "call_00000000000000000000000000000abf", "h"),
        piece(2, "{}"),
        json!([0, {}, "tool_calls"]),
    ];
    assert_eq!(expected.to_vec(), chunks(&events));
    let whole = answered(chat(&json!({})), &deltas).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(Value::Null, message["content"]);
    let function = json!({"name": "g", "arguments": "{\"b\":2}"});
    let id = "call_00000000000000000000000000000abe";
    let second = json!({"id": id, "type": "function", "function": function});
    assert_eq!(
        (3, &second),
        (message["tool_calls"].as_array().unwrap().len(), &message["tool_calls"][1])
    );
    assert_eq!("tool_calls", whole["choices"][0]["finish_reason"]);
}

#[test]
fn one_call_is_one_if_they_are_not_to_be_parallel() {
    let deltas = [call(0, "a", "f", "{}"), call(1, "b", "g", "{}"), call(1, "", "", "{}")];
    let one = chat(&json!({"parallel_tool_calls": false}));
    let calls = &answered(one, &deltas).json()["choices"][0]["message"]["tool_calls"];
    assert_eq!(Some(1), calls.as_array().map(Vec::len));
}

#[test]
fn calls_that_make_no_sense_are_errors_of_the_engine() {
    let many: Vec<Delta> = (0..513).map(|index| call(index, "", "f", "{}")).collect();
    let unnamed = vec![call(0, "a", "", &"x".repeat(1 << 19)); 3];
    for (deltas, expected) in [
        (vec![call(0, "a", "", "{}")], "the engine has not named the tool of call 0"),
        (many, "the engine has made more than 512 tool calls in a choice"),
        (
            unnamed,
            "the engine has sent more than 1048576 bytes of arguments before the name of their tool",
        ),
    ] {
        let (status, error) = answered(chat(&json!({})), &deltas).error();
        assert_eq!((500, expected), (status, error["message"].as_str().unwrap()));
    }
    // An answer that was cut off may end anywhere.
    let cut = [call(0, "a", "f", "{\"a"), call(1, "b", "", ""), end(FinishReason::Length)];
    let calls = &answered(chat(&json!({})), &cut).json()["choices"][0]["message"]["tool_calls"];
    assert_eq!("{\"a", calls[0]["function"]["arguments"]);
}

#[test]
fn a_stop_sequence_ends_the_answer_and_the_engine() {
    let deltas = [usage(3, 1), text("one E"), text("ND two"), text("three")];
    for is_stream in [false, true] {
        let opened = chat(&json!({"stream": is_stream, "stop": ["END"]}));
        assert_eq!(["END"], *generate(&opened).stop);
        let answered = answered(opened, &deltas);
        assert_eq!(3, answered.taken);
        if is_stream {
            let role = json!({"role": "assistant", "content": ""});
            let expected = [
                json!([0, role, null]),
                json!([0, {"content": "one "}, null]),
                json!([0, {}, "stop"]),
            ];
            assert_eq!(expected.to_vec(), chunks(&answered.events()));
        } else {
            assert_eq!("one ", answered.json()["choices"][0]["message"]["content"]);
        }
    }
}

#[test]
fn the_engine_goes_on_while_a_choice_does() {
    let of = |index, delta: Delta| Delta { index, ..delta };
    let deltas = [
        of(0, text("aEND")),
        of(1, text("b")),
        of(0, text("more")),
        of(1, end(FinishReason::Stop)),
        of(0, text("more")),
    ];
    let answered = answered(chat(&json!({"stop": "END", "n": 2})), &deltas);
    assert_eq!(4, answered.taken);
    let choices = &answered.json()["choices"];
    assert_eq!(("a", "b"), {
        let content = |index: usize| choices[index]["message"]["content"].as_str().unwrap();
        (content(0), content(1))
    });
}

#[test]
fn an_engine_that_stops_by_itself_may_still_say_what_it_has_cost() {
    let deltas =
        [text("a"), Delta { stop_sequence: "END".into(), ..end(FinishReason::Stop) }, usage(1, 2)];
    let answered = answered(chat(&json!({"stop": "END"})), &deltas);
    assert_eq!(json!(3), answered.json()["usage"]["total_tokens"]);
}

#[test]
fn characters_are_whole() {
    let bytes =
        |bytes: &'static [u8]| Delta { text_bytes: Bytes::from_static(bytes), ..Delta::default() };
    let deltas =
        [bytes(b"\xf0\x9f"), bytes(b"\x98"), bytes(b"\x88!\xc3"), end(FinishReason::Length)];
    let events = answered(stream(&json!({})), &deltas).events();
    let texts: Vec<&str> =
        events.iter().filter_map(|event| choice(event)["delta"]["content"].as_str()).collect();
    assert_eq!(["", "\u{1f608}!", "\u{fffd}"].to_vec(), texts);
}

#[test]
fn logprobs_have_their_own_alternatives_if_they_were_asked_for() {
    let logprobs = vec![token("a", -0.5, &[("a", -0.5), ("b", -1.0), ("c", -2.0)])];
    let deltas = [Delta { logprobs, ..text("a") }, end(FinishReason::Stop)];
    let entry = |text: &str, logprob: f32| json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()});
    let mut expected = entry("a", -0.5);
    merge(&mut expected, &json!({"top_logprobs": [entry("a", -0.5), entry("b", -1.0)]}));
    let expected = json!({"content": [expected], "refusal": null});
    let asked = json!({"logprobs": true, "top_logprobs": 2});
    let opened = chat(&asked);
    let request = generate(&opened);
    assert_eq!((true, 2), (request.logprobs, request.top_logprobs));
    assert_eq!(expected, answered(opened, &deltas).json()["choices"][0]["logprobs"]);
    let events = answered(stream(&asked), &deltas).events();
    assert_eq!(expected, choice(&events[1])["logprobs"]);
    assert_eq!(Value::Null, choice(&events[2])["logprobs"]);
    for opened in [chat(&json!({})), stream(&json!({}))] {
        assert!(!answered(opened, &deltas).body.contains("top_logprobs"));
    }
    let none = answered(chat(&json!({"logprobs": true})), &deltas).json();
    assert_eq!(json!([]), none["choices"][0]["logprobs"]["content"][0]["top_logprobs"]);
}

#[test]
fn the_logprobs_of_held_text_are_held_too() {
    let of = |piece: &str| Delta { logprobs: vec![token(piece, -1.0, &[])], ..text(piece) };
    let tokens = |deltas: &[Delta]| {
        let opened = chat(&json!({"stop": "END", "logprobs": true}));
        let json = answered(opened, deltas).json();
        let tokens = json["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
        tokens.iter().map(|token| token["token"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(["a"].to_vec(), tokens(&[of("a"), of("E"), of("ND")]));
    assert_eq!(["a", "E", "NX"].to_vec(), tokens(&[of("a"), of("E"), of("NX")]));
    assert_eq!(["a", "E"].to_vec(), tokens(&[of("a"), of("E")]));
}

#[test]
fn reasoning_has_both_of_its_names() {
    let deltas = [
        Delta { reasoning: "hm".into(), ..Delta::default() },
        Delta { reasoning: ".".into(), ..text("yes") },
        Delta { refusal: "no".into(), ..Delta::default() },
    ];
    let expected = [
        json!([0, {"role": "assistant", "content": null}, null]),
        json!([0, {"reasoning_content": "hm", "reasoning": "hm"}, null]),
        json!([0, {"reasoning_content": ".", "reasoning": "."}, null]),
        json!([0, {"content": "yes"}, null]),
        json!([0, {"refusal": "no"}, null]),
        json!([0, {}, "stop"]),
    ];
    assert_eq!(expected.to_vec(), chunks(&answered(stream(&json!({})), &deltas).events()));
    let message = answered(chat(&json!({})), &deltas).json()["choices"][0]["message"].clone();
    let expected = json!({
        "role": "assistant", "content": "yes", "refusal": "no",
        "reasoning_content": "hm.", "reasoning": "hm.",
    });
    assert_eq!(expected, message);
}

#[test]
fn an_error_before_the_first_token_is_a_status() {
    for is_stream in [false, true] {
        let opened = chat(&json!({"stream": is_stream}));
        let (status, error) = answer(opened, &[usage(3, 0)], &broken()).error();
        assert_eq!((503, json!("server_error")), (status, error["type"].clone()));
        assert_eq!("the engine is gone", error["message"]);
    }
}

#[test]
fn an_error_in_mid_stream_is_an_event_and_the_end() {
    let events = answer(stream(&json!({})), &[text("a")], &broken()).events();
    assert_eq!("the engine is gone", events.last().unwrap()["error"]["message"]);
    assert_eq!(3, events.len());
    let (status, _) = answer(chat(&json!({})), &[text("a")], &broken()).error();
    assert_eq!(503, status);
}

#[test]
fn an_engine_that_answers_nonsense_is_told_of() {
    for (messages, expected) in [
        (
            vec![Delta { index: 2, ..text("a") }],
            "the engine has answered with choice 2; asked for were 2",
        ),
        (vec![text("a")], "the engine has ended without choice 1; asked for were 2"),
    ] {
        let (status, error) = answered(chat(&json!({"n": 2})), &messages).error();
        assert_eq!((500, expected), (status, error["message"].as_str().unwrap()));
    }
    let mut opened = chat(&json!({}));
    let status = opened.answer.message(b"\xff", &mut Output::default()).unwrap_err();
    assert!(status.message.starts_with("the engine's answer cannot be read"), "{status:?}");
}

#[test]
fn a_stream_says_that_it_is_alive() {
    let mut output = Output::default();
    let mut opened = stream(&json!({}));
    opened.answer.keep_alive(&mut output);
    assert_eq!(200, output.head.take().unwrap().status.as_u16());
    assert_eq!(": waiting\n\n", output.body);
    output.body.clear();
    opened.answer.fail(&broken().unwrap_err(), &HeaderMap::new(), &mut output);
    assert!(output.head.is_none() && output.is_ended);
    let body = String::from_utf8(output.body.to_vec()).unwrap();
    assert_eq!(Some("[DONE]"), events(&body).pop());
    let mut output = Output::default();
    chat(&json!({})).answer.keep_alive(&mut output);
    assert!(output.head.is_none() && output.body.is_empty());
}
