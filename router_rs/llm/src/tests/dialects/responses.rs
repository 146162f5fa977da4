use super::*;

/// The response at the end of a stream, whose events are checked.
pub(super) fn put_together(events: &[Value]) -> Value {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(json!(number), event["sequence_number"], "{event}");
    }
    assert_eq!(["response.created", "response.in_progress"], types(&events[..2])[..]);
    let (last, others) = events[2..].split_last().expect("a response ends");
    let mut items: Vec<Value> = Vec::new();
    let mut open: Option<Open> = None;
    for event in others {
        if event["type"] == "response.output_item.added" {
            assert!(open.is_none(), "{event}");
            assert_eq!(json!(items.len()), event["output_index"], "{event}");
            assert_eq!("in_progress", event["item"]["status"]);
            open = Some(Open::new(event));
        } else {
            let it = open.as_mut().expect("an item is open");
            if it.follow(event) {
                items.push(event["item"].clone());
                open = None;
            }
        }
    }
    assert!(open.is_none());
    assert_eq!(&json!(items), &last["response"]["output"]);
    last["response"].clone()
}

/// An item that has been added.
struct Open {
    item: Value,
    output_index: Value,
    delta: String,
    part: Option<Value>,
    has_text: bool,
}

impl Open {
    fn new(event: &Value) -> Self {
        let (item, output_index) = (event["item"].clone(), event["output_index"].clone());
        Self { item, output_index, delta: String::new(), part: None, has_text: false }
    }

    /// Returns whether the item is done.
    fn follow(&mut self, event: &Value) -> bool {
        assert_eq!(self.output_index, event["output_index"], "{event}");
        let kind = event["type"].as_str().expect("a type");
        if kind == "response.output_item.done" {
            self.check_done(&event["item"]);
            return true;
        }
        assert_eq!(self.item["id"], event["item_id"], "{event}");
        if event.get("delta").is_some() {
            self.delta.push_str(event["delta"].as_str().expect("a text"));
        } else if kind == "response.content_part.done" {
            self.part = Some(event["part"].clone());
        } else if kind != "response.content_part.added" {
            let field = ["text", "refusal", "arguments"].iter().find(|it| event.get(it).is_some());
            assert_eq!(json!(self.delta), event[*field.expect("a text that is done")]);
            self.has_text = true;
        }
        false
    }

    fn check_done(&self, item: &Value) {
        assert!(self.has_text);
        assert_eq!((&self.item["id"], &self.item["type"]), (&item["id"], &item["type"]));
        match item["type"].as_str().expect("a type") {
            "function_call" => {
                assert_eq!(json!(self.delta), item["arguments"]);
                assert_eq!(self.item["name"], item["name"]);
                assert_eq!(self.item["call_id"], item["call_id"]);
            }
            "message" | "reasoning" => {
                assert_eq!(json!([self.part.as_ref().expect("a part")]), item["content"]);
            }
            other => panic!("{other}"),
        }
    }
}

/// The response, which is the same whether it is streamed or not.
fn response(fields: &Value, deltas: &[Delta]) -> Value {
    let whole = answered(responses(fields), deltas).json();
    let mut stream = fields.clone();
    merge(&mut stream, &json!({"stream": true}));
    let events = seen(&answered(responses(&stream), deltas));
    assert_eq!(whole, put_together(&events));
    whole
}

#[test]
fn a_response_has_all_its_fields() {
    let fields = json!({
        "instructions": "Be brief.", "temperature": 0.5, "metadata": {"a": "b"}, "store": true,
        "max_output_tokens": 99, "user": "u", "reasoning": {"effort": "low"},
    });
    let id = |kind: &str, index: u32| format!("{kind}_{ID:032x}{index:03x}");
    let expected = json!({
        "id": "resp_00000000000000000000000000000abc",
        "object": "response",
        "created_at": 7,
        "status": "completed",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "max_tool_calls": null,
        "metadata": {"a": "b"},
        "model": "alias",
        "output": [
            {"type": "reasoning", "id": id("rs", 0), "status": "completed", "summary": [],
                "content": [{"type": "reasoning_text", "text": "Let me think."}]},
            {"type": "message", "id": id("msg", 1), "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "It is \u{2603} \"cold\".",
                    "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": id("fc", 2), "status": "completed",
                "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"},
            {"type": "function_call", "id": id("fc", 3), "status": "completed",
                "call_id": "call_2", "name": "time", "arguments": "{}"},
        ],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": "low"},
        "safety_identifier": null,
        "service_tier": "default",
        "store": false,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": null,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 17,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 26,
        },
        "user": "u",
    });
    assert_eq!(expected, response(&fields, &everything()));
}

#[test]
fn the_life_of_each_item_is_told() {
    let deltas = [text("a"), text("b"), call(0, "c", "f", ""), end(FinishReason::Stop)];
    let events = seen(&answered(responses(&json!({"stream": true})), &deltas));
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(expected, *types(&events));
    assert_eq!(json!("{}"), events[10]["delta"]);
    let response = &events[0]["response"];
    assert_eq!(
        json!(["in_progress", [], null]),
        json!([response["status"], response["output"], response["usage"],])
    );
}

#[test]
fn a_response_says_why_it_is_incomplete() {
    for (deltas, status, reason, items) in [
        (vec![text("a"), end(FinishReason::Stop)], "completed", json!(null), vec!["completed"]),
        (vec![text("a")], "completed", json!(null), vec!["completed"]),
        (vec![], "completed", json!(null), vec![]),
        (
            vec![reasoning("r"), text("a"), end(FinishReason::Length)],
            "incomplete",
            json!({"reason": "max_output_tokens"}),
            vec!["completed", "incomplete"],
        ),
        (
            vec![call(0, "", "f", "{\"a"), end(FinishReason::Length)],
            "incomplete",
            json!({"reason": "max_output_tokens"}),
            vec!["incomplete"],
        ),
        (
            vec![refusal("no"), end(FinishReason::ContentFilter)],
            "incomplete",
            json!({"reason": "content_filter"}),
            vec!["incomplete"],
        ),
    ] {
        let response = response(&json!({}), &deltas);
        assert_eq!(status, response["status"]);
        assert_eq!(reason, response["incomplete_details"]);
        let output = response["output"].as_array().unwrap();
        assert_eq!(
            items,
            output.iter().map(|it| it["status"].as_str().unwrap()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn logprobs_are_there_if_they_were_asked_for() {
    let deltas = [
        Delta { logprobs: vec![token("a", -0.5, &[("b", -1.5)])], ..text("a") },
        Delta { logprobs: vec![token("c", f32::NEG_INFINITY, &[])], ..text("c") },
    ];
    let fields = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 1});
    let logprobs = response(&fields, &deltas)["output"][0]["content"][0]["logprobs"].clone();
    let expected = json!([
        {"token": "a", "bytes": [97], "logprob": -0.5,
            "top_logprobs": [{"token": "b", "bytes": [98], "logprob": -1.5}]},
        {"token": "c", "bytes": [99], "logprob": -9999.0, "top_logprobs": []},
    ]);
    assert_eq!(expected, logprobs);
    let logprobs = response(&json!({}), &deltas)["output"][0]["content"][0]["logprobs"].clone();
    assert_eq!(json!([]), logprobs);

    let mut stream = fields;
    merge(&mut stream, &json!({"stream": true}));
    let events = seen(&answered(responses(&stream), &deltas));
    let event = events.iter().find(|event| event["type"] == "response.output_text.delta").unwrap();
    let top = json!([{"token": "b", "logprob": -1.5}]);
    assert_eq!(json!([{"token": "a", "logprob": -0.5, "top_logprobs": top}]), event["logprobs"]);
}

#[test]
fn errors_are_in_openais_shape() {
    for is_stream in [false, true] {
        let answered = answer::<Delta>(responses(&json!({"stream": is_stream})), &[], &broken());
        assert_eq!((503, json!("the engine is gone")), {
            let (status, error) = answered.error();
            (status, error["message"].clone())
        });
    }
    let deltas = [text("a"), call(0, "c", "f", "{")];
    let answered = answer(responses(&json!({"stream": true})), &deltas, &broken());
    let events = seen(&answered);
    let [.., error, failed] = &*events else { panic!("two events") };
    let number = events.len() - 2;
    let expected = json!({
        "type": "error", "sequence_number": number, "code": "server_error",
        "message": "the engine is gone", "param": null,
    });
    assert_eq!(&expected, error);
    assert_eq!("response.failed", failed["type"]);
    let response = &failed["response"];
    assert_eq!("failed", response["status"]);
    let expected = json!({"code": "server_error", "message": "the engine is gone"});
    assert_eq!(expected, response["error"]);
    let statuses = [&response["output"][0]["status"], &response["output"][1]["status"]];
    assert_eq!([&json!("completed"), &json!("incomplete")], statuses);
}

#[test]
fn a_stream_that_waits_says_so() {
    let mut opened = responses(&json!({"stream": true}));
    let mut output = Output::default();
    opened.answer.keep_alive(&mut output);
    opened.answer.keep_alive(&mut output);
    assert_eq!(b": waiting\n\n: waiting\n\n", &*output.body);
    opened.answer.fail(&broken().unwrap_err(), &HeaderMap::new(), &mut output);
    let events = String::from_utf8(output.body.to_vec()).unwrap();
    let expected = ["response.created", "response.in_progress", "error", "response.failed"];
    assert_eq!(expected, *types(&named_events(&events)));
}

#[test]
fn a_request_on_several_lines_is_repeated_on_one() {
    let body = Bytes::from_static(
        b"{\"input\": \"a\", \"stream\": true, \"metadata\": {\n  \"a\":\r\n \"b\\n\"\n}}",
    );
    let opened = Door::Responses.read(&HeaderMap::new(), &body).unwrap().open(resolved());
    let events = seen(&answered(opened, &[text("a")]));
    assert_eq!(json!({"a": "b\n"}), events[0]["response"]["metadata"]);
}
