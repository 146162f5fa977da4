use super::*;
use crate::messages::{
    Chat, ChatMessage, ContentPart, GenerateInput, Kind, Mode, Part, Sampling, ToolCall, ToolChoice,
};

fn request(fields: &Value) -> GenerateRequest {
    generate(&responses(fields))
}

fn chat_of(fields: &Value) -> Chat {
    match request(fields).input {
        Some(GenerateInput::Chat(chat)) => chat,
        other => panic!("{other:?}"),
    }
}

fn said(role: &str, text: &str) -> ChatMessage {
    let content = vec![ContentPart { part: Some(Part::Text(text.into())) }];
    ChatMessage { role: role.into(), content, ..ChatMessage::default() }
}

#[test]
fn fields_become_those_of_the_engine() {
    let request = request(&json!({
        "instructions": "S", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.25, "seed": 4,
        "top_logprobs": 3, "include": ["message.output_text.logprobs"], "store": true,
        "metadata": {}, "stream": true, "user": "u", "truncation": "disabled", "unknown": 1,
        "background": false, "previous_response_id": null, "reasoning": {"effort": "low"},
        "stream_options": {"include_obfuscation": false}, "prompt_cache_key": "k",
        "text": {
            "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true},
            "verbosity": "low",
        },
        "parallel_tool_calls": false,
    }));
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(0.25),
        seed: Some(4),
        ..Sampling::default()
    };
    assert_eq!(Some(sampling), request.sampling);
    assert_eq!((7, true, 3), (request.max_tokens, request.logprobs, request.top_logprobs));
    assert_eq!((true, "u", "m:adapter"), (request.stream, &*request.user, &*request.model));
    let other: Value = serde_json::from_str(&request.other_json).unwrap();
    assert_eq!(json!({"unknown": 1, "prompt_cache_key": "k", "verbosity": "low"}), other);
    let format = request.response_format.unwrap();
    assert_eq!((Kind::JsonSchema, "n", "{}"), (format.kind(), &*format.name, &*format.schema_json));
    assert_eq!(Some(true), format.strict);
    let Some(GenerateInput::Chat(chat)) = request.input else { panic!("a chat") };
    assert_eq!(vec![said("system", "S"), said("user", "hello")], chat.messages);
    assert_eq!(("low", Some(false)), (&*chat.reasoning_effort, chat.parallel_tool_calls));
}

#[test]
fn items_become_messages_of_a_chat() {
    let chat = chat_of(&json!({"input": [
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [],
            "content": [{"type": "reasoning_text", "text": "R"}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "A", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{ }"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2",
            "output": [{"type": "input_text", "text": "2"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Q"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c3", "output": "3"},
        {"role": "user", "content": "V"},
        {"role": "user", "content": "W"},
    ]}));
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let result = |id: &str, text| ChatMessage { tool_call_id: id.into(), ..said("tool", text) };
    let expected = vec![
        said("developer", "D"),
        said("user", "U"),
        ChatMessage {
            reasoning: "R".into(),
            tool_calls: vec![call("c1", "f", "{ }"), call("c2", "g", "")],
            ..said("assistant", "A")
        },
        result("c1", "1"),
        result("c2", "2"),
        ChatMessage {
            role: "assistant".into(),
            reasoning: "Q".into(),
            tool_calls: vec![call("c3", "f", "{}")],
            ..ChatMessage::default()
        },
        result("c3", "3"),
        said("user", "V"),
        said("user", "W"),
    ];
    assert_eq!(expected, chat.messages);
}

#[test]
fn images_and_files_are_as_chat_has_them() {
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}});
    let content = json!([
        {"type": "input_image", "image_url": "https://a/b.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:x"},
        audio,
    ]);
    let chat = chat_of(&json!({"input": [{"role": "user", "content": content}]}));
    let parts = chat.messages[0].content.iter().map(|part| match &part.part {
        Some(Part::Json(json)) => serde_json::from_str::<Value>(json).unwrap(),
        other => panic!("{other:?}"),
    });
    let expected = json!([
        {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}},
        audio,
    ]);
    assert_eq!(expected, parts.collect::<Value>());
}

#[test]
fn tools_and_the_choice_among_them() {
    let tool = json!({"type": "function", "name": "f", "description": "d", "strict": true,
        "parameters": {"type": "object"}});
    let none = json!({"type": "function", "name": "g", "parameters": null});
    for (choice, mode, name) in [
        (json!("auto"), Mode::Unspecified, ""),
        (json!("none"), Mode::None, ""),
        (json!("required"), Mode::Required, ""),
        (json!({"type": "function", "name": "f"}), Mode::Named, "f"),
    ] {
        let chat = chat_of(&json!({"tools": [tool, none], "tool_choice": choice}));
        let expected = ToolChoice { mode: mode.into(), name: name.into() };
        assert_eq!(Some(expected), chat.tool_choice);
        assert_eq!(r#"{"type":"object"}"#, chat.tools[0].parameters_json);
        assert_eq!(("f", Some(true)), (&*chat.tools[0].name, chat.tools[0].strict));
        assert_eq!("", chat.tools[1].parameters_json);
    }
}

#[test]
fn formats_are_those_of_the_engine() {
    for (format, expected) in [
        (json!({"type": "text"}), None),
        (json!({"type": "json_object"}), Some(Kind::JsonObject)),
        (json!({"type": "grammar", "grammar": "g"}), Some(Kind::Other)),
    ] {
        let request = request(&json!({"text": {"format": format}}));
        assert_eq!(expected, request.response_format.map(|format| format.kind()));
    }
}

#[test]
fn what_is_wrong_or_kept_nowhere_is_told_by_its_name() {
    let item = |item: Value| json!({"input": [item]});
    for (fields, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 7}), "input"),
        (item(json!({})), "input[0].type"),
        (item(json!({"type": "web_search_call"})), "input[0].type"),
        (item(json!({"type": "item_reference", "id": "x"})), "input[0].type"),
        (item(json!({"role": "tool", "content": "a"})), "input[0].role"),
        (item(json!({"role": "user", "content": [{"type": "x"}]})), "input[0].content[0].type"),
        (
            item(json!({"role": "user", "content": [{"type": "input_image", "file_id": "x"}]})),
            "input[0].content[0].file_id",
        ),
        (item(json!({"type": "function_call", "name": "f"})), "input[0].call_id"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": {"id": "c"}}), "conversation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"background": true}), "background"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tool_choice": "some"}), "tool_choice"),
        (json!({"tool_choice": {"type": "file_search"}}), "tool_choice.type"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"include": ["everything"]}), "include[0]"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"top_logprobs": 21}), "top_logprobs"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.name"),
        (json!({"text": {"verbosity": 7}}), "text.verbosity"),
        (json!({"service_tier": 7}), "service_tier"),
        (json!({"reasoning": "low"}), "reasoning"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"instructions": 7}), "instructions"),
        (json!({"metadata": 7}), "metadata"),
        (json!({"n": 2}), "n"),
    ] {
        let mut body = json!({"input": "hello"});
        merge(&mut body, &fields);
        let error = open(Door::Responses, &body).unwrap_err();
        let actual = (error.status.as_u16(), error.param.as_deref());
        assert_eq!((400, Some(param)), actual, "{}", error.message);
    }
}
