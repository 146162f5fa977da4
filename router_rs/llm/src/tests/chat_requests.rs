//! Requests for chats.

use super::*;
use crate::messages::{
    Chat, ChatMessage, ContentPart, GenerateInput, Kind, Mode, Part, ResponseFormat, Tool,
    ToolCall, ToolChoice,
};

fn of(request: GenerateRequest) -> Chat {
    match request.input {
        Some(GenerateInput::Chat(chat)) => chat,
        other => panic!("no chat: {other:?}"),
    }
}

fn part(text: &str) -> ContentPart {
    ContentPart { part: Some(Part::Text(text.into())) }
}

/// The engine's form of one message.
fn message(message: &Value) -> Result<ChatMessage, ApiError> {
    let opened = open(Door::ChatCompletions, &json!({"messages": [message]}))?;
    Ok(of(generate(&opened)).messages.remove(0))
}

/// The status and the field of a request's error.
fn refused(body: &Value) -> (u16, String) {
    let error = open(Door::ChatCompletions, body).expect_err("a request that is wrong");
    (error.status.as_u16(), error.param.unwrap_or_default())
}

#[test]
fn names_are_the_clients_in_the_answer_and_the_engines_in_the_call() {
    let opened = chat(&json!({"model": "alias"}));
    let request = generate(&opened);
    assert_eq!("m:adapter", request.model);
    assert_eq!("chatcmpl-00000000000000000000000000000abc", request.request_id);
    assert_eq!("alias", answered(opened, &[text("a")]).json()["model"]);
    let read = |body: Value| {
        let body = Bytes::from(body.to_string());
        Door::ChatCompletions.read(&HeaderMap::new(), &body).unwrap()
    };
    let messages = json!([{"role": "user", "content": "a"}]);
    let request = read(json!({"model": "m", "stream": true, "messages": messages}));
    assert_eq!((Some("m"), true), (request.model(), request.is_stream()));
    let request = read(json!({"messages": messages}));
    assert_eq!((None, false), (request.model(), request.is_stream()));
}

#[test]
fn content_may_be_text_or_parts_or_nothing() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let picture = ContentPart { part: Some(Part::Json(image.to_string())) };
    for (fields, expected) in [
        (json!({"role": "user", "content": "a"}), vec![part("a")]),
        (json!({"role": "developer", "content": ""}), vec![part("")]),
        (json!({"role": "assistant", "content": null}), vec![]),
        (json!({"role": "assistant"}), vec![]),
        (json!({"role": "assistant", "content": []}), vec![]),
        (
            json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
            vec![part("no")],
        ),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, image]}),
            vec![part("a"), picture],
        ),
        (
            json!({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "1"}]}),
            vec![part("1")],
        ),
        (json!({"role": "tool", "tool_call_id": "c", "content": null}), vec![]),
        (json!({"role": "critic", "content": "own"}), vec![part("own")]),
    ] {
        let actual = message(&fields).unwrap();
        assert_eq!((&fields["role"], expected), (&json!(actual.role), actual.content));
    }
}

#[test]
fn a_message_has_calls_and_thoughts_and_other_fields() {
    let actual = message(&json!({
        "role": "assistant", "content": null, "name": "n", "refusal": null, "audio": null,
        "reasoning_content": "hm", "prefix": true,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "g"}},
            {"id": "c", "type": "custom", "custom": {"name": "h", "input": "text"}},
        ],
    }));
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let expected = ChatMessage {
        role: "assistant".into(),
        name: "n".into(),
        tool_calls: vec![call("a", "f", "{}"), call("b", "g", ""), call("c", "h", "text")],
        reasoning: "hm".into(),
        other_json: r#"{"prefix":true}"#.into(),
        ..ChatMessage::default()
    };
    assert_eq!(expected, actual.unwrap());
    let reasoning = json!({"role": "assistant", "reasoning": "hm"});
    assert_eq!("hm", message(&reasoning).unwrap().reasoning);
}

#[test]
fn tools_and_choices_are_passed_on() {
    let schema = json!({"type": "object", "properties": {}});
    let custom = json!({"type": "custom", "custom": {"name": "c"}});
    let function = json!({"name": "f", "description": "d", "parameters": schema, "strict": true});
    let tools = json!([{"type": "function", "function": function}, custom]);
    let named = json!({"type": "function", "function": {"name": "f"}});
    for (choice, mode, name) in [
        (json!("auto"), Mode::Unspecified, ""),
        (json!("none"), Mode::None, ""),
        (json!("required"), Mode::Required, ""),
        (named, Mode::Named, "f"),
        (json!({"type": "custom", "custom": {"name": "c"}}), Mode::Named, "c"),
    ] {
        let chat = of(generate(&chat(&json!({"tools": tools, "tool_choice": choice}))));
        let expected = ToolChoice { mode: mode.into(), name: name.into() };
        assert_eq!(Some(expected), chat.tool_choice);
        let function = Tool {
            name: "f".into(),
            description: "d".into(),
            parameters_json: schema.to_string(),
            strict: Some(true),
            other_json: String::new(),
        };
        let other_json = custom.to_string();
        let other = Tool { name: "c".into(), other_json, ..Tool::default() };
        assert_eq!(vec![function, other], chat.tools);
    }
}

#[test]
fn the_newer_name_of_the_limit_counts() {
    let limit = |fields: Value| generate(&chat(&fields)).max_tokens;
    assert_eq!(5, limit(json!({"max_completion_tokens": 5, "max_tokens": 9})));
    assert_eq!(9, limit(json!({"max_tokens": 9})));
    assert_eq!(0, limit(json!({})));
}

#[test]
fn formats_are_passed_on() {
    let format =
        |format: Value| generate(&chat(&json!({"response_format": format}))).response_format;
    assert_eq!(None, format(json!({"type": "text"})));
    let object = ResponseFormat { kind: Kind::JsonObject.into(), ..ResponseFormat::default() };
    assert_eq!(Some(object), format(json!({"type": "json_object"})));
    let schema = json!({"name": "n", "strict": true, "schema": {"type": "object"}});
    let expected = ResponseFormat {
        kind: Kind::JsonSchema.into(),
        name: "n".into(),
        schema_json: r#"{"type":"object"}"#.into(),
        strict: Some(true),
        other_json: String::new(),
    };
    assert_eq!(Some(expected), format(json!({"type": "json_schema", "json_schema": schema})));
    let other = json!({"grammar": "root ::= \"a\"", "type": "grammar"});
    let (kind, other_json) = (Kind::Other.into(), other.to_string());
    let expected = ResponseFormat { kind, other_json, ..ResponseFormat::default() };
    assert_eq!(Some(expected), format(other));
}

#[test]
fn fields_of_templates_are_the_chats() {
    let chat = of(generate(&chat(&json!({
        "reasoning_effort": "high", "chat_template": "t", "chat_template_kwargs": {"a": 1},
        "add_generation_prompt": false, "continue_final_message": true,
        "parallel_tool_calls": true,
    }))));
    assert_eq!(("high", "t"), (&*chat.reasoning_effort, &*chat.chat_template));
    assert_eq!(r#"{"a":1}"#, chat.chat_template_kwargs_json);
    assert_eq!((Some(false), true), (chat.add_generation_prompt, chat.continue_final_message));
    assert_eq!(Some(true), chat.parallel_tool_calls);
}

#[test]
fn fields_that_are_not_known_go_to_the_engine_as_they_are() {
    let body = br#"{"messages":[{"role":"user","content":"a"}], "guided_regex" : "[a-z]",
        "metadata":{"k":"v"}, "big": 12345678901234567890.10}"#;
    let body = Bytes::from_static(body);
    let request = Door::ChatCompletions.read(&HeaderMap::new(), &body).unwrap();
    let other = generate(&request.open(resolved())).other_json;
    let expected = r#"{"guided_regex":"[a-z]","metadata":{"k":"v"},"big":12345678901234567890.10}"#;
    assert_eq!(expected, other);
    assert_eq!("", generate(&chat(&json!({}))).other_json);
}

/// With these fields the request is refused for this one.
fn check_refused(fields: &Value, param: &str) {
    let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
    merge(&mut body, fields);
    assert_eq!((400, param.to_owned()), refused(&body), "{fields}");
}

#[test]
fn wrong_messages_are_told_by_their_place() {
    let user = json!({"role": "user", "content": "a"});
    for (fields, param) in [
        (json!({"messages": "a"}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": ["a"]}), "messages[0]"),
        (json!({"messages": [user, {"content": "a"}]}), "messages[1].role"),
        (json!({"messages": [{"role": 1, "content": "a"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "content": 1}]}), "messages[0].content"),
        (json!({"messages": [{"role": "function", "content": "a"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), "messages[0].tool_call_id"),
        (
            json!({"messages": [user, user, {"role": "user", "content": [{"text": "a"}]}]}),
            "messages[2].content[0].type",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
            "messages[0].content[0].text",
        ),
        (
            json!({"messages": [{"role": "assistant", "function_call": {}}]}),
            "messages[0].function_call",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]}),
            "messages[0].tool_calls[0].function.name",
        ),
    ] {
        check_refused(&fields, param);
    }
}

#[test]
fn wrong_fields_are_told_by_name() {
    let function = json!([{"type": "function", "function": {"name": "f"}}]);
    for (fields, param) in [
        (json!({"functions": []}), "functions"),
        (json!({"function_call": "auto"}), "function_call"),
        (json!({"audio": {"voice": "v"}}), "audio"),
        (json!({"modalities": ["text", "audio"]}), "modalities"),
        (json!({"web_search_options": {}}), "web_search_options"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_completion_tokens": "1"}), "max_completion_tokens"),
        (json!({"logprobs": 2}), "logprobs"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "response_format.json_schema.schema",
        ),
        (json!({"tools": [{}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tools": function, "tool_choice": "any"}), "tool_choice"),
        (
            json!({"tools": function, "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice",
        ),
        (json!({"tools": function, "tool_choice": {"type": "allowed_tools"}}), "tool_choice.type"),
        (json!({"parallel_tool_calls": 1}), "parallel_tool_calls"),
        (json!({"reasoning_effort": "very"}), "reasoning_effort"),
        (json!({"chat_template_kwargs": []}), "chat_template_kwargs"),
        (
            json!({"continue_final_message": true, "add_generation_prompt": true}),
            "continue_final_message",
        ),
        (json!({"metadata": "a"}), "metadata"),
        (json!({"store": 1}), "store"),
        (json!({"service_tier": 1}), "service_tier"),
    ] {
        check_refused(&fields, param);
    }
}

#[test]
fn what_is_no_object_is_told_so() {
    for (body, expected) in [
        ("", "the body is empty; send a JSON object"),
        ("[]", "has to be an object, not an array"),
        ("{\"messages\": ", "the body is no JSON: EOF while parsing a value at line 1 column 13"),
    ] {
        let read =
            Door::ChatCompletions.read(&HeaderMap::new(), &Bytes::from_static(body.as_bytes()));
        let error = read.expect_err("no request");
        assert_eq!((400, expected), (error.status.as_u16(), &*error.message));
    }
}
