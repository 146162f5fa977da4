use super::*;
use crate::messages::{
    Chat, ChatMessage, ContentPart, GenerateInput, Kind, Mode, Part, Sampling, TokenizeInput,
    TokenizeRequest, ToolCall, ToolChoice,
};

fn request(fields: &Value) -> GenerateRequest {
    generate(&messages(fields))
}

fn chat_of(fields: &Value) -> Chat {
    match request(fields).input {
        Some(GenerateInput::Chat(chat)) => chat,
        other => panic!("{other:?}"),
    }
}

fn said(role: &str, texts: &[&str]) -> ChatMessage {
    let content = texts.iter().map(|text| ContentPart { part: Some(Part::Text((*text).into())) });
    ChatMessage { role: role.into(), content: content.collect(), ..ChatMessage::default() }
}

fn json_part(json: &Value) -> ContentPart {
    ContentPart { part: Some(Part::Json(json.to_string())) }
}

#[test]
fn fields_become_those_of_the_engine() {
    let request = request(&json!({
        "max_tokens": 7, "stop_sequences": ["END"], "temperature": 0.5, "top_p": 0.25, "top_k": 3,
        "metadata": {"user_id": "u"}, "stream": true, "service_tier": "auto", "min_p": 0.5,
        "cache_control": {"type": "ephemeral"}, "mcp_servers": [], "container": null,
        "unknown": [1.50], "context_management": {"edits": []}, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
    }));
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(3),
        min_p: Some(0.5),
        ..Sampling::default()
    };
    assert_eq!(Some(sampling), request.sampling);
    assert_eq!((7, vec!["END".into()], true), (request.max_tokens, request.stop, request.stream));
    assert_eq!(("u", "m:adapter"), (&*request.user, &*request.model));
    let other: Value = serde_json::from_str(&request.other_json).unwrap();
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    assert_eq!(json!({"unknown": [1.5], "thinking": thinking}), other);
    let format = request.response_format.unwrap();
    assert_eq!((Kind::JsonSchema, r#"{"type":"object"}"#), (format.kind(), &*format.schema_json));
    let Some(GenerateInput::Chat(chat)) = request.input else { panic!("a chat") };
    assert_eq!(r#"{"enable_thinking":true}"#, chat.chat_template_kwargs_json);
    assert_eq!("low", chat.reasoning_effort);
    assert_eq!(vec![said("user", &["hello"])], chat.messages);
}

#[test]
fn thinking_is_enabled_where_templates_look_for_it() {
    for (fields, expected) in [
        (json!({}), json!("")),
        (json!({"chat_template_kwargs": {"a": 1}}), json!({"a": 1})),
        (json!({"thinking": {"type": "disabled"}}), json!({"enable_thinking": false})),
        (
            json!({"thinking": {"type": "adaptive"}, "chat_template_kwargs": {"a": 1}}),
            json!({"enable_thinking": true, "a": 1}),
        ),
        (
            json!({"thinking": {"type": "adaptive"}, "chat_template_kwargs": {}}),
            json!({"enable_thinking": true}),
        ),
    ] {
        let kwargs = chat_of(&fields).chat_template_kwargs_json;
        let actual =
            if kwargs.is_empty() { json!("") } else { serde_json::from_str(&kwargs).unwrap() };
        assert_eq!(expected, actual, "{fields}");
    }
}

#[test]
fn blocks_become_messages_of_a_chat() {
    let chat = chat_of(&json!({
        "system": [{"type": "text", "text": "S"}, {"type": "text", "text": "T"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source":
                    {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
                {"type": "document", "source":
                    {"type": "text", "media_type": "text/plain", "data": "D"}},
                {"type": "document", "source":
                    {"type": "content", "content": [{"type": "text", "text": "E"}]}},
                {"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}},
            ]},
            {"role": "user", "content": "and"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "calling"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": [ ]}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "R"},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content":
                    [{"type": "text", "text": "Q"}]},
                {"type": "text", "text": "so?"},
            ]},
        ],
    }));
    let image = |url: &str| json_part(&json!({"image_url": {"url": url}, "type": "image_url"}));
    let pdf = json!({"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}});
    let mut user = said("user", &["look"]);
    user.content.extend([image("data:image/png;base64,AAAA"), image("https://a/b.png")]);
    user.content.extend(said("", &["D", "E"]).content);
    user.content.push(json_part(&pdf));
    user.content.extend(said("", &["and"]).content);
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let assistant = ChatMessage {
        reasoning: "hm".into(),
        tool_calls: vec![call("t1", "f", r#"{"a":[],"b":1}"#), call("t2", "g", "{}")],
        ..said("assistant", &["calling"])
    };
    let result = |id: &str, text| ChatMessage { tool_call_id: id.into(), ..said("tool", &[text]) };
    let failed = ChatMessage { other_json: r#"{"is_error":true}"#.into(), ..result("t2", "Q") };
    let expected = [
        said("system", &["S", "T"]),
        user,
        assistant,
        result("t1", "R"),
        failed,
        said("user", &["so?"]),
    ];
    for (expected, actual) in expected.iter().zip(&chat.messages) {
        assert_eq!(parsed(expected), parsed(actual));
    }
    assert_eq!(expected.len(), chat.messages.len());
    assert_eq!((None, false), (chat.add_generation_prompt, chat.continue_final_message));
}

/// With parsed JSON, as the order of fields does not matter.
fn parsed(message: &ChatMessage) -> (ChatMessage, Vec<Value>) {
    let mut message = message.clone();
    let parts = message.content.iter().map(|part| match part.part.as_ref().expect("a part") {
        Part::Text(text) => json!(text),
        Part::Json(json) => serde_json::from_str(json).expect("a part is JSON"),
    });
    let parts = parts.collect();
    message.content.clear();
    (message, parts)
}

#[test]
fn a_turn_of_the_assistant_at_the_end_goes_on() {
    let user = json!({"role": "user", "content": "hello"});
    let chat = chat_of(&json!({"messages": [user, {"role": "assistant", "content": "It is ("}]}));
    assert_eq!((Some(false), true), (chat.add_generation_prompt, chat.continue_final_message));
}

#[test]
fn tools_and_the_choice_among_them() {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}});
    for (choice, mode, name, parallel) in [
        (json!({"type": "auto"}), None, "", None),
        (json!({"type": "any"}), Some(Mode::Required), "", None),
        (json!({"type": "none"}), Some(Mode::None), "", None),
        (json!({"type": "tool", "name": "f"}), Some(Mode::Named), "f", None),
        (json!({"type": "auto", "disable_parallel_tool_use": true}), None, "", Some(false)),
    ] {
        let chat = chat_of(&json!({"tools": [tool], "tool_choice": choice}));
        let expected = mode.map(|mode| ToolChoice { mode: mode.into(), name: name.into() });
        assert_eq!((expected, parallel), (chat.tool_choice, chat.parallel_tool_calls));
        let tool = &chat.tools[0];
        assert_eq!(("f", "d"), (&*tool.name, &*tool.description));
        assert_eq!(r#"{"type":"object"}"#, tool.parameters_json);
    }
}

#[test]
fn what_is_wrong_is_told_by_its_place() {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    for (fields, place) in [
        (json!({"max_tokens": null}), "max_tokens: is missing"),
        (json!({"max_tokens": 0}), "max_tokens: is 0"),
        (json!({"messages": null}), "messages: is missing"),
        (json!({"messages": []}), "messages: is empty"),
        (json!({"messages": [{"content": "a"}]}), "messages[0].role: is missing"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), "messages[0].role: is \"tool\""),
        (user(json!(null)), "messages[0].content: is missing"),
        (user(json!(7)), "messages[0].content: has to be a string or an array, not 7"),
        (user(json!([{"type": "text"}])), "messages[0].content[0].text: is missing"),
        (user(json!([{"type": "thinking"}])), "messages[0].content[0].type: is \"thinking\""),
        (
            user(json!([{"type": "image", "source": {"type": "file", "file_id": "x"}}])),
            "messages[0].content[0].source.type: is \"file\"",
        ),
        (json!({"system": 7}), "system: has to be"),
        (json!({"system": [{"type": "tool_use"}]}), "system[0].type: is \"tool_use\""),
        (json!({"stop_sequences": "a"}), "stop_sequences: has to be an array"),
        (json!({"stop_sequences": ["a", ""]}), "stop_sequences[1]: is empty"),
        (json!({"stop_sequences": vec!["a"; 17]}), "stop_sequences: has 17"),
        (json!({"temperature": "hot"}), "temperature: has to be a number"),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools[0].type: is \"web_search_20250305\"",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema: is missing"),
        (json!({"tool_choice": {"type": "tool", "name": "f"}}), "tool_choice: asks for a tool"),
        (json!({"tool_choice": {"type": "some"}}), "tool_choice.type: is \"some\""),
        (json!({"thinking": {"type": "deep"}}), "thinking.type: is \"deep\""),
        (json!({"mcp_servers": [{}]}), "mcp_servers: is not supported"),
        (json!({"n": 2}), "n: is 2; allowed: 1"),
        (json!({"container": "c"}), "container: is not supported"),
        (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type: is"),
    ] {
        let content = json!([{"role": "user", "content": "hello"}]);
        let mut body = json!({"max_tokens": 9, "messages": content});
        merge(&mut body, &fields);
        let error = open(Door::Messages, &body).unwrap_err();
        assert_eq!(400, error.status.as_u16());
        assert!(error.message.starts_with(place), "{place}\n{}", error.message);
    }
}

#[test]
fn tokens_are_counted_of_the_same_chat() {
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let chat = chat_of(&json!({"system": "S", "tools": [tool]}));
    let body = json!({
        "system": "S", "tools": [tool], "messages": [{"role": "user", "content": "hello"}],
    });
    let opened = open(Door::CountTokens, &body).unwrap();
    let request = TokenizeRequest::decode(&*opened.message).unwrap();
    assert_eq!(Some(TokenizeInput::Chat(chat)), request.input);
    assert_eq!("m:adapter", request.model);
}
