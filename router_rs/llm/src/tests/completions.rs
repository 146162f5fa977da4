//! Completions of texts.

use super::*;
use crate::messages::{GenerateInput, Prompt, PromptInput, Prompts};

fn completion(fields: &Value) -> Opened {
    let mut body = json!({"prompt": "once"});
    merge(&mut body, fields);
    open(Door::Completions, &body).expect("a request that is right")
}

#[test]
fn a_request_has_prompts_and_its_own_limit() {
    let request = generate(&completion(&json!({"suffix": "end", "logprobs": 0})));
    let prompt = Prompt { prompt: Some(PromptInput::Text("once".into())) };
    let prompts = Prompts { prompts: vec![prompt], suffix: "end".into() };
    assert_eq!(Some(GenerateInput::Prompts(prompts)), request.input);
    assert_eq!((16, true, 0), (request.max_tokens, request.logprobs, request.top_logprobs));
    let request = generate(&completion(&json!({"max_tokens": 3, "best_of": 2, "n": 2})));
    assert_eq!((3, 2, false), (request.max_tokens, request.n, request.logprobs));
}

#[test]
fn wrong_fields_are_told_by_name() {
    for (fields, param) in [
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": 7}), "prompt"),
        (json!({"prompt": ["a", 7]}), "prompt[1]"),
        (json!({"prompt": vec!["a"; 1025], "n": 2}), "prompt"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"echo": true, "logprobs": 1}), "echo"),
        (json!({"echo": true, "prompt": [1, 2]}), "echo"),
        (json!({"suffix": 1}), "suffix"),
        (json!({"max_tokens": 0}), "max_tokens"),
    ] {
        let mut body = json!({"prompt": "once"});
        merge(&mut body, &fields);
        let error = open(Door::Completions, &body).expect_err("a request that is wrong");
        assert_eq!((400, Some(param)), (error.status.as_u16(), error.param.as_deref()), "{fields}");
    }
}

#[test]
fn events_and_the_object_are_of_one_kind() {
    let deltas = [text(" upon"), text(" a"), end(FinishReason::Length), usage(1, 2)];
    let event = |text: &str, reason: Value| {
        json!({
            "id": "cmpl-00000000000000000000000000000abc", "object": "text_completion",
            "created": 7, "model": "alias",
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}],
        })
    };
    let expected =
        [event(" upon", json!(null)), event(" a", json!(null)), event("", json!("length"))];
    let stream = completion(&json!({"stream": true}));
    assert_eq!(expected.to_vec(), answered(stream, &deltas).events());
    let whole = answered(completion(&json!({})), &deltas).json();
    let mut expected = event(" upon a", json!("length"));
    merge(&mut expected, &json!({"usage": whole["usage"]}));
    assert_eq!((expected, json!(3)), (whole.clone(), whole["usage"]["total_tokens"].clone()));
    let stream = completion(&json!({"stream": true, "stream_options": {"include_usage": true}}));
    let events = answered(stream, &deltas).events();
    assert_eq!((&json!([]), &whole["usage"]), {
        let last = events.last().unwrap();
        (&last["choices"], &last["usage"])
    });
}

#[test]
fn prompts_are_repeated_before_their_choices() {
    let of = |index, piece: &str| Delta { index, ..text(piece) };
    let deltas = [of(0, "0"), of(3, "3"), of(2, "2"), of(1, "1")];
    let fields = json!({"prompt": ["a", "b"], "n": 2, "echo": true});
    let whole = answered(completion(&fields), &deltas).json();
    let texts: Vec<&Value> =
        whole["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]).collect();
    assert_eq!(["a0", "a1", "b2", "b3"].to_vec(), texts);
    let mut fields = fields;
    merge(&mut fields, &json!({"stream": true}));
    let events = answered(completion(&fields), &deltas).events();
    let text_of = |index: usize| {
        let choices = events.iter().map(|event| &event["choices"][0]);
        let own = choices.filter(|choice| choice["index"] == index);
        own.map(|choice| choice["text"].as_str().unwrap()).collect::<String>()
    };
    assert_eq!(["a0", "a1", "b2", "b3"], [0, 1, 2, 3].map(text_of).each_ref().map(|it| &**it));
}

#[test]
fn logprobs_are_four_lists() {
    let deltas = [
        Delta { logprobs: vec![token("é", -0.5, &[("é", -0.5), ("b", -1.0)])], ..text("é") },
        Delta { logprobs: vec![token("c", -3.0, &[("d", -0.5), ("e", -1.0)])], ..text("c") },
        end(FinishReason::Stop),
    ];
    let expected = json!({
        "text_offset": [0, 1], "token_logprobs": [-0.5, -3.0], "tokens": ["é", "c"],
        "top_logprobs": [{"é": -0.5}, {"d": -0.5, "c": -3.0}],
    });
    let whole = answered(completion(&json!({"logprobs": 1})), &deltas).json();
    assert_eq!(expected, whole["choices"][0]["logprobs"]);
    let events = answered(completion(&json!({"logprobs": 1, "stream": true})), &deltas).events();
    let second = json!({
        "text_offset": [1], "token_logprobs": [-3.0], "tokens": ["c"],
        "top_logprobs": [{"d": -0.5, "c": -3.0}],
    });
    assert_eq!(second, events[1]["choices"][0]["logprobs"]);
    let whole = answered(completion(&json!({"logprobs": 0})), &deltas).json();
    assert_eq!(json!([{"é": -0.5}, {"c": -3.0}]), whole["choices"][0]["logprobs"]["top_logprobs"]);
    let whole = answered(completion(&json!({})), &deltas).json();
    assert_eq!(Value::Null, whole["choices"][0]["logprobs"]);
}

#[test]
fn a_completion_calls_no_tools() {
    let deltas = [text("a"), call(0, "c", "f", "{}"), end(FinishReason::ToolCalls)];
    let choice = answered(completion(&json!({})), &deltas).json()["choices"][0].clone();
    assert_eq!(("a", "stop"), {
        (choice["text"].as_str().unwrap(), choice["finish_reason"].as_str().unwrap())
    });
}

#[test]
fn an_error_in_mid_stream_is_an_event_and_the_end() {
    let opened = completion(&json!({"stream": true}));
    let events = answer(opened, &[text("a")], &broken()).events();
    assert_eq!("the engine is gone", events.last().unwrap()["error"]["message"]);
}
